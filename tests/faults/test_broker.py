"""The broker taken away in every way, with wake-ups held."""

import signal

import pytest
import redis
from sqlalchemy import Engine

from app.local.services import LocalServices
from tests.ledgers import rows, some_events
from tests.processes import Service
from tests.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def delivered(engine: Engine) -> int:
    return int(rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE status = 'delivered'")[0])


def test_a_worker_that_holds_an_eta_lives_through_a_broker_outage(
    engine: Engine, running: Service, receiver: Receiver, services: LocalServices, broker_url: str
) -> None:
    running.environment["DUEHOOK_HORIZON_SECONDS"] = "4"
    receiver.register(engine)
    running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    some_events(engine, 3, delay_seconds=4)
    with redis.Redis.from_url(broker_url) as client:
        wait_until(lambda: client.hlen("duehook:unacked") > 0, what="a wake-up is held by the worker")
    assert services.valkey is not None
    services.valkey.kill()
    wait_until(lambda: "Connection" in worker.log.read_text() and "lost" in worker.log.read_text(), deadline=20)
    services.valkey.start()
    wait_until(lambda: delivered(engine) == 3, deadline=30)
    assert worker.running
    some_events(engine, 3)
    wait_until(lambda: delivered(engine) == 6, deadline=30, what="it publishes and consumes again")
    assert set(receiver.events.values()) == {1}


def test_a_relay_lives_through_a_broker_that_is_away(
    engine: Engine, running: Service, receiver: Receiver, services: LocalServices, broker_url: str
) -> None:
    receiver.register(engine)
    assert services.valkey is not None
    relay = running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    services.valkey.kill()
    some_events(engine, 5)
    wait_until(lambda: "relay_waits" in relay.log.read_text(), deadline=20)
    services.valkey.start()
    wait_until(lambda: delivered(engine) == 5, deadline=30)
    assert relay.running
    assert worker.running


def test_a_relay_told_to_stop_in_the_middle_of_work_leaves_nothing_behind(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    relay = running.relay().wait_ready()
    some_events(engine, 2000)
    relay.send(signal.SIGTERM)
    wait_until(lambda: not relay.running)
    running.relay()
    running.worker("delivery")
    wait_until(lambda: delivered(engine) == 2000, deadline=60)
    assert set(receiver.events.values()) == {1}
