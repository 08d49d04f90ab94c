"""Processes whose key is not the ledger's."""

import pytest
from sqlalchemy import Engine

from app import settings as settings_of
from app.runtime import open_runtime
from tests.ledgers import rows, some_events
from tests.processes import KEY, Service
from tests.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
OTHER = "another key of the tests with 32 characters or more"
PROGRAMS = ("workers worker delivery", "workers scan", "workers.suspect", "outbox_relay", "app.api")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_process_with_another_key_refuses_to_start_and_buries_nothing(
    engine: Engine, database_url: str, running: Service, receiver: Receiver, program: str
) -> None:
    open_runtime(settings_of.load(database_url=database_url, secrets_key=KEY), application_name="first").close()
    receiver.register(engine)
    some_events(engine, 3)
    before = rows(engine, "SELECT d::text FROM duehook.deliveries d ORDER BY id")
    running.environment["DUEHOOK_SECRETS_KEY"] = OTHER
    process = running.start(*program.split())
    assert wait_until(process.exit_code, deadline=30, what="it has ended") == 1
    said = process.log.read_text().strip()
    assert "set the key with the fingerprint" in said and "\n" not in said
    assert not process.ready_file.exists()
    assert OTHER not in said and KEY not in said
    assert rows(engine, "SELECT d::text FROM duehook.deliveries d ORDER BY id") == before


def test_a_process_that_has_the_ledger_s_key_among_others_starts_and_delivers(
    engine: Engine, database_url: str, running: Service, receiver: Receiver
) -> None:
    open_runtime(settings_of.load(database_url=database_url, secrets_key=KEY), application_name="first").close()
    receiver.register(engine)
    some_events(engine, 3)
    running.environment["DUEHOOK_SECRETS_KEY"] = f"{OTHER},{KEY}"
    running.relay()
    running.worker("delivery").wait_ready()
    wait_until(lambda: rows(engine, "SELECT status FROM duehook.deliveries") == ["delivered"] * 3, deadline=30)
