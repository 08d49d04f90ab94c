"""Claims in a row that nobody ended: how a delivery becomes a suspect, what that costs it, how it ends as poison."""

from collections import Counter
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.core import deliveries as core
from app.core.deliveries import Room
from app.core.sets import PAUSE
from app.core.suspects import AGAIN
from app.domain.states import Outcome
from app.domain.wakeups import Answer
from app.ledger import deliveries as ledger
from app.ledger.deliveries import Claim
from tests.clock import Clock
from tests.conftest import Connect
from tests.integration.test_claims import answers, cancel, record, some_deliveries
from tests.ledgers import ROOM, TERMS, a_delivery, claimed, ending, row, rows

CHILD = Room(total=0, each=1000, suspects=1)  # what a child process may claim


def abandon(engine: Engine, clock: Clock, *ids: int, times: int) -> None:
    """Claim these and let their leases end, so many times in a row."""
    for _ in range(times):
        room = Room(total=1000, each=1000, suspects=1000)
        assert len(core.claim(engine, ids, TERMS, room).claims) == len(ids)
        clock.advance(seconds=45)


def suspected(engine: Engine, clock: Clock) -> Claim:
    """A suspect in the hands of a child."""
    delivery = a_delivery(engine)
    abandon(engine, clock, delivery, times=2)
    (claim,) = core.claim(engine, [delivery], TERMS, CHILD).claims
    return claim


def of(engine: Engine, delivery: int) -> str:
    found = row(engine, "deliveries", "id", delivery)
    return "{status} attempt {attempt} step {step} abandoned {abandoned}".format_map(found)


def attempts(engine: Engine) -> Counter[str]:
    return Counter(rows(engine, "SELECT outcome FROM duehook.attempts"))


def test_after_two_abandoned_claims_in_a_row_an_ordinary_worker_gets_it_no_more_and_it_loses_no_attempt(
    engine: Engine, clock: Clock
) -> None:
    delivery = a_delivery(engine)
    abandon(engine, clock, delivery, times=1)
    (second,) = claimed(engine, delivery)
    assert second.abandoned == 1
    clock.advance(seconds=45)
    before = of(engine, delivery)
    assert answers(engine, delivery) == {delivery: Answer.SUSPECT}
    assert of(engine, delivery) == before
    assert row(engine, "outbox", "ref", delivery)["look_at"] <= clock.now


def test_a_suspect_that_waits_is_looked_at_again_in_a_second(engine: Engine, clock: Clock) -> None:
    claim = suspected(engine, clock)
    core.abandon(engine, claim, after=TERMS.lease)
    clock.advance(seconds=45)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE duehook.outbox SET look_at = duehook.now() + interval '1 h', publications = 1"
        )
    assert answers(engine, claim.delivery) == {claim.delivery: Answer.SUSPECT}
    assert row(engine, "outbox", "ref", claim.delivery)["look_at"] == clock.now + PAUSE


def test_suspects_have_room_of_their_own_and_so_has_everybody_else(engine: Engine, clock: Clock) -> None:
    ids = some_deliveries(engine, 8)
    abandon(engine, clock, *ids[:4], times=2)
    got = answers(engine, *ids, room=Room(total=3, each=1000, suspects=2))
    assert Counter(got[each] for each in ids[:4]) == {Answer.TAKEN: 2, Answer.NO_ROOM: 2}
    assert Counter(got[each] for each in ids[4:]) == {Answer.TAKEN: 3, Answer.NO_ROOM: 1}


def test_suspects_take_of_their_endpoint_s_places_what_the_others_leave(engine: Engine, clock: Clock) -> None:
    ids = some_deliveries(engine, 4)
    abandon(engine, clock, *ids[:2], times=2)
    got = answers(engine, *ids, room=Room(total=1000, each=3, suspects=2))
    assert Counter(got[each] for each in ids[:2]) == {Answer.TAKEN: 1, Answer.NO_ROOM: 1}
    assert Counter(got[each] for each in ids[2:]) == {Answer.TAKEN: 2}


def test_suspects_that_wait_for_a_child_take_no_place_from_others(engine: Engine, clock: Clock) -> None:
    ids = some_deliveries(engine, 6)
    abandon(engine, clock, *ids[:3], times=2)
    got = answers(engine, *ids, room=Room(total=3, each=3))
    assert [got[each] for each in ids] == [Answer.SUSPECT] * 3 + [Answer.TAKEN] * 3


@pytest.mark.parametrize("room", [ROOM, CHILD, Room(total=0, each=0)])
def test_five_abandoned_claims_in_a_row_are_the_end_whoever_looks(engine: Engine, clock: Clock, room: Room) -> None:
    delivery = a_delivery(engine)
    abandon(engine, clock, delivery, times=5)
    assert answers(engine, delivery, room=room) == {delivery: Answer.POISONED}
    assert of(engine, delivery) == "dead attempt 5 step 0 abandoned 5"
    assert rows(engine, "SELECT reason FROM duehook.dead_letters") == ["poison"]
    assert attempts(engine) == {"abandoned": 5}
    assert answers(engine, delivery) == {delivery: Answer.GONE}


def test_one_recorded_outcome_clears_it(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    abandon(engine, clock, delivery, times=4)
    (claim,) = core.claim(engine, [delivery], TERMS, CHILD).claims
    assert claim.abandoned == 4
    record(engine, ending(claim, Outcome.FAILED))
    abandon(engine, clock, delivery, times=1)
    assert claimed(engine, delivery)[0].abandoned == 1


def test_what_is_given_back_stays_as_suspect_as_it_was(engine: Engine, clock: Clock) -> None:
    claim = suspected(engine, clock)
    core.give_back(engine, [claim])
    assert answers(engine, claim.delivery) == {claim.delivery: Answer.SUSPECT}
    assert of(engine, claim.delivery) == "scheduled attempt 3 step 0 abandoned 2"


def test_a_claim_whose_sender_died_ends_at_once_and_counts(engine: Engine, clock: Clock) -> None:
    claim = suspected(engine, clock)
    assert core.abandon(engine, claim, after=AGAIN)
    assert of(engine, claim.delivery) == "scheduled attempt 3 step 0 abandoned 3"
    assert attempts(engine) == {"abandoned": 3}
    assert row(engine, "outbox", "ref", claim.delivery)["due_at"] == clock.now + AGAIN
    assert not core.abandon(engine, claim, after=AGAIN), "a repeat"
    assert of(engine, claim.delivery) == "scheduled attempt 3 step 0 abandoned 3"


def test_a_recorded_outcome_stands_whoever_thinks_its_sender_died_before(engine: Engine, clock: Clock) -> None:
    claim = suspected(engine, clock)
    record(engine, ending(claim))
    assert not core.abandon(engine, claim, after=AGAIN)
    assert of(engine, claim.delivery) == "delivered attempt 3 step 1 abandoned 0"


def test_a_newer_claim_is_not_ended_for_the_death_of_an_older_one_s_sender(engine: Engine, clock: Clock) -> None:
    older = suspected(engine, clock)
    clock.advance(seconds=45)
    core.claim(engine, [older.delivery], TERMS, CHILD)
    assert not core.abandon(engine, older, after=AGAIN)
    assert of(engine, older.delivery) == "leased attempt 4 step 0 abandoned 3"
    assert attempts(engine) == {"abandoned": 3}


def test_what_was_cancelled_in_the_hands_of_one_that_died_ends_as_cancelled(engine: Engine, clock: Clock) -> None:
    claim = suspected(engine, clock)
    cancel(engine, claim.event)
    assert core.abandon(engine, claim, after=AGAIN)
    assert of(engine, claim.delivery) == "cancelled attempt 3 step 0 abandoned 3"


def test_two_who_count_one_death_count_it_once(engine: Engine, clock: Clock, connect: Connect) -> None:
    """The lease has ended too: whoever is first, the claim or the parent, the other finds the token gone."""
    claim = suspected(engine, clock)
    clock.advance(seconds=45)
    with engine.begin() as first:
        taken, _, _ = ledger.claim(
            first,
            [claim.delivery],
            token=UUID(int=7),
            lease=TERMS.lease,
            max_age=TERMS.max_age,
            room=1,
            room_each=1,
            room_of={},
            allowed={},
            room_suspects=1,
        )
    assert [each.abandoned for each in taken] == [3]
    assert not core.abandon(engine, claim, after=AGAIN)
    assert attempts(engine) == {"abandoned": 3}
