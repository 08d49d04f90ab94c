"""What `duehook status` counts, and that it reads a bounded number of rows for it."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from app.core import deliveries as core
from app.core import reservations
from app.core.reservations import Hold
from app.core.status import Status, read
from app.domain.states import DeadReason
from app.domain.wakeups import Lane
from app.ledger import status
from app.ledger.database import connect_engine
from app.ledger.status import Count
from tests.clock import Clock
from tests.ledgers import TENANT, TERMS, a_delivery, buried, claimed, some_events


@pytest.fixture
def engine(database_url: str, clock: Clock) -> Iterator[Engine]:
    made = connect_engine(database_url, application_name="test")
    yield made
    made.dispose()


def look(engine: Engine) -> Status:
    return read(engine, lease=TERMS.lease)


def exactly(number: int) -> Count:
    return Count(number, more=False)


def test_what_waits_is_backlog_and_its_age_is_the_oldest_one_s(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    clock.advance(seconds=5)
    some_events(engine, 2)
    clock.advance(seconds=1)
    found = look(engine)
    assert (found.backlog[Lane.DELIVERY], found.oldest_delivery) == (exactly(3), timedelta(seconds=6))
    assert (found.backlog[Lane.EXPIRY], found.oldest_reservation) == (exactly(0), None)


def test_a_held_reservation_counts_once_it_is_due(engine: Engine, clock: Clock) -> None:
    with engine.begin() as connection:
        reservations.hold(connection, TENANT, Hold("seat", hold_seconds=5))
    assert look(engine).backlog[Lane.EXPIRY] == exactly(0)
    clock.advance(seconds=7)
    found = look(engine)
    assert (found.backlog[Lane.EXPIRY], found.oldest_reservation) == (exactly(1), timedelta(seconds=2))


def test_a_claim_is_in_flight_until_its_lease_ends_and_backlog_after_that(engine: Engine, clock: Clock) -> None:
    claimed(engine, a_delivery(engine))
    found = look(engine)
    assert (found.in_flight, found.backlog[Lane.DELIVERY]) == (exactly(1), exactly(0))
    clock.advance(seconds=TERMS.lease.total_seconds() + 1)
    found = look(engine)
    assert (found.in_flight, found.backlog[Lane.DELIVERY]) == (exactly(0), exactly(1))


def test_a_scheduled_event_is_nobody_s_backlog(engine: Engine) -> None:
    some_events(engine, delay_seconds=60)
    found = look(engine)
    assert (found.in_flight, found.backlog[Lane.DELIVERY]) == (exactly(0), exactly(0))


def test_what_is_parked_is_counted_and_not_overdue(engine: Engine, clock: Clock) -> None:
    core.park(engine, [a_delivery(engine)])
    clock.advance(days=1)
    found = look(engine)
    assert (found.parked, found.oldest_delivery) == (exactly(1), None)


def test_a_dead_letter_is_counted(engine: Engine) -> None:
    (claim,) = claimed(engine, a_delivery(engine))
    core.record(engine, [buried(claim, DeadReason.REFUSED)], max_age=TERMS.max_age)
    found = look(engine)
    assert (found.dead, found.in_flight) == (exactly(1), exactly(0))


def test_beyond_its_bound_a_number_is_the_least_that_it_is(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MOST", 3)
    a_delivery(engine)
    some_events(engine, 4)
    assert look(engine).backlog[Lane.DELIVERY] == Count(3, more=True)


def test_the_index_is_read_in_its_order_and_only_as_far_as_the_bound(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
                    SELECT n, 'delivery', 'acme', duehook.now(), duehook.now() FROM generate_series(1, 5000) n""")
        )
        status.read_in_order(connection)
        explain = text("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + status._DUE.text)
        parameters = {"kinds": ["delivery"], "ahead": timedelta(minutes=15), "most": 100}
        plan = "\n".join(connection.execute(explain, parameters).scalars())
        connection.rollback()
    assert "Index Scan using outbox_look on outbox (actual rows=100" in plan


def test_headroom_is_the_server_s(engine: Engine) -> None:
    connections = look(engine).connections
    assert 1 <= connections.used < connections.most < 200
