"""The five races that this product exists for, each stopped where it is decided."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from app.core import deliveries as core
from app.core import reservations
from app.core.reservations import Hold, Refused
from app.domain.states import DeliveryStatus, Outcome
from app.domain.wakeups import Answer
from app.ledger import by_hand
from app.ledger import deliveries as ledger
from app.ledger.reservations import Reservation
from tests.clock import Clock
from tests.ledgers import ROOM, TENANT, TERMS, a_delivery, claimed, ending, row, rows
from tests.races.harness import Race, race
from tests.waiting import wait_until

MAX_AGE = TERMS.max_age


@pytest.fixture
def racing(database_url: str, clock: Clock) -> Iterator[Race]:
    with race(database_url) as running:
        yield running


def held(engine: Engine, **window: float) -> tuple[str, int]:
    with engine.begin() as connection:
        made = reservations.hold(connection, TENANT, Hold("truck 7", hold_seconds=timedelta(**window).total_seconds()))
    assert isinstance(made, reservations.Held)
    (seq,) = rows(engine, "SELECT seq FROM duehook.reservations")
    return made.reservation.id, seq


def confirm(reservation: str) -> Callable[[Engine], Reservation | Refused | None]:
    def work(engine: Engine) -> Reservation | Refused | None:
        with engine.begin() as connection:
            return reservations.confirm(connection, TENANT, reservation)

    return work


def types_of_events(engine: Engine) -> list[str]:
    return rows(engine, "SELECT type FROM duehook.events ORDER BY seq")


def test_two_expiries_of_one_reservation_expire_it_once(engine: Engine, racing: Race, clock: Clock) -> None:
    _, seq = held(engine, seconds=5)
    clock.advance(seconds=5)
    first = racing.actor("first", lambda e: reservations.expire(e, [seq])).until("before commit")
    second = racing.actor("second", lambda e: reservations.expire(e, [seq]))

    assert second.finish().answers == {seq: Answer.LOCKED}, "it passes over what somebody is expiring"
    assert first.finish().answers == {seq: Answer.TAKEN}
    assert reservations.expire(engine, [seq]).answers == {seq: Answer.GONE}
    assert types_of_events(engine) == ["reservation.expired"]


def test_an_expiry_that_comes_while_a_confirm_is_open_leaves_it_alone(
    engine: Engine, racing: Race, clock: Clock
) -> None:
    reservation, seq = held(engine, seconds=5)
    confirming = racing.actor("confirm", confirm(reservation)).until("before commit")
    clock.advance(seconds=5)

    expiring = racing.actor("expire", lambda e: reservations.expire(e, [seq]))
    looked = expiring.finish()
    assert looked.answers == {seq: Answer.LOCKED}
    assert looked.again == [seq], "the open confirm holds the outbox row too: the worker's own timer looks again"

    assert confirming.finish().status == "confirmed"
    assert reservations.expire(engine, [seq]).answers == {seq: Answer.GONE}
    assert types_of_events(engine) == ["reservation.confirmed"]


def test_a_confirm_that_waits_for_an_expiry_loses(engine: Engine, racing: Race, clock: Clock) -> None:
    reservation, seq = held(engine, seconds=5)
    clock.advance(seconds=5)
    expiring = racing.actor("expire", lambda e: reservations.expire(e, [seq])).until("before commit")
    confirming = racing.actor("confirm", confirm(reservation)).until_blocked()

    assert expiring.finish().answers == {seq: Answer.TAKEN}
    assert isinstance(confirming.finish(), Refused)
    assert types_of_events(engine) == ["reservation.expired"]


def test_a_confirm_queued_behind_a_rollback_past_its_time_loses_and_expires_it(
    engine: Engine, racing: Race, clock: Clock
) -> None:
    reservation, _ = held(engine, seconds=5)
    other = racing.actor("other", confirm(reservation)).until("before commit")
    confirming = racing.actor("confirm", confirm(reservation)).until_blocked()
    clock.advance(seconds=5)
    other.kill()

    assert isinstance(confirming.finish(), Refused), "the clock is read after the lock, not when it began to wait"
    assert row(engine, "reservations", "id", reservation)["status"] == "expired", "on the spot, no worker needed"
    assert types_of_events(engine) == ["reservation.expired"]


def test_a_lease_that_ends_in_a_slow_request_goes_to_one_new_owner(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (slow,) = claimed(engine, delivery)
    assert core.claim(engine, [delivery], TERMS, ROOM).looked.answers == {delivery: Answer.HELD}
    clock.advance(seconds=45)
    (newer,) = claimed(engine, delivery)
    assert (newer.attempt, newer.step) == (2, 0), "an abandoned claim counts and repeats its step"

    assert core.record(engine, [ending(slow)], max_age=MAX_AGE) == {}, "somebody newer owns it"
    assert row(engine, "deliveries", "id", delivery)["status"] == "leased"
    assert core.record(engine, [ending(newer, Outcome.FAILED)], max_age=MAX_AGE) == {delivery: DeliveryStatus.SCHEDULED}
    attempts = rows(engine, "SELECT number || ' ' || outcome FROM duehook.attempts ORDER BY number")
    assert attempts == ["1 abandoned", "2 failed"]


def test_an_outcome_that_meets_the_lapsed_claim_of_another_is_refused(
    engine: Engine, racing: Race, clock: Clock
) -> None:
    delivery = a_delivery(engine)
    (slow,) = claimed(engine, delivery)
    clock.advance(seconds=45)
    claiming = racing.actor("claim", lambda e: core.claim(e, [delivery], TERMS, ROOM)).until("before commit")
    recording = racing.actor("record", lambda e: core.record(e, [ending(slow)], max_age=MAX_AGE))

    assert recording.finish() == {delivery: DeliveryStatus.LEASED}, "nobody knows yet whose it will be"
    assert len(claiming.finish().claims) == 1
    assert core.record(engine, [ending(slow)], max_age=MAX_AGE) == {}
    assert row(engine, "deliveries", "id", delivery)["status"] == "leased"
    assert rows(engine, "SELECT outcome FROM duehook.attempts") == ["abandoned"]


def test_a_claim_passes_over_a_lapsed_lease_whose_owner_is_recording(
    engine: Engine, racing: Race, clock: Clock
) -> None:
    delivery = a_delivery(engine)
    (slow,) = claimed(engine, delivery)
    clock.advance(seconds=45)
    recording = racing.actor("record", lambda e: core.record(e, [ending(slow)], max_age=MAX_AGE)).until("before commit")

    assert core.claim(engine, [delivery], TERMS, ROOM).looked.answers == {delivery: Answer.LOCKED}
    assert recording.finish() == {delivery: DeliveryStatus.DELIVERED}, "nobody re-claimed it, so it still records"
    assert core.claim(engine, [delivery], TERMS, ROOM).looked.answers == {delivery: Answer.GONE}


def test_applied_before_a_timeout_was_seen_is_unknown_and_goes_again_as_the_same_event(
    engine: Engine, clock: Clock
) -> None:
    delivery = a_delivery(engine)
    (first,) = claimed(engine, delivery)
    core.record(engine, [ending(first, Outcome.UNKNOWN, after=timedelta(seconds=5))], max_age=MAX_AGE)
    assert core.claim(engine, [delivery], TERMS, ROOM).looked.answers == {delivery: Answer.EARLY}

    clock.advance(seconds=5)
    (second,) = claimed(engine, delivery)
    assert (second.event, second.attempt, second.step) == (first.event, 2, 1)


def test_an_old_retry_after_a_recorded_success_finds_nothing(engine: Engine, racing: Race, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    recording = racing.actor("record", lambda e: core.record(e, [ending(claim)], max_age=MAX_AGE))
    recording.until("before commit")
    retry = racing.actor("retry", lambda e: core.claim(e, [delivery], TERMS, ROOM))

    assert retry.finish().looked.answers == {delivery: Answer.LOCKED}
    recording.finish()
    assert core.claim(engine, [delivery], TERMS, ROOM).looked.answers == {delivery: Answer.GONE}
    late = ending(claim, Outcome.FAILED)
    assert core.record(engine, [late], max_age=MAX_AGE) == {}
    assert row(engine, "deliveries", "id", delivery)["status"] == "delivered"


def test_a_commit_whose_answer_is_lost_is_recorded_once(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    told = ending(claim, Outcome.FAILED, after=timedelta(seconds=5))
    assert core.record(engine, [told], max_age=MAX_AGE)
    assert core.record(engine, [told], max_age=MAX_AGE) == {}
    assert rows(engine, "SELECT step FROM duehook.deliveries") == [1]
    assert rows(engine, "SELECT count(*) FROM duehook.attempts") == [1]


def test_two_claims_of_one_delivery_give_it_to_one(engine: Engine, racing: Race, clock: Clock) -> None:
    delivery = a_delivery(engine)
    first = racing.actor("first", lambda e: core.claim(e, [delivery], TERMS, ROOM)).until("before commit")
    second = racing.actor("second", lambda e: core.claim(e, [delivery], TERMS, ROOM))
    assert second.finish().looked.answers == {delivery: Answer.LOCKED}
    assert len(first.finish().claims) == 1


def test_a_claim_that_dies_uncommitted_never_happened(engine: Engine, racing: Race, clock: Clock) -> None:
    delivery = a_delivery(engine)
    dying = racing.actor("dying", lambda e: core.claim(e, [delivery], TERMS, ROOM)).until("before commit")
    dying.kill()
    wait_until(lambda: core.claim(engine, [delivery], TERMS, ROOM).claims, what="the row is free")
    assert row(engine, "deliveries", "id", delivery)["attempt"] == 1


def test_a_record_with_a_made_up_token_changes_nothing(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    forged = ledger.Claim(claim.delivery, uuid4(), claim.event, claim.endpoint, claim.revision, 1, 0)
    assert core.record(engine, [ending(forged)], max_age=MAX_AGE) == {}
    assert core.give_back(engine, [forged]) == []
    assert row(engine, "deliveries", "id", delivery)["status"] == "leased"


def test_a_retry_that_waits_for_an_outcome_s_commit_re_opens_what_it_finds_then(
    engine: Engine, racing: Race, clock: Clock
) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    recording = racing.actor("record", lambda e: core.record(e, [ending(claim)], max_age=MAX_AGE)).until(
        "before commit"
    )

    def retry(engine: Engine) -> object:
        with engine.begin() as connection:
            return by_hand.reopen(connection, TENANT, [delivery])

    retrying = racing.actor("retry", retry).until_blocked()
    recording.finish()
    assert retrying.finish() == {delivery: by_hand.Reopening.OPEN}
    now = row(engine, "deliveries", "id", delivery)
    assert (now["status"], now["round"], now["token"]) == ("scheduled", 2, None)
