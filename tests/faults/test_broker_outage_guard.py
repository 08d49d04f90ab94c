"""What a broker that is away for a moment does to a worker that holds messages: to Celery 5.7.0's, and to ours."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from app import settings as settings_of
from app.broker import make_celery, wake
from app.domain.wakeups import Kind, Lane
from app.local.services import LocalServices
from tests.ledgers import rows, some_events
from tests.processes import Process, Service
from tests.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
LOST = "Connection to broker lost"


def all_delivered(engine: Engine, number: int) -> bool:
    return rows(engine, "SELECT status FROM duehook.deliveries") == ["delivered"] * number


def hold(broker_url: str, kind: Kind, lane: Lane) -> None:
    """Have a worker of this lane hold a wake-up until an ETA."""
    eta = datetime.now(UTC) + timedelta(seconds=10)
    celery = make_celery(settings_of.load(broker_url=broker_url))
    with celery.producer_pool.acquire() as producer:
        wake(celery, producer, kind, lane, [1], [eta], eta)
    with redis.Redis.from_url(broker_url) as client:
        wait_until(lambda: client.hlen("duehook:unacked") > 0 and not client.llen(f"duehook:{lane}"))


def refuse_connections(services: LocalServices, *workers: Process, forget: bool = False) -> None:
    """Until each worker has noticed: it puts back what it holds before it tries to connect again."""
    assert services.valkey is not None
    before = {worker: worker.log.read_text().count(LOST) for worker in workers}
    services.valkey.stop()
    for worker, count in before.items():
        wait_until(lambda: worker.log.read_text().count(LOST) > count)  # noqa: B023 - asked here and now
    if forget:
        shutil.rmtree(Path(services.valkey.folder))
    services.valkey.start()


def test_an_outage_that_ends_celery_s_own_worker_costs_ours_a_moment(
    engine: Engine, running: Service, receiver: Receiver, services: LocalServices, broker_url: str
) -> None:
    receiver.register(engine)
    ours = running.worker("delivery")
    stock = running.start("tests.faults.stock_worker", "expiry")
    running.relay()
    ours.wait_ready()
    stock.wait_ready()
    hold(broker_url, Kind.RESERVATION, Lane.EXPIRY)
    hold(broker_url, Kind.DELIVERY, Lane.DELIVERY)
    refuse_connections(services, ours, stock)
    wait_until(lambda: not stock.running, what="Celery has mended it, so that Channel.close can go")
    assert "'NoneType' object has no attribute 'hostname'" in stock.log.read_text()

    some_events(engine, 3)
    wait_until(lambda: all_delivered(engine, 3), what="it consumes again")
    for emptied in (False, True):
        hold(broker_url, Kind.DELIVERY, Lane.DELIVERY)
        refuse_connections(services, ours, forget=emptied)
    some_events(engine, 3, delay_seconds=1)
    wait_until(lambda: all_delivered(engine, 6), deadline=20)
    assert ours.running
    assert set(receiver.events.values()) == {1}
