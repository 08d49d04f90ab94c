"""Events: accept, fan out when due, cancel."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine

from app.core.sets import Looked, look, settled
from app.domain.wakeups import Answer
from app.ledger import deliveries, events
from app.ledger.deliveries import Cancelled
from app.ledger.events import Event, Made, NewEvent


@dataclass(frozen=True, slots=True)
class Accepted:
    """The event as it is now; `made` is false when the same request had made it before."""

    id: str
    type: str
    key: str | None
    created_at: datetime
    due_at: datetime
    deliveries: int
    made: bool


@dataclass(frozen=True, slots=True)
class KeyTaken:
    """The key at `position` belongs to `event`, which was asked for differently; nothing of the batch is stored."""

    position: int
    event: Event


def accept(connection: Connection, tenant: str, asked: Sequence[NewEvent]) -> list[Accepted] | KeyTaken:
    """Store events in order with their deliveries, all or none: on `KeyTaken` the caller must roll back."""
    accepted = []
    for outcome in accept_each(connection, tenant, asked):
        if isinstance(outcome, KeyTaken):
            return outcome
        accepted.append(outcome)
    return accepted


def accept_each(connection: Connection, tenant: str, asked: Sequence[NewEvent]) -> list[Accepted | KeyTaken]:
    """Store events in order with their deliveries, but not those whose key is taken; of two with one key the first."""
    made: dict[int, Made] = {}
    existing: dict[str, Event] = {}
    left = list(range(len(asked)))
    while left:  # again for those whose key was freed between the insert that met it and the look for its event
        inserted = events.insert(connection, tenant, [asked[position] for position in left])
        made |= {left[place]: event for place, event in inserted.items()}
        keys = [event.key for position, event in enumerate(asked) if position not in made and event.key is not None]
        existing = events.by_key(connection, tenant, keys) if keys else {}
        left = [position for position in left if position not in made and asked[position].key not in existing]
    outcomes: list[Accepted | KeyTaken] = []
    for position, wanted in enumerate(asked):
        if position in made:
            outcomes.append(_accepted(wanted, made[position], made=True))
            continue
        assert wanted.key is not None
        event = existing[wanted.key]
        if (event.type, event.request) != (wanted.type, wanted.request) or not event.has(wanted.data):
            outcomes.append(KeyTaken(position, event))
        else:
            outcomes.append(_accepted(wanted, event, made=False))
    return outcomes


def _accepted(wanted: NewEvent, event: Made | Event, *, made: bool) -> Accepted:
    return Accepted(event.id, wanted.type, wanted.key, event.created_at, event.due_at, event.deliveries, made)


def fan_out(engine: Engine, seqs: Sequence[int]) -> Looked:
    """Fan out what has waited for its time, to the endpoints of this moment; see `look`."""
    return look(engine, seqs, _fan_out)


def _fan_out(connection: Connection, seqs: Sequence[int]) -> dict[int, Answer]:
    done = set(events.fan_out(connection, seqs))
    rest = [seq for seq in seqs if seq not in done]
    return settled(seqs, done, events.still_waiting(connection, rest) if rest else {})


def cancel(connection: Connection, tenant: str, seq: int) -> Cancelled | None:
    """End every delivery of an event that is neither terminal nor in the air; None when there is no such event.

    One in the air ends as delivered or, whatever else comes back, as cancelled. A repeat counts again and changes
    nothing.
    """
    if not events.lock(connection, tenant, seq):
        return None
    events.cancel(connection, seq)
    return deliveries.cancel_of_event(connection, seq)
