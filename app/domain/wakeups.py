"""Wake-ups: what may be due, who looks at it, and what a look came to."""

from enum import StrEnum


class Kind(StrEnum):
    """What an outbox row refers to."""

    RESERVATION = "reservation"
    EVENT = "event"
    DELIVERY = "delivery"
    ENDPOINT = "endpoint"
    JOB = "job"


class Adapter(StrEnum):
    """Who notices that something is due. Both wake the same core."""

    QUEUE = "queue"  # the relay publishes wake-ups into the broker
    SCAN = "scan"  # a process takes due rows and acts on them itself; needs no broker


class Lane(StrEnum):
    """A queue with workers of its own, so that deliveries never hold up expiries."""

    EXPIRY = "expiry"
    DELIVERY = "delivery"
    UPKEEP = "upkeep"


LANE = {
    Kind.RESERVATION: Lane.EXPIRY,
    Kind.EVENT: Lane.DELIVERY,
    Kind.DELIVERY: Lane.DELIVERY,
    Kind.ENDPOINT: Lane.DELIVERY,
    Kind.JOB: Lane.UPKEEP,
}

# Acted on as soon as it is looked at: an event that waited is fanned out before it is due, so that its deliveries
# can be on a worker's timer by then. A job's look is when its step is due.
AT_ONCE = frozenset({Kind.EVENT, Kind.ENDPOINT, Kind.JOB})


class Answer(StrEnum):
    """What became of one id of a wake-up. Every id gets one; none of them is an error."""

    TAKEN = "taken"  # expired, fanned out or claimed by this call
    GONE = "gone"  # nothing left to do: a repeated wake-up, or somebody was faster
    HELD = "held"  # somebody else's lease runs; its end has an outbox row
    EARLY = "early"  # not due by the database's clock
    LOCKED = "locked"  # somebody's open transaction has it; looked at again in a second
    NO_ROOM = "no_room"  # its endpoint or the engine is full
    PACED = "paced"  # its endpoint has no slot: a limit, a hint, or trouble
    WAITING = "waiting"  # either, but it is this worker that waits, for there will be a place in a moment
    PUT_OFF = "put_off"  # nobody here has room for anything; looked at again in a second
    PARKED = "parked"  # either: its endpoint's own row wakes it
    DISABLED = "disabled"  # its endpoint is disabled
    CANCELLED = "cancelled"  # ended by this call: cancelled meanwhile, or its endpoint is deleted
    BURIED = "buried"  # ended by this call: too old
    SUSPECT = "suspect"  # has ended its workers, as far as one can tell: only a child process may send it
    POISONED = "poisoned"  # ended by this call: nobody who sent it has lived to tell
    FAILED = "failed"  # the database refused this one alone; its outbox row comes up again
