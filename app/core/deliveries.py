"""Deliveries: claim, then send (elsewhere), then record by token; or give back what was never sent."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app import metrics
from app.core.sets import Looked, look
from app.domain.identity import public_id
from app.domain.pacing import allowance, granted
from app.domain.states import DeadReason, DeliveryStatus
from app.domain.wakeups import Answer
from app.ledger import deliveries, paces, suspects
from app.ledger.database import in_transaction, is_impatient, is_lost
from app.ledger.deliveries import TURNED_AWAY, Claim, Ending

log = structlog.get_logger("duehook.core")
DEAD_OF = {Answer.BURIED: DeadReason.AGE_EXHAUSTED, Answer.POISONED: DeadReason.POISON}


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
    """What a wake-up of deliveries came to; `claims` must be sent and recorded, or given back.

    `turned_away` are due, but their endpoint (by id) takes nothing now; `slots` are when such endpoints may have one,
    as far as their pace says. They must be parked, or tried again.
    """

    claims: Sequence[Claim]
    looked: Looked
    turned_away: Mapping[int, int] = field(default_factory=dict)
    slots: Mapping[int, datetime] = field(default_factory=dict)


def claim(engine: Engine, ids: Sequence[int], terms: Terms, room: Room) -> Claimed:
    """Claim what is due of `ids` and has room, under a token of its own; see `look` for the rest.

    The lease begins here and its end has an outbox row in the same transaction, so that a worker that dies from
    now on costs lateness and an attempt number, nothing else.
    """
    claiming = _Claiming(terms, room)
    looked = look(engine, ids, claiming.claim)
    if paced := [each for each, answer in looked.answers.items() if answer is Answer.PACED]:
        # Anew: a pace is locked before its deliveries, and these are locked until their transaction ends.
        second = look(engine, paced, claiming.claim_paced)
        looked = Looked(looked.answers | second.answers, looked.again + second.again)
    for each in looked.of(Answer.POISONED):
        log.error("poisoned", delivery=public_id("dlv", each))
    claims = [claiming.claims[each] for each in looked.of(Answer.TAKEN)]
    for answer, reason in DEAD_OF.items():
        metrics.DEAD.labels(reason.value).inc(len(looked.of(answer)))
    metrics.LEASES_LOST.inc(sum(each.lapsed for each in claims))
    away = {each: claiming.endpoints[each] for each, answer in looked.answers.items() if answer in TURNED_AWAY}
    return Claimed(claims, looked, away, claiming.slots)


class _Claiming:
    """Two transactions' worth of claims, by id: one that is run again replaces what it found."""

    def __init__(self, terms: Terms, room: Room) -> None:
        self._terms = terms
        self._room = room
        self.claims: dict[int, Claim] = {}
        self.endpoints: dict[int, int] = {}
        self.slots: dict[int, datetime] = {}

    def claim(
        self, connection: Connection, some: Sequence[int], allowed: Mapping[int, int] | None = None
    ) -> dict[int, Answer]:
        for each in some:
            self.claims.pop(each, None)
        taken, answers, turned_away = deliveries.claim(
            connection,
            some,
            token=uuid4(),
            lease=self._terms.lease,
            max_age=self._terms.max_age,
            room=self._room.total - sum(not each.suspect for each in self.claims.values()),
            room_each=self._room.each,
            room_of=self._room.of,
            room_suspects=self._room.suspects - sum(each.suspect for each in self.claims.values()),
            allowed=allowed or {},
        )
        self.claims.update((each.delivery, each) for each in taken)
        self.endpoints.update(turned_away)
        return answers

    def claim_paced(self, connection: Connection, some: Sequence[int]) -> dict[int, Answer]:
        locked = paces.lock(connection, {self.endpoints[each] for each in some})
        answers = self.claim(connection, some, {seq: allowance(one.pace) for seq, one in locked.items()})
        taken = [self.claims[each] for each in some if each in self.claims]
        number = Counter(one.endpoint for one in taken)
        after = {seq: granted(one.pace, number[seq], self._terms.lease) for seq, one in locked.items()}
        paces.save(connection, {seq: pace for seq, pace in after.items() if number[seq]})
        # What somebody ended as we passed over its lock has no pace to keep any more, and is taken without one.
        limited = {seq for seq, pace in after.items() if pace.max_in_flight is not None}
        seated = [one for one in taken if one.endpoint in limited]
        paces.seat(
            connection,
            [one.delivery for one in seated],
            [one.endpoint for one in seated],
            [one.token for one in seated],
        )
        self.slots.update({seq: pace.next_slot for seq, pace in after.items()})
        return answers


def park(engine: Engine, ids: Sequence[int]) -> Looked:
    """Have due deliveries wait for their endpoint; one that can't be parked just now is looked at in a second."""

    def act(connection: Connection, some: Sequence[int]) -> dict[int, Answer]:
        parked = set(deliveries.park(connection, some))
        return {each: Answer.PARKED if each in parked else Answer.PUT_OFF for each in some}

    return look(engine, ids, act)


def put_off(engine: Engine, ids: Sequence[int]) -> Looked:
    """Have these looked at in a second: nobody here has room for anything."""
    return look(engine, ids, lambda _, some: dict.fromkeys(some, Answer.PUT_OFF))


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
    bare = ending._replace(**said, key_ids=(), error="what came back can't be stored")
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
