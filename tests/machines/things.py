"""Endpoints, events and deliveries as the model has them: plain members, no rule but what belongs to one alone."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from tests.machines.ground import HORIZON, MAX_AGE, Row

CLOSED = ("delivered", "dead", "cancelled")
FULL = (5, 60, 300, 1800, 7200, 18000, 36000, 86400)
SHORT = (300, 3600, 21600, 86400)
HARDLY_CURABLE = ("rejected", "redirected", "refused", "blocked")
POISON, SUSPECTED = 5, 2


@dataclass(eq=False)
class Endpoint:
    """A subscriber, what is known of its pace, and when its secrets end (None: the current one)."""

    seq: int
    patterns: tuple[str, ...]
    schedule: tuple[float, ...] | None = None
    status: str = "enabled"
    reason: str | None = None
    revision: int = 1
    flagged: bool = False
    rate: float | None = None
    most: int | None = None
    deleted: bool = False
    slot_at: datetime | None = None
    closed_until: datetime | None = None
    closed_at: datetime | None = None
    closed_why: str | None = None
    trips: int = 0
    troubles: int = 0
    failures: int = 0
    failing_since: datetime | None = None
    secrets: list[datetime | None] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"end_{self.seq:x}"

    def wants(self, kind: str) -> bool:
        """By its patterns: a type, what is deeper than a prefix, or everything."""
        return any(
            pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))
            for pattern in self.patterns
        )

    def row(self) -> Row:
        return self.status, self.reason, self.revision, self.flagged, self.rate, self.most, self.deleted

    def pace_row(self) -> Row:
        closed = self.closed_until, self.closed_at, self.closed_why
        return self.slot_at, *closed, self.trips, self.troubles, self.failures, self.failing_since


@dataclass(eq=False)
class Event:
    """`seq` and `body` are taken over from the database when it is seen there first, and never again."""

    origin: str
    kind: str
    key: str | None
    due_at: datetime
    created_at: datetime
    request: str | None = None
    only_to: Endpoint | None = None
    not_to: Endpoint | None = None
    fanned_out_at: datetime | None = None
    cancelled_at: datetime | None = None
    seq: int = 0
    body: str = ""

    def is_for(self, endpoint: Endpoint) -> bool:
        if endpoint.deleted or endpoint is self.not_to:
            return False
        return endpoint.wants(self.kind) if self.only_to is None else endpoint is self.only_to

    @property
    def waits(self) -> bool:
        return self.fanned_out_at is None and self.cancelled_at is None

    def row(self) -> Row:
        times = self.due_at, self.created_at, self.fanned_out_at, self.cancelled_at
        return self.origin, self.kind, self.key, *times, self.body


@dataclass(eq=False)
class Delivery:
    """An event for an endpoint; `id` is taken over from the database."""

    event: Event
    endpoint: Endpoint
    next_attempt_at: datetime
    age_from: datetime
    id: int = 0
    status: str = "scheduled"
    attempt: int = 0
    step: int = 0
    round: int = 1
    abandoned: int = 0
    parked: bool = False
    cancel_requested: bool = False
    token: UUID | None = None
    claimed_at: datetime | None = None
    lease_until: datetime | None = None
    reason: str | None = None
    delivered_at: datetime | None = None
    died_at: datetime | None = None

    @property
    def is_closed(self) -> bool:
        return self.status in CLOSED

    @property
    def dies_at(self) -> datetime:
        return self.age_from + MAX_AGE

    def looks(self) -> tuple[datetime, datetime]:
        """When it is due, and when somebody must look."""
        if self.lease_until is not None:
            return self.lease_until, self.lease_until
        return (self.dies_at, self.dies_at) if self.parked else (self.next_attempt_at, self.next_attempt_at - HORIZON)

    def row(self) -> Row:
        counted = self.status, self.attempt, self.step, self.round, self.abandoned, self.parked, self.cancel_requested
        times = self.next_attempt_at, self.age_from, self.token, self.claimed_at, self.lease_until
        return self.event.seq, self.endpoint.seq, *counted, *times, self.reason, self.delivered_at


def follows(outcome: str, step: int, schedule: tuple[float, ...] | None) -> tuple[str, timedelta, str | None]:
    """The contract's table: the state after an outcome, how long until the next attempt, and why it died."""
    if outcome == "delivered":
        return "delivered", timedelta(), None
    if outcome == "gone":
        return "dead", timedelta(), "gone"
    steps = schedule if schedule is not None else SHORT if outcome in HARDLY_CURABLE else FULL
    if step < len(steps):
        return "scheduled", timedelta(seconds=steps[step]), None
    return "dead", timedelta(), outcome if outcome in HARDLY_CURABLE else "attempts_exhausted"
