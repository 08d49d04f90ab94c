"""PostgreSQL taken away while everything runs."""

import pytest
from sqlalchemy import Engine

from app.local.postgres import Postgres
from tests.faults.test_crash_table import all_delivered, stalled
from tests.ledgers import rows, some_events
from tests.processes import Service
from tests.receivers import Answer, Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_database_killed_while_sends_are_in_the_air_costs_no_second_send(
    engine: Engine, running: Service, receiver: Receiver, postgres: Postgres
) -> None:
    """The outcome is kept and recorded with the same token when the database is back; no process dies of it."""
    running.environment["DUEHOOK_LEASE_SECONDS"] = "20"
    running.environment["DUEHOOK_DEADLINE_SECONDS"] = "15"
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    relay = running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    some_events(engine, 5)
    assert arrived.wait(15)
    wait_until(lambda: len(receiver.received) == 5)
    postgres.kill()
    hold.set()
    wait_until(lambda: "record_waits" in worker.log.read_text(), deadline=20)
    postgres.start()
    engine.dispose()
    wait_until(lambda: all_delivered(engine, 5), deadline=30)
    assert len(receiver.received) == 5
    assert rows(engine, "SELECT max(attempt) FROM duehook.deliveries") == [1]
    assert relay.running
    assert worker.running

    receiver.answer = lambda _: Answer()
    some_events(engine, 5)
    wait_until(lambda: all_delivered(engine, 10), deadline=30, what="it goes on as before")
