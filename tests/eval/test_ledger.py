"""What the evaluation reads of the ledger while it runs: its own tenant's lateness, at a bounded cost to the others."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine, text

from app.core import deliveries as core
from app.core import reservations
from app.core.reservations import Hold
from app.eval import ledger as eval_ledger
from app.eval.ledger import Ledger, ledger_of
from app.ledger.database import connect_engine
from tests.clock import Clock, clock
from tests.ledgers import TENANT, a_delivery, some_events

__all__ = ["clock"]


@pytest.fixture
def engine(database_url: str, clock: Clock) -> Iterator[Engine]:
    made = connect_engine(database_url, application_name="test")
    yield made
    made.dispose()


@pytest.fixture
def ours(database_url: str, engine: Engine) -> Iterator[Ledger]:
    with ledger_of(database_url, TENANT) as ledger:
        yield ledger


def ages(ledger: Ledger) -> tuple[float, float, int]:
    """Of the oldest due reservation, of the oldest due delivery, and how much is open."""
    lag = ledger.lag()
    return lag.reservation, lag.delivery, lag.open


def test_each_clock_s_age_is_that_of_what_is_due_longest(engine: Engine, ours: Ledger, clock: Clock) -> None:
    assert ages(ours) == (0, 0, 0)
    a_delivery(engine)
    with engine.begin() as connection:
        reservations.hold(connection, TENANT, Hold("seat", hold_seconds=5))
    assert ages(ours) == (0, 0, 2)
    clock.advance(seconds=3)
    some_events(engine)
    clock.advance(seconds=4)
    assert ages(ours) == (2, 7, 3)
    assert ours.lag().at == clock.now.timestamp() == ours.now()


def test_what_is_parked_is_not_overdue_and_open_all_the_same(engine: Engine, ours: Ledger, clock: Clock) -> None:
    """The endpoint's own row, which wakes it and is due, is no delivery."""
    core.park(engine, [a_delivery(engine)])
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.outbox SET look_at = 'infinity' WHERE kind = 'endpoint'"))
    clock.advance(days=1)
    assert ages(ours) == (0, 0, 2)
    assert ours.open() == 2


def test_another_tenant_s_lateness_is_none_of_it(engine: Engine, database_url: str, clock: Clock) -> None:
    a_delivery(engine)
    clock.advance(seconds=10)
    with ExitStack() as stack:
        theirs = stack.enter_context(ledger_of(database_url, "eval-other"))
        assert ages(theirs) == (0, 0, 0)
        assert theirs.open() == 0 and theirs.reservations() == []


@pytest.mark.parametrize("statement", ["_LAG", "_OPEN"])
def test_a_sample_reads_its_tenant_s_rows_alone_by_index(engine: Engine, ours: Ledger, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
                    SELECT n, 'delivery', 'rival' || n % 50, duehook.now(), duehook.now()
                      FROM generate_series(1, 20000) n""")
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE duehook.outbox"))
    asked = getattr(eval_ledger, statement)
    given = {"tenant": TENANT} if statement == "_LAG" else [TENANT]
    plan = "\n".join(next(iter(row.values())) for row in ours._rows("EXPLAIN " + asked, given))
    assert "outbox_fair" in plan and "Seq Scan on outbox" not in plan, plan
