"""The audit: every kind of damage is repaired and counted, health is zero."""

from collections import Counter

import pytest
from sqlalchemy import Engine, text

from app.core import reservations
from app.core.reconciliation import audit
from app.core.reservations import Hold
from app.ledger.reconciliation import lock_audit
from tests.ledgers import TENANT, a_delivery, claimed, rows, some_events

pytestmark = pytest.mark.usefixtures("clock")


def everything(engine: Engine) -> None:
    """One open thing of each kind, and a closed one."""
    a_delivery(engine)
    some_events(engine, delay_seconds=3600)
    with engine.begin() as connection:
        reservations.hold(connection, TENANT, Hold("truck 7", hold_seconds=60))
        reservations.hold(connection, TENANT, Hold("truck 8", id="rsv_8", hold_seconds=60))
        reservations.release(connection, TENANT, "rsv_8")


def damage(engine: Engine, statement: str) -> int:
    with engine.begin() as connection:
        return connection.execute(text(statement)).rowcount


def test_a_healthy_ledger_needs_no_repair(engine: Engine) -> None:
    everything(engine)
    assert audit(engine) == Counter()


@pytest.mark.parametrize("kind", ["reservation", "event", "delivery"])
def test_an_open_thing_without_a_row_gets_one_that_says_when(engine: Engine, kind: str) -> None:
    everything(engine)
    when = f"SELECT look_at FROM duehook.outbox WHERE kind = '{kind}' ORDER BY ref"
    before = rows(engine, when)
    lost = damage(engine, f"DELETE FROM duehook.outbox WHERE kind = '{kind}'")
    assert audit(engine) == Counter({f"{kind}_without_row": lost})
    assert rows(engine, when) == before
    assert audit(engine) == Counter()


def test_a_claimed_delivery_without_a_row_gets_one_at_its_lease_s_end(engine: Engine) -> None:
    claimed(engine, a_delivery(engine))
    damage(engine, "DELETE FROM duehook.outbox")
    assert audit(engine) == Counter(delivery_without_row=1)
    assert rows(engine, "SELECT o.look_at = d.lease_until FROM duehook.outbox o, duehook.deliveries d") == [True]


def test_a_row_of_nothing_open_is_deleted(engine: Engine) -> None:
    everything(engine)
    damage(
        engine,
        """INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
           SELECT seq, 'reservation', tenant, expires_at, expires_at FROM duehook.reservations WHERE status <> 'held'
           UNION ALL VALUES (1, 'delivery', 'acme', now(), now())""",
    )
    assert audit(engine) == Counter(row_of_nothing=2)
    assert audit(engine) == Counter()


def test_it_walks_a_bounded_stretch_at_a_time_and_begins_anew_at_the_end(engine: Engine) -> None:
    a_delivery(engine)
    some_events(engine, 9)
    damage(engine, "DELETE FROM duehook.outbox")
    repairs = [audit(engine, stretch=4).total() for _ in range(4)]
    assert repairs == [4, 4, 2, 0]
    damage(engine, "DELETE FROM duehook.outbox")
    assert sum(audit(engine, stretch=4).total() for _ in range(4)) == 10


def test_a_second_audit_at_the_same_time_does_nothing(engine: Engine) -> None:
    a_delivery(engine)
    damage(engine, "DELETE FROM duehook.outbox")
    with engine.begin() as first:
        assert lock_audit(first)
        assert audit(engine) == Counter()
    assert audit(engine) == Counter(delivery_without_row=1)


def test_what_somebody_is_changing_just_now_is_left_alone(engine: Engine) -> None:
    delivery = a_delivery(engine)
    damage(engine, "DELETE FROM duehook.outbox")
    with engine.begin() as other:
        other.execute(text("SELECT FROM duehook.deliveries WHERE id = :id FOR UPDATE"), {"id": delivery})
        assert audit(engine) == Counter()
    assert audit(engine) == Counter(delivery_without_row=1)
