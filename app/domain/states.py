"""The closed sets: what a reservation or a delivery can be, how an attempt can end, why a delivery dies.

The values are what the API shows and the database stores.
"""

from enum import StrEnum
from typing import Final


class ReservationStatus(StrEnum):
    """`held → confirmed | released | expired`, `confirmed → released`, and nothing else."""

    HELD = "held"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    EXPIRED = "expired"


class DeliveryStatus(StrEnum):
    """`scheduled ⇄ leased` until one of the terminal three; only an explicit re-opening leaves those."""

    SCHEDULED = "scheduled"
    LEASED = "leased"
    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELLED = "cancelled"


OPEN: Final = frozenset({DeliveryStatus.SCHEDULED, DeliveryStatus.LEASED})
TERMINAL: Final = frozenset({DeliveryStatus.DELIVERED, DeliveryStatus.DEAD, DeliveryStatus.CANCELLED})


class Outcome(StrEnum):
    """How one attempt ended; `abandoned` is the claim that nobody recorded an end for."""

    DELIVERED = "delivered"
    GONE = "gone"
    REJECTED = "rejected"
    REDIRECTED = "redirected"
    REFUSED = "refused"
    THROTTLED = "throttled"
    FAILED = "failed"
    UNREACHED = "unreached"
    UNKNOWN = "unknown"
    BLOCKED = "blocked"
    ABANDONED = "abandoned"


class DeadReason(StrEnum):
    """Why a delivery is a dead letter."""

    GONE = "gone"
    REJECTED = "rejected"
    REDIRECTED = "redirected"
    REFUSED = "refused"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    AGE_EXHAUSTED = "age_exhausted"
    BLOCKED = "blocked"
    POISON = "poison"


class JobKind(StrEnum):
    """Long work that is done in steps."""

    REDRIVE = "redrive"
    REPLAY = "replay"
    ERASE_EVENT = "erase_event"
    ERASE_TENANT = "erase_tenant"


class JobStatus(StrEnum):
    """`queued → running` until one of the three ends; nothing leaves those."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_JOB: Final = frozenset({JobStatus.QUEUED, JobStatus.RUNNING})


class KeyScope(StrEnum):
    """What an API key may do: feed events and reservations in, or everything its tenant can."""

    PRODUCER = "producer"
    OPERATOR = "operator"
