"""Redrives: dead letters tried again, one by hand, or all that match as a job.

A job takes those alone that were dead when it was made: what it has re-opened and dies again stays dead.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection

from app.core import by_hand as by_hand_core
from app.core.reservations import Refused
from app.core.steps import COUNTED_AT_ONCE, Members, Step
from app.domain.identity import public_id
from app.domain.states import DeliveryStatus, JobKind
from app.ledger import by_hand, dead_letters, events, jobs, service
from app.ledger.by_hand import Delivery, Reopening
from app.ledger.dead_letters import FIRST, Filter, Place
from app.ledger.jobs import Job

MOST_MATCHING = 1_000_000  # dead letters that a dry run looks through


def redrive(connection: Connection, tenant: str, delivery: int) -> Delivery | Refused | None:
    """Try a dead letter again, now and in a new round; `Refused` when it is none; None without such a delivery."""
    found = by_hand_core.lock(connection, tenant, delivery)
    if found is not None and found.status is not DeliveryStatus.DEAD:
        return Refused(f"{public_id('dlv', delivery)} is {found.status} and no dead letter")
    return by_hand_core.retry(connection, tenant, delivery)


def start(connection: Connection, tenant: str, wanted: Filter, rate: float | None) -> Job:
    """A job that tries all again that match and are dead now, at most `rate` a second."""
    parameters = {
        "reason": wanted.reason,
        "endpoint": wanted.endpoint,
        "since": None if wanted.since is None else wanted.since.isoformat(),
        "until": None if wanted.until is None else wanted.until.isoformat(),
        "rate_per_second": rate,
    }
    return jobs.insert(connection, tenant, JobKind.REDRIVE, parameters)


def matching(connection: Connection, tenant: str, wanted: Filter) -> tuple[int, bool]:
    """How many there are now that match, and whether there are more than were looked through."""
    until = _until(wanted, service.now(connection))
    number, rest = dead_letters.count(connection, tenant, wanted, after=_first(wanted), until=until, most=MOST_MATCHING)
    return number, rest is not None


def step(connection: Connection, job: Job, most: int) -> Step:
    """Re-open the next few, the longest dead first: events locked in order, then looked at again, then changed."""
    wanted, place = _wanted(job.parameters), job.place or {}
    until = _until(wanted, job.created_at)
    counted, total = _count(connection, job, wanted, until)  # first: what is re-opened is not there any more
    after = _place(place["after"]) if "after" in place else _first(wanted)
    chosen = dead_letters.choose(connection, job.tenant, wanted, after=after, until=until, most=most)
    skipped = _reopen(connection, job, chosen.events, until)
    return Step(
        place=None if chosen.after is None else {**counted, "after": _members(chosen.after)},
        done=len(chosen.events),
        total=total,
        reopened=len(chosen.events) - skipped.total(),
        skipped=skipped,
    )


def _reopen(connection: Connection, job: Job, chosen: Mapping[int, int], until: datetime) -> Counter[str]:
    """Re-open deliveries (with their events) that are dead still; returns how many it passed over, by reason."""
    closed = events.lock_all(connection, job.tenant, list(set(chosen.values())))
    dead = dead_letters.still_dead(connection, list(chosen), until)
    skipped = {each: _why_not(each in dead, closed.get(event, "event_gone")) for each, event in chosen.items()}
    able = [each for each, why in skipped.items() if why is None]
    return Counter(why for why in skipped.values() if why) + reopen_all(connection, job.tenant, able)


def reopen_all(connection: Connection, tenant: str, ids: Collection[int]) -> Counter[str]:
    """Re-open terminal deliveries whose events are locked; returns how many it could not, by reason."""
    reopenings = by_hand.reopen(connection, tenant, list(ids))
    return Counter(each.value for each in reopenings.values() if each is not Reopening.OPEN)


def _why_not(dead: bool, closed: str | None) -> str | None:
    return closed if dead else "not_dead"  # any more, or dead anew: somebody else has re-opened it


def _count(connection: Connection, job: Job, wanted: Filter, until: datetime) -> tuple[Members, int | None]:
    """Count on, ahead of what is re-opened: how far it has come, until it is through, and then the total."""
    if job.total is not None:
        return {}, None
    place = job.place or {}
    after = _place(place["counted_to"]) if place else _first(wanted)
    number, rest = dead_letters.count(connection, job.tenant, wanted, after=after, until=until, most=COUNTED_AT_ONCE)
    number += place.get("counted", 0)
    return ({}, number) if rest is None else ({"counted": number, "counted_to": _members(rest)}, None)


def _wanted(parameters: Members) -> Filter:
    since, until = parameters["since"], parameters["until"]
    return Filter(
        parameters["reason"],
        parameters["endpoint"],
        since and datetime.fromisoformat(since),
        until and datetime.fromisoformat(until),
    )


def _first(wanted: Filter) -> Place:
    return FIRST if wanted.since is None else Place(wanted.since, 0)


def _until(wanted: Filter, now: datetime) -> datetime:
    return now if wanted.until is None else min(wanted.until, now)


def _members(place: Place) -> list[object]:
    return [place.died_at.isoformat(), place.delivery]


def _place(members: list[str | int]) -> Place:
    return Place(datetime.fromisoformat(str(members[0])), int(members[1]))
