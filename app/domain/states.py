"""The states things can be in, and what they are called everywhere."""

from enum import StrEnum


class ReservationStatus(StrEnum):
    """held → confirmed | released | expired; confirmed → released; nothing else."""

    HELD = "held"
    CONFIRMED = "confirmed"
    RELEASED = "released"
    EXPIRED = "expired"


class DeliveryStatus(StrEnum):
    """scheduled ⇄ leased → delivered | dead | cancelled; a terminal one is left only into a new round."""

    SCHEDULED = "scheduled"
    LEASED = "leased"
    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELLED = "cancelled"


OPEN = frozenset({DeliveryStatus.SCHEDULED, DeliveryStatus.LEASED})
TERMINAL = frozenset(DeliveryStatus) - OPEN


class Outcome(StrEnum):
    """What one attempt came to (contract, section 4); `abandoned` is a claim that ended without a record."""

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


class KeyScope(StrEnum):
    """What an API key may do."""

    PRODUCER = "producer"
    OPERATOR = "operator"
