"""Claim, record, give back, cancel: what each answers, and what it leaves behind."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.event import listens_for

from app.core import deliveries as core
from app.core import endpoints, events
from app.core.deliveries import Room
from app.domain.states import DeadReason, DeliveryStatus, Outcome
from app.domain.wakeups import Answer
from app.ledger import by_hand
from app.ledger.database import SESSION, connect_engine
from app.ledger.deliveries import Cancelled, Claim, Ending, cancel_of_event
from tests.clock import Clock
from tests.conftest import Connect
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
from tests.races.harness import Race, race
from tests.recording import slow_recording


@pytest.fixture
def racing(database_url: str, clock: Clock) -> Iterator[Race]:
    with race(database_url) as running:
        yield running


def record(engine: Engine, *endings: Ending) -> dict[int, DeliveryStatus]:
    return core.record(engine, endings, max_age=TERMS.max_age)


def renew(engine: Engine, *claims: Claim) -> list[int]:
    return sorted(core.renew(engine, {claim.delivery: claim.token for claim in claims}, TERMS.lease))


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
    assert Counter(answers(engine, *ids).values()) == {Answer.TAKEN: 2, Answer.PACED: 3}


def test_what_has_no_room_is_turned_away_without_an_attempt_and_parked_or_put_off(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.outbox SET look_at = duehook.now() + '1 minute', publications = 1"))
    claim = core.claim(engine, [delivery], TERMS, Room(total=0, each=1))
    assert (claim.looked.answers, list(claim.turned_away)) == ({delivery: Answer.NO_ROOM}, [delivery])
    assert rows(engine, "SELECT look_at FROM duehook.outbox") == [clock.now + timedelta(minutes=1)], "somebody holds it"
    assert core.put_off(engine, [delivery]).answers == {delivery: Answer.PUT_OFF}
    assert rows(engine, "SELECT look_at FROM duehook.outbox") == [clock.now + timedelta(seconds=1)]
    assert core.park(engine, [delivery]).answers == {delivery: Answer.PARKED}
    assert row(engine, "outbox", "ref", delivery)["look_at"] == clock.now + TERMS.max_age
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


def test_what_is_given_back_keeps_its_step(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    record(engine, ending(claim, Outcome.FAILED))
    core.give_back(engine, claimed(engine, delivery))
    now = row(engine, "deliveries", "id", delivery)
    assert (now["step"], now["attempt"], now["abandoned"]) == (1, 2, 0)


def test_a_retry_of_what_waits_keeps_its_step_round_and_age(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    record(engine, ending(claim, Outcome.FAILED, after=timedelta(minutes=5)))
    began = clock.now
    clock.advance(seconds=10)
    with engine.begin() as connection:
        assert by_hand.reopen(connection, TENANT, [delivery]) == {delivery: by_hand.Reopening.OPEN}
    now = row(engine, "deliveries", "id", delivery)
    assert (now["step"], now["round"], now["attempt"]) == (1, 1, 1)
    assert (now["age_from"], now["next_attempt_at"]) == (began, clock.now)


def test_a_retry_of_what_has_ended_begins_a_round_with_its_schedule_and_age_anew(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    record(engine, buried(claim, DeadReason.REFUSED))
    clock.advance(days=20)
    with engine.begin() as connection:
        assert by_hand.reopen(connection, TENANT, [delivery]) == {delivery: by_hand.Reopening.OPEN}
    now = row(engine, "deliveries", "id", delivery)
    assert (now["step"], now["round"], now["attempt"], now["age_from"]) == (0, 2, 1, clock.now)


def test_nobody_retries_or_cancels_the_delivery_of_another_tenant(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    before = row(engine, "deliveries", "id", delivery)
    clock.advance(seconds=1)
    with engine.begin() as connection:
        assert by_hand.reopen(connection, "other", [delivery]) == {}
        assert by_hand.cancel(connection, "other", [delivery]) == {}
    assert row(engine, "deliveries", "id", delivery) == before


def test_a_lapsed_lease_that_nobody_re_claimed_records_its_outcome(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    (claim,) = claimed(engine, delivery)
    clock.advance(seconds=TERMS.lease.total_seconds() + 1)
    assert record(engine, ending(claim)) == {delivery: DeliveryStatus.DELIVERED}
    assert rows(engine, "SELECT outcome FROM duehook.attempts") == ["delivered"]


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


def some_deliveries(engine: Engine, count: int) -> list[int]:
    """Due now, all of one endpoint."""
    an_endpoint(engine)
    return [deliveries_of(engine, event)[0] for event in some_events(engine, count)]


def locked(connect: Connect, delivery: int, table: str = "deliveries", key: str = "id") -> Any:
    """An open transaction that holds the row."""
    holder = connect()
    query = f"SELECT FROM duehook.{table} WHERE {key} = %s FOR UPDATE"
    assert holder.execute(query.encode(), [delivery]).rowcount == 1
    return holder


def test_a_renewal_moves_the_end_of_the_lease_with_its_wake_up_and_nothing_else(engine: Engine, clock: Clock) -> None:
    (claim,) = claimed(engine, a_delivery(engine))
    before = row(engine, "deliveries", "id", claim.delivery)
    wakeup = row(engine, "outbox", "ref", claim.delivery)
    clock.advance(seconds=30)
    end = clock.now + TERMS.lease
    assert renew(engine, claim) == [claim.delivery]
    assert row(engine, "deliveries", "id", claim.delivery) == before | {"lease_until": end, "updated_at": clock.now}
    assert row(engine, "outbox", "ref", claim.delivery) == wakeup | {"due_at": end, "look_at": end}
    clock.advance(seconds=44)
    assert answers(engine, claim.delivery) == {claim.delivery: Answer.HELD}
    clock.advance(seconds=1)
    assert answers(engine, claim.delivery) == {claim.delivery: Answer.TAKEN}


def test_a_claim_that_was_claimed_anew_is_not_renewed_and_neither_is_the_newer_one(
    engine: Engine, clock: Clock
) -> None:
    (older,) = claimed(engine, a_delivery(engine))
    clock.advance(seconds=45)
    (newer,) = claimed(engine, older.delivery)
    end = clock.now + TERMS.lease
    clock.advance(seconds=10)
    assert renew(engine, older) == []
    assert row(engine, "deliveries", "id", older.delivery)["lease_until"] == end
    assert renew(engine, newer) == [newer.delivery]


def test_each_claim_is_renewed_by_its_own_token(engine: Engine, clock: Clock) -> None:
    ids = some_deliveries(engine, 2)
    (first,), (second,) = (claimed(engine, each) for each in ids)
    assert renew(engine, first._replace(token=second.token), second._replace(token=first.token)) == []
    assert renew(engine, first, second) == ids


def test_a_lapsed_lease_that_nobody_re_claimed_is_renewed(engine: Engine, clock: Clock) -> None:
    (claim,) = claimed(engine, a_delivery(engine))
    clock.advance(seconds=60)
    assert renew(engine, claim) == [claim.delivery]
    assert answers(engine, claim.delivery) == {claim.delivery: Answer.HELD}


def test_what_has_ended_is_not_renewed(engine: Engine, clock: Clock) -> None:
    claims = claimed(engine, *some_deliveries(engine, 4))
    record(engine, ending(claims[0]), ending(claims[1], Outcome.FAILED), buried(claims[2], DeadReason.REFUSED))
    core.give_back(engine, claims[3:])
    before = rows(engine, "SELECT d::text FROM duehook.deliveries d ORDER BY id")
    assert renew(engine, *claims) == []
    assert rows(engine, "SELECT d::text FROM duehook.deliveries d ORDER BY id") == before


def test_a_renewal_passes_over_what_somebody_holds_and_finds_it_free_later(
    engine: Engine, clock: Clock, connect: Connect
) -> None:
    first, second, third = claims = claimed(engine, *some_deliveries(engine, 3))
    holder = locked(connect, second.delivery)
    clock.advance(seconds=45)
    assert renew(engine, *claims) == [first.delivery, third.delivery], "the others don't wait for him"
    assert answers(engine, second.delivery) == {second.delivery: Answer.LOCKED}, "and nobody else gets it meanwhile"
    holder.rollback()
    assert renew(engine, *claims) == [claim.delivery for claim in claims]


def test_a_renewal_that_meets_a_claim_of_its_lapsed_lease_loses_to_it(
    engine: Engine, racing: Race, clock: Clock
) -> None:
    (claim,) = claimed(engine, a_delivery(engine))
    clock.advance(seconds=45)
    claiming = racing.actor("claim", lambda e: core.claim(e, [claim.delivery], TERMS, ROOM)).until("before commit")
    assert racing.actor("renew", lambda e: renew(e, claim)).finish() == []
    (newer,) = claiming.finish().claims
    assert renew(engine, claim) == []
    assert record(engine, ending(claim)) == {}
    assert record(engine, ending(newer)) == {claim.delivery: DeliveryStatus.DELIVERED}


def test_a_claim_that_meets_a_renewal_of_the_lapsed_lease_loses_to_it(
    engine: Engine, racing: Race, clock: Clock
) -> None:
    (claim,) = claimed(engine, a_delivery(engine))
    clock.advance(seconds=45)
    renewing = racing.actor("renew", lambda e: renew(e, claim)).until("before commit")
    claiming = racing.actor("claim", lambda e: core.claim(e, [claim.delivery], TERMS, ROOM))
    assert claiming.finish().looked.answers == {claim.delivery: Answer.LOCKED}
    assert renewing.finish() == [claim.delivery]
    assert answers(engine, claim.delivery) == {claim.delivery: Answer.HELD}


def test_a_renewal_and_an_outcome_that_meet_pass_each_other_over(engine: Engine, racing: Race, clock: Clock) -> None:
    claims = first, second = claimed(engine, *some_deliveries(engine, 2))
    renewing = racing.actor("renew", lambda e: renew(e, first)).until("before commit")
    recording = racing.actor("record", lambda e: record(e, ending(second), ending(first))).until("before commit")
    assert racing.actor("another renewal", lambda e: renew(e, *claims)).finish() == []
    assert recording.finish() == {first.delivery: DeliveryStatus.LEASED, second.delivery: DeliveryStatus.DELIVERED}
    assert renewing.finish() == [first.delivery]
    assert record(engine, ending(first)) == {first.delivery: DeliveryStatus.DELIVERED}


@pytest.mark.parametrize("how", ["event", "endpoint"])
def test_a_cancel_stays_asked_for_whether_it_comes_before_or_after_a_renewal(
    engine: Engine, racing: Race, clock: Clock, how: str
) -> None:
    def ask(e: Engine) -> object:
        with e.begin() as connection:
            if how == "endpoint":
                return endpoints.delete(connection, TENANT, claim.endpoint)
            return events.cancel(connection, TENANT, claim.event)

    for asked_first in (True, False):
        (claim,) = claimed(engine, a_delivery(engine))
        clock.advance(seconds=40)
        if asked_first:
            asking = racing.actor("cancel", ask).until("before commit")
            assert renew(engine, claim) == [], "passed over"
            asking.finish()
            assert renew(engine, claim) == [claim.delivery]
        else:
            renewing = racing.actor("renew", lambda e: renew(e, claim)).until("before commit")  # noqa: B023
            asking = racing.actor("cancel", ask).until_blocked()
            assert renewing.finish() == [claim.delivery]
            asking.finish()
        now = row(engine, "deliveries", "id", claim.delivery)
        assert (now["status"], now["cancel_requested"]) == ("leased", True)
        assert now["lease_until"] == clock.now + TERMS.lease
        told = record(engine, ending(claim, Outcome.FAILED))
        assert told == {claim.delivery: DeliveryStatus.CANCELLED}
        with engine.begin() as connection:
            endpoints.delete(connection, TENANT, claim.endpoint)


def test_renewals_outcomes_and_cancels_of_the_same_deliveries_never_wait_in_a_circle(engine: Engine) -> None:
    for _ in range(20):
        an_endpoint(engine)
    (event,) = some_events(engine)
    ids = deliveries_of(engine, event)
    refused: list[BaseException] = []  # deadlocks too, which the core would only run again

    @listens_for(engine, "handle_error")
    def note(context: ExceptionContext) -> None:
        refused.append(context.original_exception)

    def again(work: Callable[[], object], times: int) -> None:
        for _ in range(times):
            work()

    def cancel_all() -> None:
        with engine.begin() as connection:
            cancel_of_event(connection, event)

    for _ in range(5):
        claims = claimed(engine, *ids)
        endings = [ending(claim, Outcome.FAILED) for claim in claims]
        works: list[tuple[Callable[[], object], int]] = [
            (lambda: renew(engine, *claims), 10),  # noqa: B023
            (lambda: renew(engine, *reversed(claims)), 10),  # noqa: B023
            (lambda: record(engine, *reversed(endings[::2])), 10),  # noqa: B023
            (cancel_all, 3),
        ]
        threads = [threading.Thread(target=again, args=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        record(engine, *endings)
        with engine.begin() as connection:
            connection.execute(
                text("""UPDATE duehook.deliveries SET status = 'scheduled', round = round + 1, step = 0,
                        next_attempt_at = now(), cancel_requested = false WHERE status = 'cancelled'""")
            )
    assert refused == []


def test_an_outcome_whose_row_somebody_holds_holds_up_no_other(engine: Engine, clock: Clock, connect: Connect) -> None:
    claims = claimed(engine, *some_deliveries(engine, 3))
    holder = locked(connect, claims[1].delivery)
    told = record(engine, *map(ending, claims))
    assert [told[claim.delivery] for claim in claims] == ["delivered", "leased", "delivered"]
    holder.rollback()
    assert record(engine, *map(ending, claims)) == {claims[1].delivery: DeliveryStatus.DELIVERED}


def test_an_older_claim_s_outcome_beside_the_newer_one_s_leaves_one_attempt(engine: Engine, clock: Clock) -> None:
    """One worker may have both: its own claim lapsed, and it claimed anew while the first send was stuck."""
    (older,) = claimed(engine, a_delivery(engine))
    clock.advance(seconds=45)
    (newer,) = claimed(engine, older.delivery)
    both = [ending(older, Outcome.FAILED, status_code=500), ending(newer, status_code=204)]
    assert record(engine, *both) == {newer.delivery: DeliveryStatus.DELIVERED}
    attempts = "SELECT number || ' ' || outcome FROM duehook.attempts ORDER BY number"
    assert rows(engine, attempts) == ["1 abandoned", "2 delivered"]


def test_an_older_claim_s_outcome_does_not_hide_that_the_newer_one_s_row_is_held(
    engine: Engine, clock: Clock, connect: Connect
) -> None:
    (older,) = claimed(engine, a_delivery(engine))
    clock.advance(seconds=45)
    (newer,) = claimed(engine, older.delivery)
    holder = locked(connect, newer.delivery)
    assert record(engine, ending(newer), ending(older)) == {newer.delivery: DeliveryStatus.LEASED}
    holder.rollback()


def test_one_token_told_twice_in_one_statement_is_one_attempt(engine: Engine, clock: Clock) -> None:
    (claim,) = claimed(engine, a_delivery(engine))
    twice = [ending(claim, Outcome.FAILED, after=timedelta(seconds=5)), ending(claim)]
    assert record(engine, *twice) == {claim.delivery: DeliveryStatus.SCHEDULED}, "the first counts"
    assert rows(engine, "SELECT outcome FROM duehook.attempts") == ["failed"]


def test_outcomes_wait_for_nobody_s_lock_on_one_of_them(
    engine: Engine, racing: Race, clock: Clock, connect: Connect
) -> None:
    claims = claimed(engine, *some_deliveries(engine, 3))
    holder = locked(connect, claims[1].delivery)
    recording = racing.actor("record", lambda e: record(e, *map(ending, claims)))
    while recording.point != "done":
        recording.step()
        assert recording.point is not None, "it waits for the lock"
    assert recording.finish()[claims[1].delivery] is DeliveryStatus.LEASED
    holder.rollback()
    assert record(engine, ending(claims[1])) == {claims[1].delivery: DeliveryStatus.DELIVERED}


def test_an_outcome_whose_wake_up_somebody_holds_is_kept_whole_and_for_later(
    engine: Engine, clock: Clock, connect: Connect, database_url: str
) -> None:
    """The triggers wait for the outbox row: the time-out that comes of it says nothing about the ending."""
    claims = claimed(engine, *some_deliveries(engine, 3))
    endings = [ending(claim, status_code=204) for claim in claims]
    holder = locked(connect, claims[0].delivery, "outbox", "ref")
    impatient = connect_engine(database_url, application_name="test", session=SESSION | {"lock_timeout": "100ms"})
    told = record(impatient, *endings)
    assert [told[claim.delivery] for claim in claims] == ["leased", "delivered", "delivered"]
    holder.rollback()
    assert record(impatient, *endings) == {claims[0].delivery: DeliveryStatus.DELIVERED}
    assert rows(engine, "SELECT DISTINCT status_code FROM duehook.attempts") == [204]
    impatient.dispose()


def test_an_outcome_sees_a_cancel_that_was_committed_after_its_statement_began(
    engine: Engine, clock: Clock, connect: Connect, racing: Race
) -> None:
    (claim,) = claimed(engine, a_delivery(engine))
    with slow_recording(connect):
        recording = racing.actor("record", lambda e: record(e, ending(claim, Outcome.FAILED))).until_blocked()
        cancel(engine, claim.event)
    assert recording.finish() == {claim.delivery: DeliveryStatus.CANCELLED}
