"""What goes in and comes out. Members that a later version of the service adds are passed over.

Statuses, outcomes and reasons are plain text for the same reason: a new one must not break who only looks on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
_MOST_DIGITS: Final = 4300  # that `int` takes


class Unset(Enum):
    """The value of an argument that was left out, where None means null."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _MOST_DIGITS else Decimal(digits)


class _WithData:
    __slots__ = ()
    raw_data: str

    @property
    def data(self) -> Any:
        """The data as values. Numbers with more digits than `int` takes are Decimal."""
        return json.loads(self.raw_data, parse_int=_integer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some of a list, and where it goes on."""

    data: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation(_WithData):
    """`status`: held, confirmed, released or expired; `raw_data` is the text that was sent, byte for byte."""

    id: str
    resource: str
    status: str
    version: int
    expires_at: datetime
    overdue: bool
    exclusive: bool
    raw_data: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event for `post_many`. Either `data`, any JSON value, or `raw_data`, its text, kept byte for byte."""

    type: str
    data: Any = UNSET
    raw_data: str | None = field(default=None, kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    deliver_at: datetime | None = field(default=None, kw_only=True)
    delay_seconds: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An event that was accepted; `deliveries` is 0 until it is fanned out."""

    id: str
    type: str
    key: str | None
    created_at: datetime
    due_at: datetime
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(_WithData):
    """An event as it is kept; `raw_data` is the text that was sent, byte for byte.

    Of one that was erased, since `erased_at`, it is `null`, whatever was sent.
    """

    id: str
    type: str
    key: str | None
    created_at: datetime
    due_at: datetime
    deliveries: int
    cancelled_at: datetime | None
    erased_at: datetime | None = None
    raw_data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """How many deliveries the cancel ended, how many are in the air, how many were finished before."""

    cancelled: int
    in_flight: int
    finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`headers` have masked values. `secret` is there in the answer to `create` alone."""

    id: str
    url: str
    event_types: tuple[str, ...]
    description: str | None
    headers: Mapping[str, str]
    signing: str
    status: str
    disabled_reason: str | None
    disabled_at: datetime | None
    flagged: bool
    rate_per_second: float | None
    max_in_flight: int | None
    retry_schedule: tuple[float, ...] | None
    paced_until: datetime | None = None
    paced_reason: str | None = None
    created_at: datetime
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """What a receiver verifies with."""

    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """The new secret, and when the last of the old ones ends."""

    secret: str | None = field(repr=False)
    previous_expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a delivery. `error` says why there was no answer, `excerpt` how the answer's body began."""

    number: int
    outcome: str
    status_code: int | None
    started_at: datetime
    ended_at: datetime | None
    address: str | None
    key_ids: tuple[str, ...]
    error: str | None
    excerpt: str | None
    location: str | None
    retry_after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event on its way to an endpoint. `attempts` are the last ones, in order; lists leave them out."""

    id: str
    event_id: str
    endpoint_id: str
    status: str
    attempt: int
    next_attempt_at: datetime | None
    parked: bool
    lease_until: datetime | None
    reason: str | None
    created_at: datetime
    updated_at: datetime
    delivered_at: datetime | None
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Delivery):
    """A delivery that is dead, and since when."""

    died_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """What a redrive would try again now; with `more` at least that many."""

    matching: int
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a job has done by now: deliveries re-opened and made, what was passed over by reason, why it failed."""

    reopened: int = 0
    made: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Long work; `status`: queued, running, or how it ended: completed, failed or cancelled."""

    id: str
    kind: str
    status: str
    done: int
    total: int | None
    result: JobResult | None
    created_at: datetime
    updated_at: datetime

    @property
    def has_ended(self) -> bool:
        """Whether it is neither queued nor running."""
        return self.status not in ("queued", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The process answers."""

    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Whether requests can be served, and each dependency by name."""

    status: str
    database: str
    broker: str

    @property
    def is_ready(self) -> bool:
        """Whether the service says that it is."""
        return self.status == "ready"
