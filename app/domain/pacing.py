"""When an endpoint may be sent to next: its rate, its share of the fleet, a hint, a breaker.

All of them say the same thing, "the next slot is at T". Nothing here reads a clock: `at` is the ledger's, read while
the endpoint's pace was locked.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from app.domain.states import Outcome

CATCH_UP = timedelta(seconds=0.1)  # a slot may be that late and the rate is kept all the same
TROUBLES = 10  # in a row close an endpoint
FULL = timedelta(seconds=0.1)  # until somebody looks whether an endpoint that has all it may in flight has more room
PAUSE = timedelta(seconds=5)  # for which it is closed at first; twice as long each time that the probe fails
LONGEST_PAUSE = timedelta(minutes=1)
FAILURES = 10  # in a row, and days of nothing else, disable an endpoint
LONGEST_INTERVAL = 1e9  # seconds
MANY = 2**31 - 1  # slots of an endpoint that has no pace to keep
# What a receiver says that can't do the work just now; any other answer shows that it can.
TROUBLE = frozenset({Outcome.UNREACHED, Outcome.UNKNOWN, Outcome.FAILED, Outcome.THROTTLED})


class Closed(StrEnum):
    """Why nothing is sent to an endpoint for a while."""

    RETRY_AFTER = "retry_after"  # its receiver asked for it
    FAILING = "failing"  # the breaker: one probe at a time


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of an endpoint's pace at one moment.

    `slot_at` is the last slot of its rate that was given away. While `closed_until` is set nothing is sent before it;
    then one delivery is, the probe, and what comes back decides. What began before `closed_at` does not.
    """

    at: datetime
    rate_per_second: float | None = None
    max_in_flight: int | None = None
    in_flight: int = 0
    slot_at: datetime | None = None
    closed_until: datetime | None = None
    closed_at: datetime | None = None
    closed_why: Closed | None = None
    trips: int = 0
    troubles: int = 0
    failures: int = 0
    failing_since: datetime | None = None

    @property
    def interval(self) -> timedelta:
        """Between two slots of its rate; none without one."""
        if self.rate_per_second is None:
            return timedelta()
        return max(timedelta.resolution, timedelta(seconds=min(1 / self.rate_per_second, LONGEST_INTERVAL)))

    @property
    def next_slot(self) -> datetime:
        """The first one that was not given away; in the past when more than one may be sent at once."""
        if self.closed_until is not None and self.closed_until > self.at:
            return self.closed_until
        if self.room <= 0:
            return self.at + FULL
        if self.rate_per_second is None or self.slot_at is None:
            return self.at
        return max(self.slot_at + self.interval, self.at - CATCH_UP)

    @property
    def room(self) -> int:
        """How many more may be in flight."""
        return MANY if self.max_in_flight is None else self.max_in_flight - self.in_flight


def allowance(pace: Pace) -> int:
    """How many may be claimed now."""
    if pace.next_slot > pace.at:
        return 0
    if pace.closed_until is not None:
        return 1
    if pace.rate_per_second is None:
        return pace.room
    return min(pace.room, 1 + math.floor((pace.at - pace.next_slot) / pace.interval))


def granted(pace: Pace, number: int, lease: timedelta) -> Pace:
    """The pace after `number` claims, each of a lease: a probe that nobody ends is over with its lease."""
    if not number:
        return pace
    after = replace(pace, in_flight=pace.in_flight + number)
    if pace.rate_per_second is not None:
        after = replace(after, slot_at=pace.next_slot + (number - 1) * pace.interval)
    if pace.closed_until is not None:
        after = replace(after, closed_until=pace.at + lease)
    return after


def slots(pace: Pace, most: int, ahead: timedelta) -> list[datetime]:
    """When the next may be claimed, one time for each of at most `most`, none more than `ahead` from now.

    A look and no permission: whoever claims then asks the pace again.
    """
    first = max(pace.next_slot, pace.at)
    if first > pace.at + ahead:
        return []
    if pace.closed_until is not None:
        return [first]
    if pace.rate_per_second is None:
        return [first] * most
    return [first + each * pace.interval for each in range(min(most, 1 + (pace.at + ahead - first) // pace.interval))]


@dataclass(frozen=True, slots=True)
class Heard:
    """An outcome as far as it is about the endpoint; `hint` is what its Retry-After came to."""

    outcome: Outcome
    started_at: datetime
    hint: timedelta | None = None


def after(pace: Pace, heard: Iterable[Heard]) -> Pace:
    """The pace after these outcomes, which count in the order in which they were sent."""
    for one in sorted(heard, key=lambda each: each.started_at):
        pace = _after(pace, one)
    return _trip(pace) if pace.closed_until is None and pace.troubles >= TROUBLES else pace


def _after(pace: Pace, one: Heard) -> Pace:
    decides = pace.closed_at is None or one.started_at >= pace.closed_at
    if one.outcome is Outcome.DELIVERED:
        pace = replace(pace, failures=0, failing_since=None, troubles=0)
        return _open(pace) if decides else pace
    pace = replace(pace, failures=pace.failures + 1, failing_since=pace.failing_since or pace.at)
    if one.outcome is Outcome.THROTTLED and one.hint:
        until = pace.at + one.hint
        return _close(pace, Closed.RETRY_AFTER, until if decides else max(until, pace.closed_until or until))
    if one.outcome not in TROUBLE:
        pace = replace(pace, troubles=0)
        return _open(pace) if decides else pace
    pace = replace(pace, troubles=pace.troubles + 1)
    return _trip(pace) if pace.closed_until is not None and decides else pace


def _trip(pace: Pace) -> Pace:
    pause = min(PAUSE * 2 ** min(pace.trips, 10), LONGEST_PAUSE)
    return replace(_close(pace, Closed.FAILING, pace.at + pause), trips=min(pace.trips + 1, 1000))


def _open(pace: Pace) -> Pace:
    return replace(pace, closed_until=None, closed_at=None, closed_why=None, trips=0)


def _close(pace: Pace, why: Closed, until: datetime) -> Pace:
    return replace(pace, closed_until=until, closed_at=pace.closed_at or pace.at, closed_why=why)


def hopeless(pace: Pace, days: timedelta) -> bool:
    """Whether nothing but failure has come for so long, and so often, that the endpoint is to be disabled."""
    return pace.failures >= FAILURES and pace.failing_since is not None and pace.at - pace.failing_since >= days
