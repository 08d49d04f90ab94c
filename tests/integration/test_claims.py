"""Claim, record, give back, cancel: what each answers, and what it leaves behind."""

from collections import Counter
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from app.core import deliveries as core
from app.core import events
from app.core.deliveries import Room
from app.domain.states import DeadReason, DeliveryStatus, Outcome
from app.domain.wakeups import Answer
from app.ledger.deliveries import Cancelled, Claim, Ending
from tests.clock import Clock
from tests.ledgers import (
    ROOM,
    TENANT,
    TERMS,
    a_delivery,
    an_endpoint,
    buried,
    claimed,
    deliveries_of,
    ending,
    row,
    rows,
    some_events,
)


def record(engine: Engine, *endings: Ending) -> dict[int, DeliveryStatus]:
    return core.record(engine, endings, max_age=TERMS.max_age)


def answers(engine: Engine, *ids: int, room: Room = ROOM) -> dict[int, Answer]:
    return core.claim(engine, ids, TERMS, room).looked.answers


def test_every_id_of_a_wake_up_gets_an_answer(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    due, leased, delivered, early = (deliveries_of(engine, event)[0] for event in some_events(engine, 4))
    claims = claimed(engine, leased, delivered, early)
    record(engine, ending(claims[1]), ending(claims[2], Outcome.FAILED, after=timedelta(seconds=5)))

    assert answers(engine, due, leased, delivered, early, 4711) == {
        due: Answer.TAKEN,
        leased: Answer.HELD,
        delivered: Answer.GONE,
        early: Answer.EARLY,
        4711: Answer.GONE,
    }


def test_an_early_wake_up_sets_the_look_to_the_horizon_before_its_time(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    record(engine, ending(claim, Outcome.FAILED, after=timedelta(minutes=5)))
    with engine.begin() as connection:  # as if it had been published
        connection.execute(text("UPDATE duehook.outbox SET look_at = duehook.now() + '1 hour'"))
    answers(engine, delivery)
    looks = rows(engine, "SELECT look_at FROM duehook.outbox")
    assert looks == [clock.now + timedelta(minutes=5) - timedelta(seconds=10)]


def test_room_is_given_by_endpoint_and_over_all_to_the_longest_due(engine: Engine, clock: Clock) -> None:
    first, second = an_endpoint(engine), an_endpoint(engine)
    for event in some_events(engine, 5):
        assert len(deliveries_of(engine, event)) == 2
    ids = rows(engine, "SELECT id FROM duehook.deliveries ORDER BY id")
    claimed_ = core.claim(engine, ids, TERMS, Room(total=5, each=4, of={second: 3}))

    assert Counter(claimed_.looked.answers.values()) == {Answer.TAKEN: 5, Answer.NO_ROOM: 5}
    by_endpoint = Counter(claim.endpoint for claim in claimed_.claims)
    assert by_endpoint[first] <= 4
    assert by_endpoint[second] <= 3
    assert {claim.delivery for claim in claimed_.claims} == set(ids[:5]), "the longest due first"


def test_an_endpoint_s_own_limit_holds_from_the_first_claim(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine, max_in_flight=2)
    ids = [deliveries_of(engine, event)[0] for event in some_events(engine, 5)]
    assert Counter(answers(engine, *ids).values()) == {Answer.TAKEN: 2, Answer.NO_ROOM: 3}


def test_what_has_no_room_is_looked_at_again_in_a_second_without_an_attempt(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.outbox SET look_at = duehook.now() + '1 minute'"))
    assert answers(engine, delivery, room=Room(total=0, each=1)) == {delivery: Answer.NO_ROOM}
    assert rows(engine, "SELECT look_at FROM duehook.outbox") == [clock.now + timedelta(seconds=1)]
    assert row(engine, "deliveries", "id", delivery)["attempt"] == 0


def test_a_claim_carries_what_the_send_needs(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    (event,) = some_events(engine)
    (claim,) = claimed(engine, *deliveries_of(engine, event))
    assert (claim.event, claim.endpoint, claim.revision, claim.attempt, claim.step) == (event, endpoint, 1, 1, 0)


def test_the_outbox_looks_at_the_lease_s_end_then_at_the_retry_then_no_more(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    looks = "SELECT look_at FROM duehook.outbox"
    (claim,) = claimed(engine, delivery)
    assert rows(engine, looks) == [clock.now + TERMS.lease]
    record(engine, ending(claim, Outcome.FAILED, after=timedelta(minutes=1)))
    assert rows(engine, looks) == [clock.now + timedelta(minutes=1) - timedelta(seconds=10)]
    clock.advance(minutes=1)
    (claim,) = claimed(engine, delivery)
    record(engine, ending(claim))
    assert rows(engine, looks) == []


def test_steps_count_outcomes_and_attempts_count_claims(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    core.give_back(engine, [claim])
    (claim,) = claimed(engine, delivery)
    assert (claim.attempt, claim.step) == (2, 0)
    record(engine, ending(claim, Outcome.FAILED))
    clock.advance(seconds=1)
    (claim,) = claimed(engine, delivery)
    assert (claim.attempt, claim.step) == (3, 1)


def test_what_is_given_back_is_due_again_with_no_attempt_recorded(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    claims = claimed(engine, delivery)
    assert core.give_back(engine, claims, after=timedelta(seconds=2)) == [delivery]
    assert core.give_back(engine, claims) == [], "a repeat finds nothing"
    assert answers(engine, delivery) == {delivery: Answer.EARLY}
    assert rows(engine, "SELECT count(*) FROM duehook.attempts") == [0]


def test_a_dead_delivery_is_a_dead_letter_with_its_reason(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    assert record(engine, buried(claim, DeadReason.REFUSED)) == {delivery: DeliveryStatus.DEAD}
    assert row(engine, "dead_letters", "delivery", delivery)["reason"] == "refused"


def test_a_retry_beyond_the_age_limit_buries_it_now(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    record(engine, ending(claim, Outcome.FAILED, after=TERMS.max_age))
    assert row(engine, "dead_letters", "delivery", delivery)["reason"] == "age_exhausted"


def test_a_claim_that_meets_one_too_old_buries_it(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    clock.advance(days=5)
    assert answers(engine, delivery) == {delivery: Answer.BURIED}
    assert row(engine, "dead_letters", "delivery", delivery)["reason"] == "age_exhausted"


def test_a_claim_that_meets_a_deleted_endpoint_cancels_and_a_disabled_one_waits(engine: Engine, clock: Clock) -> None:
    disabled, deleted = an_endpoint(engine), an_endpoint(engine)
    (event,) = some_events(engine)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE duehook.endpoints SET status = 'disabled', disabled_at = now() WHERE seq = :seq"),
            {"seq": disabled},
        )
        connection.execute(text("UPDATE duehook.endpoints SET deleted_at = now() WHERE seq = :seq"), {"seq": deleted})
    of = dict(zip((disabled, deleted), deliveries_of(engine, event), strict=True))
    assert answers(engine, *of.values()) == {of[disabled]: Answer.DISABLED, of[deleted]: Answer.CANCELLED}


def test_what_a_receiver_says_is_kept_whatever_bytes_it_is_made_of(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    ids = [deliveries_of(engine, event)[0] for event in some_events(engine, 3)]
    first, second, third = claimed(engine, *ids)
    told = record(
        engine,
        ending(
            first, Outcome.FAILED, status_code=500, excerpt=b"\0\xff\xed\xa0\x80", error="a\0b\ud800", location="\0"
        ),
        ending(second, Outcome.UNKNOWN, error="x" * 10_000, key_ids=("k1", "k2"), address="127.0.0.1"),
        ending(third),
    )
    assert len(told) == 3
    kept = row(engine, "attempts", "delivery", ids[0])
    assert (kept["excerpt"], kept["error"]) == (b"\0\xff\xed\xa0\x80", "a\N{REPLACEMENT CHARACTER}b?")
    assert row(engine, "attempts", "delivery", ids[1])["key_ids"] == ["k1", "k2"]


def test_one_ending_that_the_database_refuses_never_loses_the_others(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    claims = claimed(engine, *(deliveries_of(engine, event)[0] for event in some_events(engine, 50)))
    endings = [ending(claim) for claim in claims]
    endings[17] = ending(claims[17], Outcome.FAILED, status_code=99_999)  # no smallint
    told = record(engine, *endings)
    assert Counter(told.values()) == {DeliveryStatus.DELIVERED: 49, DeliveryStatus.SCHEDULED: 1}
    assert row(engine, "attempts", "delivery", claims[17].delivery)["error"] == "what came back can't be stored"


def cancel(engine: Engine, event: int) -> Cancelled:
    with engine.begin() as connection:
        cancelled = events.cancel(connection, TENANT, event)
    assert cancelled is not None
    return cancelled


@pytest.mark.parametrize(("outcome", "end"), [(Outcome.DELIVERED, "delivered"), (Outcome.FAILED, "cancelled")])
def test_a_cancel_spares_what_is_finished_and_ends_what_is_in_the_air_with_its_outcome(
    engine: Engine, clock: Clock, outcome: Outcome, end: str
) -> None:
    for _ in range(3):
        an_endpoint(engine)
    (event,) = some_events(engine)
    _, flying, finished = deliveries_of(engine, event)
    in_the_air, done = claimed(engine, flying, finished)
    record(engine, ending(done))

    assert cancel(engine, event) == Cancelled(cancelled=1, in_flight=1, finished=1)
    assert record(engine, ending(in_the_air, outcome)) == {flying: DeliveryStatus(end)}
    assert cancel(engine, event) == Cancelled(cancelled=0, in_flight=0, finished=3)


def test_a_cancelled_delivery_of_a_dead_worker_is_cancelled_by_the_claim_that_meets_it(
    engine: Engine, clock: Clock
) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine)
    (delivery,) = deliveries_of(engine, event)
    claimed(engine, delivery)
    cancel(engine, event)
    clock.advance(seconds=45)
    assert answers(engine, delivery) == {delivery: Answer.CANCELLED}
    assert rows(engine, "SELECT outcome FROM duehook.attempts") == ["abandoned"]


def test_what_is_given_back_after_a_cancel_is_cancelled(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine)
    claims = claimed(engine, *deliveries_of(engine, event))
    cancel(engine, event)
    core.give_back(engine, claims)
    assert rows(engine, "SELECT status FROM duehook.deliveries") == ["cancelled"]


def test_claims_of_one_call_share_a_token_that_no_other_call_has(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    ids = [deliveries_of(engine, event)[0] for event in some_events(engine, 4)]
    tokens: list[UUID] = [claim.token for claim in [*claimed(engine, *ids[:2]), *claimed(engine, *ids[2:])]]
    assert tokens[0] == tokens[1] != tokens[2] == tokens[3]


def test_a_cancel_reaches_what_a_fan_out_made_that_it_waited_for(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine, delay_seconds=60)
    assert deliveries_of(engine, event) == []
    clock.advance(seconds=50)
    assert events.fan_out(engine, [event]).answers == {event: Answer.TAKEN}
    assert cancel(engine, event) == Cancelled(cancelled=1, in_flight=0, finished=0)


def test_a_cancelled_event_is_never_fanned_out(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine, delay_seconds=60)
    assert cancel(engine, event) == Cancelled(cancelled=0, in_flight=0, finished=0)
    clock.advance(seconds=60)
    assert events.fan_out(engine, [event]).answers == {event: Answer.GONE}
    assert deliveries_of(engine, event) == []


def test_a_claim_names_its_delivery_once(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    claims: list[Claim] = list(core.claim(engine, [delivery, delivery], TERMS, ROOM).claims)
    assert [claim.delivery for claim in claims] == [delivery]
