"""Replays: the events of a window sent to an endpoint that wants them now, as a job.

What it never got is made, what it has had is re-opened by its status. The oldest first, though there is no order
between deliveries.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from app.core import redrives
from app.core.reservations import Refused
from app.core.steps import COUNTED_AT_ONCE, Members, Step
from app.domain.identity import public_id
from app.domain.states import DeliveryStatus, JobKind
from app.ledger import endpoints, events, jobs, replays
from app.ledger.jobs import Job
from app.ledger.replays import Window


def start(
    connection: Connection,
    tenant: str,
    endpoint: int,
    *,
    since: datetime,
    until: datetime | None,
    statuses: Sequence[DeliveryStatus],
) -> Job | Refused | None:
    """A job for what was created from `since` to `until` or now; `Refused` while disabled, None without endpoint."""
    found = endpoints.find(connection, tenant, endpoint)
    if found is None:
        return None
    if found.status == "disabled":
        return Refused(f"{found.id} is disabled; enable it first, then replay")
    parameters = {
        "endpoint": endpoint,
        "since": since.isoformat(),
        "until": None if until is None else until.isoformat(),
        "statuses": list(statuses),
    }
    return jobs.insert(connection, tenant, JobKind.REPLAY, parameters)


def step(connection: Connection, job: Job, most: int) -> Step:
    """Make or re-open the next few: events locked in order, then their deliveries looked at, then changed."""
    endpoint = int(job.parameters["endpoint"])
    if endpoints.find(connection, job.tenant, endpoint) is None:
        return Step(place=None, error=f"{public_id('end', endpoint)} was deleted before all of it was replayed")
    window = _window(connection, job)
    counted, total = _count(connection, job, window)
    statuses = [DeliveryStatus(each) for each in job.parameters["statuses"]]
    chosen = replays.choose(connection, window, endpoint, statuses, most=most)
    made, reopened, skipped = _send(connection, job.tenant, endpoint, chosen.seqs, statuses)
    place = {**counted, "first": chosen.first, "end": window.end}
    return Step(None if chosen.first is None else place, chosen.number, total, reopened, made, skipped)


def _send(
    connection: Connection, tenant: str, endpoint: int, seqs: Sequence[int], statuses: Sequence[DeliveryStatus]
) -> tuple[int, int, Counter[str]]:
    closed = events.lock_all(connection, tenant, seqs)
    live = [seq for seq, why in closed.items() if why is None]
    had = replays.deliveries(connection, endpoint, live)
    made = replays.make(connection, tenant, endpoint, [seq for seq in live if seq not in had])
    again = [delivery for delivery, status in had.values() if status in statuses]
    skipped = redrives.reopen_all(connection, tenant, again)
    reopened = len(again) - skipped.total()
    return made, reopened, skipped + Counter(why for why in closed.values() if why is not None)


def _window(connection: Connection, job: Job) -> Window:
    since = datetime.fromisoformat(job.parameters["since"])
    until = job.parameters["until"]
    latest = job.created_at if until is None else min(datetime.fromisoformat(until), job.created_at)
    if job.place is None:
        return replays.window(connection, job.tenant, since, latest)
    return Window(job.tenant, since, latest, job.place["first"], job.place["end"])


def _count(connection: Connection, job: Job, window: Window) -> tuple[Members, int | None]:
    """Count on, ahead of what is sent: how far it has come, until it is through, and then the total."""
    if job.total is not None:
        return {}, None
    place = job.place or {"counted_first": window.first, "counted": 0}
    rest = Window(window.tenant, window.since, window.until, place["counted_first"], window.end)
    number, first = replays.count(connection, rest, most=COUNTED_AT_ONCE)
    number += place["counted"]
    return ({}, number) if first is None else ({"counted": number, "counted_first": first}, None)
