"""Erasures, as jobs: the bytes of one event, or everything of a tenant.

What is in the air is never cut off: it ends as a cancel lets it end, and the erasure waits for that. So when one has
completed, no process sends, or will ever send, what it took away.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection

from app.core import events as events_core
from app.core.steps import Step
from app.domain.auditing import Action
from app.domain.identity import public_id
from app.domain.states import JobKind
from app.ledger import audit, by_hand, erasures, events, jobs, parking, service
from app.ledger.jobs import Job

PAUSE = timedelta(seconds=1)  # until the next look at what is in the air
Place = dict[str, Any]


def start_event(connection: Connection, tenant: str, event: int, actor: str) -> Job | None:
    """A job that erases one event; None when the tenant has none of that id. A repeat finds what is left to be done."""
    if not events.exists(connection, tenant, event):
        return None
    job = jobs.insert(connection, tenant, JobKind.ERASE_EVENT, {"event": event, "by": actor})
    subject = public_id("evt", event)
    audit.write(connection, actor, tenant, Action.EVENT_ERASURE_ASKED, subject, job=job.id)
    return job


def erase_event(connection: Connection, job: Job, most: int) -> Step:
    """The bytes and what waits in the first step; then what receivers said, once what is in the air has ended."""
    event = int(job.parameters["event"])
    if job.place is None:
        return _take_bytes(connection, job, event)
    after = (event, int(job.place["endpoint"]))
    few = erasures.next_deliveries(connection, [event], after=after, most=most)
    if any(each.in_flight for each in few):
        return Step(job.place, erased=Counter(), pause=PAUSE)
    silenced = erasures.silence(connection, [each.id for each in few])
    place = {"endpoint": few[-1].endpoint} if len(few) == most else None
    return Step(place, done=len(few), erased=Counter(excerpts=silenced))


def _take_bytes(connection: Connection, job: Job, event: int) -> Step:
    if events_core.cancel(connection, job.tenant, event) is None:
        return Step(None, erased=Counter(), error=f"{public_id('evt', event)} was deleted before it was erased")
    taken = erasures.event(connection, event)
    if taken:
        audit.write(
            connection, job.parameters["by"], job.tenant, Action.EVENT_ERASED, public_id("evt", event), job=job.id
        )
    total = erasures.count_deliveries(connection, event)
    return Step({"endpoint": 0}, total=total, erased=Counter(events=int(taken)))


def start_tenant(connection: Connection, tenant: str, actor: str) -> Job | None:
    """A job that erases a tenant, or the one that does so already; None when that one has just ended: ask again.

    From its commit on nobody writes for the tenant: its keys are revoked, its SQL grants are gone, and the database
    refuses what others would make for it, until the job has ended.
    """
    started = erasures.start(connection, tenant, {"by": actor})
    if started is None:
        return None
    job, is_new = started
    if is_new:
        keys, grants = erasures.shut_out(connection, tenant)
        details = {"job": job.id, "keys_revoked": keys, "grants_removed": grants}
        audit.write(connection, actor, tenant, Action.TENANT_ERASURE_ASKED, tenant, **details)
    return job


def erase_tenant(connection: Connection, job: Job, most: int) -> Step:
    """A few rows of one kind, from the endpoints, which stops all sending, to the keys.

    Around again and again until nothing is left that somebody made or sends; then what that referred to.
    """
    place = dict(job.place or {"phase": FIRST, **asdict(erasures.fence(connection))})
    return PHASES[place["phase"]](connection, job, place, most)


def _rows(connection: Connection, job: Job, place: Place, most: int) -> Step:
    what = place["phase"]
    gone = erasures.rows(connection, what, job.tenant, most=most)
    return _step(place, gone < most, Counter({what: gone}))


def _close_endpoints(connection: Connection, job: Job, place: Place, most: int) -> Step:
    closed = erasures.close_endpoints(connection, job.tenant, most=most)
    parking.look_at(connection, dict.fromkeys(closed, service.now(connection)))
    return _step(place, len(closed) < most, Counter())


def _events(connection: Connection, job: Job, place: Place, most: int) -> Step:
    """The next few deliveries of the next few events; what is in the air is asked to end, and found again later."""
    first, after = place.pop("first", 0), (place.pop("event", 0), place.pop("endpoint", 0))
    chosen = erasures.next_events(connection, job.tenant, first=first, most=most)
    few = erasures.next_deliveries(connection, chosen, after=after, most=most)
    by_hand.cancel(connection, job.tenant, [each.id for each in few if each.in_flight])
    deliveries, attempts = erasures.deliveries(connection, [each.id for each in few if not each.in_flight])
    gone = erasures.events(connection, chosen)
    if len(few) == most:
        place |= {"first": few[-1].event, "event": few[-1].event, "endpoint": few[-1].endpoint}
    elif len(chosen) == most:
        place |= {"first": chosen[-1] + 1}
    erased = Counter(events=gone, deliveries=deliveries, attempts=attempts)
    return _step(place, "first" not in place, erased)


def _look_around(connection: Connection, job: Job, place: Place, _: int) -> Step:
    fence = erasures.Fence(place["number"], place["open"])
    if erasures.anything_left(connection, job.tenant, fence=fence):
        return Step({**place, "phase": FIRST}, erased=Counter(), pause=PAUSE)
    return _step(place, True, Counter())


def _endpoints(connection: Connection, job: Job, place: Place, most: int) -> Step:
    gone = erasures.endpoints(connection, job.tenant, most=most)
    return _step(place, gone < most, Counter(endpoints=gone))


def _end(connection: Connection, job: Job, _: Place, __: int) -> Step:
    erased = (job.result or {}).get("erased", {})
    audit.write(
        connection, job.parameters["by"], job.tenant, Action.TENANT_ERASED, job.tenant, job=job.id, erased=erased
    )
    return Step(None, erased=Counter())


def _step(place: Place, is_done: bool, erased: Counter[str]) -> Step:
    after = {**place, "phase": _NEXT[place["phase"]]} if is_done else place
    return Step(after, done=erased.total(), erased=erased)


PHASES: dict[str, Callable[[Connection, Job, Place, int], Step]] = {
    "close": _close_endpoints,
    "jobs": _rows,
    "reservations": _rows,
    "answers": _rows,
    "events": _events,
    "look": _look_around,
    "endpoints": _endpoints,
    "grants": _rows,
    "keys": _rows,
    "end": _end,
}
FIRST = "close"
_NEXT = dict(pairwise(PHASES))
