"""Deliveries: claim, then send (elsewhere), then record by token; or give back what was never sent."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.core.sets import PAUSE, Looked, look
from app.domain.identity import public_id
from app.domain.states import DeliveryStatus
from app.domain.wakeups import Answer
from app.ledger import deliveries, suspects
from app.ledger.database import in_transaction, is_impatient, is_lost
from app.ledger.deliveries import Claim, Ending

log = structlog.get_logger("duehook.core")


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a claim holds, and how old a delivery gets."""

    lease: timedelta
    max_age: timedelta


@dataclass(frozen=True, slots=True)
class Room:
    """How many sends can start now: over all, to one endpoint, and to those where that differs."""

    total: int
    each: int
    of: Mapping[int, int] = field(default_factory=dict)
    suspects: int = 0  # of those that only a child process may send


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a wake-up of deliveries came to; `claims` must be sent and recorded, or given back."""

    claims: Sequence[Claim]
    looked: Looked


# Of those that found no room (their endpoints by id), who goes back, and for how long; the others wait here.
TurnAway = Callable[[Mapping[int, int]], Mapping[int, timedelta]]


def _everybody(crowded: Mapping[int, int]) -> Mapping[int, timedelta]:
    return dict.fromkeys(crowded, PAUSE)


def claim(engine: Engine, ids: Sequence[int], terms: Terms, room: Room, turn_away: TurnAway = _everybody) -> Claimed:
    """Claim what is due of `ids` and has room, under a token of its own; see `look` for the rest.

    The lease begins here and its end has an outbox row in the same transaction, so that a worker that dies from
    now on costs lateness and an attempt number, nothing else.
    """
    claims: dict[int, Claim] = {}  # by id: a transaction that is run again replaces what it found
    pauses: dict[int, timedelta] = {}

    def act(connection: Connection, some: Sequence[int]) -> dict[int, Answer]:
        elsewhere = len(claims.keys() - set(some))
        taken, answers, crowded = deliveries.claim(
            connection,
            some,
            token=uuid4(),
            lease=terms.lease,
            max_age=terms.max_age,
            room=room.total - elsewhere,
            room_each=room.each,
            room_of=room.of,
            room_suspects=room.suspects,
        )
        claims.update((each.delivery, each) for each in taken)
        pauses.update(turn_away(crowded))
        return answers | {each: Answer.WAITING for each in crowded if each not in pauses}

    looked = look(engine, ids, act, lambda each: pauses.get(each, PAUSE))
    for each in looked.of(Answer.POISONED):
        log.error("poisoned", delivery=public_id("dlv", each))
    return Claimed([claims[each] for each in looked.of(Answer.TAKEN)], looked)


def record(engine: Engine, endings: Sequence[Ending], *, max_age: timedelta) -> dict[int, DeliveryStatus]:
    """End claims with what came of them, in one statement; returns the states of those that the tokens ended.

    What is `leased` still was locked by somebody: record it again. What is missing belongs to somebody newer. One
    ending that the database refuses never loses the others: the set is halved until it is alone, and then kept
    without what the receiver said. Raises when the database is lost; repeating is safe, the same token records once.
    """
    try:
        return in_transaction(engine, lambda connection: deliveries.record(connection, endings, max_age=max_age))
    except DBAPIError as error:
        if is_lost(error):
            raise
        if len(endings) == 1 and is_impatient(error):
            return {endings[0].delivery: DeliveryStatus.LEASED}
        if len(endings) == 1:
            return _record_bare(engine, endings[0], error, max_age)
    middle = len(endings) // 2
    first = record(engine, endings[:middle], max_age=max_age)
    return first | record(engine, endings[middle:], max_age=max_age)


def _record_bare(engine: Engine, ending: Ending, error: DBAPIError, max_age: timedelta) -> dict[int, DeliveryStatus]:
    log.error("ending_refused", delivery=ending.delivery, error=type(error.orig).__name__)
    said: dict[str, Any] = dict.fromkeys(("status_code", "address", "excerpt", "location", "retry_after"))
    bare = replace(ending, **said, key_ids=(), error="what came back can't be stored")
    if bare == ending:
        raise error
    return record(engine, [bare], max_age=max_age)


def renew(engine: Engine, claims: Mapping[int, UUID], lease: timedelta) -> list[int]:
    """Let claims (token by delivery) hold for `lease` from now; returns those that are ours still, and were free."""
    return in_transaction(
        engine, lambda connection: deliveries.renew(connection, list(claims), list(claims.values()), lease)
    )


def give_back(engine: Engine, claims: Iterable[Claim], *, after: timedelta = timedelta()) -> list[int]:
    """End claims that were never sent: due again in `after`, same step, no attempt recorded; returns them."""
    by_token: list[tuple[UUID, list[int]]] = [
        (token, [each.delivery for each in group])
        for token, group in groupby(sorted(claims, key=attrgetter("token")), key=attrgetter("token"))
    ]

    def work(connection: Connection) -> list[int]:
        return [
            each for token, ids in by_token for each in deliveries.give_back(connection, ids, token=token, after=after)
        ]

    return in_transaction(engine, work)


def abandon(engine: Engine, claim: Claim, *, after: timedelta) -> bool:
    """End a claim whose sender has died, as the end of its lease would; whether it was still his. A repeat is not."""
    return in_transaction(
        engine,
        lambda connection: suspects.abandon(connection, claim.delivery, token=claim.token, after=after),
    )
