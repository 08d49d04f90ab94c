"""When an endpoint may be sent to, as a model: a rate, a share of the fleet, a hint, a breaker with one probe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.machines.ground import Row
from tests.machines.outbox import Outbox
from tests.machines.things import Delivery, Endpoint

LEASE = timedelta(seconds=45)
TENTH = timedelta(seconds=0.1)
AHEAD = timedelta(seconds=2)
MANY = 1_000_000
TROUBLE = ("unreached", "unknown", "failed", "throttled")


@dataclass
class News:
    """An outcome as far as it is about the endpoint."""

    endpoint: Endpoint
    revision: int
    outcome: str
    started_at: datetime
    hint: timedelta | None = None


class Paces:
    """`seats` are claims of endpoints with a limit in flight: each counts while its own lease runs."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.seats: dict[Delivery, object] = {}

    def has(self, one: Delivery) -> bool:
        """Whether it must ask; a ping never does."""
        endpoint = one.endpoint
        limited = endpoint.rate is not None or endpoint.most is not None or endpoint.closed_until is not None
        return limited and one.event.only_to is None

    def lock(self, endpoint: Endpoint) -> int:
        """How many may be claimed now; the seats of ended claims go."""
        self.seats = {one: token for one, token in self.seats.items() if one.endpoint is not endpoint or self.sits(one)}
        slot = self.next_slot(endpoint)
        if slot > self.now():
            return 0
        if endpoint.closed_until is not None:
            return 1
        room = MANY if endpoint.most is None else endpoint.most - self.in_flight(endpoint)
        return room if endpoint.rate is None else min(room, 1 + (self.now() - slot) // interval(endpoint))

    def sits(self, one: Delivery) -> bool:
        runs = one.lease_until is not None and one.lease_until > self.now()
        return runs and self.seats[one] == one.token

    def in_flight(self, endpoint: Endpoint) -> int:
        return sum(one.endpoint is endpoint and self.sits(one) for one in self.seats)

    def next_slot(self, endpoint: Endpoint, *, counts: bool = True) -> datetime:
        now = self.now()
        if endpoint.closed_until is not None and endpoint.closed_until > now:
            return endpoint.closed_until
        if counts and endpoint.most is not None and self.in_flight(endpoint) >= endpoint.most:
            return now + TENTH
        if endpoint.rate is None or endpoint.slot_at is None:
            return now
        return max(endpoint.slot_at + interval(endpoint), now - TENTH)

    def grant(self, endpoint: Endpoint, taken: Sequence[Delivery]) -> None:
        """These were claimed; called after it, so they have their tokens and no seats yet."""
        if not taken:
            return
        if endpoint.rate is not None:
            endpoint.slot_at = self.next_slot(endpoint) + (len(taken) - 1) * interval(endpoint)
        if endpoint.closed_until is not None:
            endpoint.closed_until = self.now() + LEASE
        if endpoint.most is not None:
            self.seats |= {one: one.token for one in taken}

    def slots(self, endpoint: Endpoint, most: int) -> list[datetime]:
        """What may be given away now, of what comes within two seconds."""
        first = max(self.next_slot(endpoint, counts=False), self.now())
        if first > self.now() + AHEAD:
            return []
        if endpoint.closed_until is not None:
            return [first]
        if endpoint.rate is None:
            return [first] * most
        fit = 1 + (self.now() + AHEAD - first) // interval(endpoint)
        return [first + number * interval(endpoint) for number in range(min(most, fit))]

    def rows(self) -> dict[int, Row]:
        return {one.id: (one.endpoint.seq, token) for one, token in self.seats.items() if self.sits(one)}

    # What outcomes say

    def hear(self, endpoint: Endpoint, news: Sequence[News], outbox: Outbox) -> None:
        """In the order in which they were sent; of another revision nothing counts."""
        self.lock(endpoint)
        if endpoint.status == "disabled":
            return
        closed = endpoint.closed_until
        for one in sorted(news, key=lambda each: each.started_at):
            if one.revision == endpoint.revision:
                self.learn(endpoint, one)
        if endpoint.closed_until is None and endpoint.troubles >= 10:
            self.trip(endpoint)
        if endpoint.closed_until != closed:
            look_at(outbox, endpoint, self.next_slot(endpoint))

    def learn(self, endpoint: Endpoint, one: News) -> None:
        decides = endpoint.closed_at is None or one.started_at >= endpoint.closed_at
        if one.outcome == "delivered":
            endpoint.failures, endpoint.failing_since = 0, None
        else:
            endpoint.failures += 1
            endpoint.failing_since = endpoint.failing_since or self.now()
        if one.outcome == "throttled" and one.hint is not None:
            until = self.now() + one.hint
            known = endpoint.closed_until
            self.close(endpoint, "retry_after", until if decides or known is None else max(until, known))
        elif one.outcome in TROUBLE:
            endpoint.troubles += 1
            if decides and endpoint.closed_until is not None:
                self.trip(endpoint)
        else:
            endpoint.troubles = 0
            if decides:
                reopen(endpoint)

    def trip(self, endpoint: Endpoint) -> None:
        self.close(endpoint, "failing", self.now() + timedelta(seconds=min(5 * 2**endpoint.trips, 60)))
        endpoint.trips += 1

    def close(self, endpoint: Endpoint, why: str, until: datetime) -> None:
        endpoint.closed_until, endpoint.closed_why = until, why
        endpoint.closed_at = endpoint.closed_at or self.now()


def interval(endpoint: Endpoint) -> timedelta:
    return timedelta(seconds=1 / (endpoint.rate or 1))


def reopen(endpoint: Endpoint) -> None:
    endpoint.closed_until = endpoint.closed_at = endpoint.closed_why = None
    endpoint.trips = 0


def look_at(outbox: Outbox, endpoint: Endpoint, at: datetime) -> None:
    """Only an endpoint that has something parked has a row."""
    if endpoint.seq in outbox.looks:
        outbox.set(endpoint.seq, "endpoint", endpoint.seq, at, at)
