"""The outbox as the relay sees it: taken, published, moved, looked at again."""

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from app.core import deliveries as core
from app.domain.states import Outcome
from app.domain.wakeups import Kind
from app.ledger import outbox
from app.ledger.outbox import Room
from tests.clock import Clock
from tests.conftest import Connect
from tests.ledgers import TERMS, a_delivery, an_endpoint, claimed, ending, rows, some_events

ROOMS = dict.fromkeys(Kind, Room(100))
LEASE = timedelta(seconds=60)


def take(engine: Engine, token: object = None) -> list[outbox.Taken]:
    with engine.begin() as connection:
        return outbox.take(connection, token or uuid4(), ROOMS)  # type: ignore[arg-type]


def looks(engine: Engine) -> list[object]:
    return rows(engine, "SELECT look_at FROM duehook.outbox ORDER BY ref")


def test_what_is_taken_comes_up_again_in_two_seconds_if_its_relay_dies(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    (taken,) = take(engine)
    assert (taken.kind, taken.due_at) == (Kind.DELIVERY, clock.now)
    assert take(engine) == []
    clock.advance(seconds=2)
    assert [again.ref for again in take(engine)] == [taken.ref]


@pytest.mark.parametrize("until", ["'infinity'", "NULL", "duehook.now() + interval '2.1 s'"])
def test_a_take_that_would_last_longer_than_any_does_is_none(engine: Engine, clock: Clock, until: str) -> None:
    delivery = a_delivery(engine)
    take(engine)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE duehook.outbox SET taken_until = {until}"))
    assert [again.ref for again in take(engine)] == [delivery]


def test_a_published_row_comes_up_at_the_end_of_a_publish_lease_that_doubles(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    for lease in (60, 120, 240, 480, 900, 900):
        token = uuid4()
        (taken,) = take(engine, token)
        with engine.begin() as connection:
            assert outbox.move(connection, token, [taken.ref], LEASE) == 1
        assert looks(engine) == [clock.now + timedelta(seconds=lease)]
        clock.advance(seconds=lease)


def test_a_row_that_changed_since_it_was_taken_is_not_moved(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    token = uuid4()
    (taken,) = take(engine, token)
    (claim,) = claimed(engine, delivery)
    core.record(engine, [ending(claim, Outcome.FAILED, after=timedelta(seconds=5))], max_age=TERMS.max_age)
    before = looks(engine)
    with engine.begin() as connection:
        assert outbox.move(connection, token, [taken.ref], LEASE) == 0
    assert looks(engine) == before, "a retry that is due in 5 s must not wait for a publish lease of 60"


def test_two_relays_take_different_rows(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 10)
    with engine.begin() as first, engine.begin() as second:
        one = outbox.take(first, uuid4(), {Kind.DELIVERY: Room(6)})
        other = outbox.take(second, uuid4(), {Kind.DELIVERY: Room(6)})
    assert (len(one), len(other)) == (6, 4)
    assert not {row.ref for row in one} & {row.ref for row in other}


def test_nothing_is_taken_before_the_horizon(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine, delay_seconds=60)
    assert take(engine) == []
    clock.advance(seconds=50)
    assert [(taken.kind, taken.ref) for taken in take(engine)] == [(Kind.EVENT, event)]


def test_the_earliest_looks_are_taken_first_within_each_kind_s_limit(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    some_events(engine, 3)
    clock.advance(seconds=1)
    some_events(engine, 3)
    ids = rows(engine, "SELECT ref FROM duehook.outbox ORDER BY ref")
    with engine.begin() as connection:
        taken = outbox.take(connection, uuid4(), {Kind.DELIVERY: Room(3), Kind.EVENT: Room(3)})
    assert sorted(each.ref for each in taken) == ids[:3]


def test_a_look_is_only_ever_set_sooner(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    claimed(engine, delivery)
    end_of_lease = looks(engine)
    with engine.begin() as connection:
        assert outbox.look_sooner(connection, [delivery], timedelta(hours=1)) == [delivery]
    assert looks(engine) == end_of_lease


def test_a_row_of_a_kind_that_nobody_looks_at_is_refused(engine: Engine, clock: Clock) -> None:
    with pytest.raises(IntegrityError, match="outbox_kind_check"), engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
                    VALUES (1, 'endpoints', 'acme', duehook.now(), duehook.now())""")
        )


def test_a_take_passes_over_what_somebody_holds(engine: Engine, clock: Clock, connect: Connect) -> None:
    an_endpoint(engine)
    some_events(engine, 3)
    holder = connect()
    held = holder.execute("SELECT ref FROM duehook.outbox ORDER BY ref LIMIT 1 FOR UPDATE").fetchone()
    assert held is not None
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '500ms'"))
        taken = outbox.take(connection, uuid4(), ROOMS)
    assert len(taken) == 2 and held[0] not in {each.ref for each in taken}
    holder.rollback()
    assert [each.ref for each in take(engine)] == [held[0]]
