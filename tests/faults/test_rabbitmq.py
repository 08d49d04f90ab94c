"""The same service on another broker: only the URL changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amqp.exceptions import NotFound
from kombu.connection import Connection
from sqlalchemy import Engine, text

from outbox_relay.relay import MOST_MESSAGES
from tests.ledgers import rows, some_events
from tests.processes import Service, service
from tests.rabbit import Rabbit
from tests.receivers import Answer, Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
JSON = "application/json"
FOREIGN: list[tuple[dict[str, Any], bytes]] = [
    ({"content_type": JSON}, b"garbage"),
    ({"content_type": JSON, "headers": {"task": "nobody.knows", "id": "1"}}, b"[[], {}, {}]"),
    ({"content_type": JSON, "headers": {"task": "duehook.deliver", "id": "2"}}, b'[["x", 5], {}, {}]'),
    ({"content_type": "application/x-python-serialize", "headers": {"task": "duehook.deliver"}}, b"\x80"),
    ({"content_type": JSON, "headers": {"task": ["x"]}}, b"{}"),
]


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    made = Rabbit(tmp_path_factory.mktemp("rabbit"))
    yield made
    made.close()


@pytest.fixture
def running(engine: Engine, database_url: str, rabbit: Rabbit, tmp_path: Path) -> Iterator[Service]:
    with Connection(rabbit.url) as connection:
        for lane in ("expiry", "delivery", "upkeep"):
            connection.default_channel.queue_delete(lane)
    with service(database_url, rabbit.url, tmp_path) as started:
        yield started


def done(engine: Engine) -> bool:
    return not rows(engine, "SELECT ref FROM duehook.outbox")


def waiting(rabbit: Rabbit, lane: str) -> int:
    """Messages in a lane, 0 while there is no such queue."""
    with Connection(rabbit.url) as connection:
        try:
            return int(connection.default_channel.queue_declare(lane, passive=True).message_count)
        except NotFound:
            return 0


def hold(engine: Engine, count: int, seconds: float) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.reservations (tenant, resource, expires_at)
                    SELECT 'acme', 'seat ' || n, now() + make_interval(secs => :seconds)
                      FROM generate_series(1, :count) n"""),
            {"count": count, "seconds": seconds},
        )


def test_holds_expire_and_events_are_delivered_retried_and_scheduled(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine, retry_schedule=[0.1])
    receiver.answer = lambda request: Answer(503 if request.attempt == 1 and "3" in request.event_id[-1] else 200)
    running.relay().wait_ready()
    running.worker().wait_ready()
    running.start("workers", "beat").wait_ready()
    hold(engine, 50, 2)
    some_events(engine, 100)
    some_events(engine, 50, delay_seconds=3)
    wait_until(lambda: done(engine), deadline=30)
    assert rows(engine, "SELECT DISTINCT status FROM duehook.reservations") == ["expired"]
    assert rows(engine, "SELECT status, count(*) FROM duehook.deliveries GROUP BY status") == ["delivered"]
    assert len(receiver.events) == 200


def test_a_broker_killed_and_restarted_loses_nothing_and_nobody_dies_of_it(
    engine: Engine, running: Service, receiver: Receiver, rabbit: Rabbit
) -> None:
    receiver.register(engine)
    relay = running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    some_events(engine, 100, delay_seconds=4)
    some_events(engine, 100)
    rabbit.kill()
    some_events(engine, 100)
    wait_until(lambda: "relay_waits" in relay.log.read_text(), deadline=20)
    rabbit.start()
    wait_until(lambda: done(engine), deadline=60)
    assert relay.running
    assert worker.running
    assert len(receiver.events) == 300
    assert set(receiver.events.values()) == {1}


def test_a_backlog_waits_in_postgresql_and_a_queue_that_vanished_is_filled_again(
    engine: Engine, running: Service, receiver: Receiver, rabbit: Rabbit
) -> None:
    running.environment["DUEHOOK_PUBLISH_LEASE_SECONDS"] = "600"
    receiver.register(engine)
    running.relay().wait_ready()
    for _ in range(6):
        some_events(engine, 600)
    wait_until(lambda: waiting(rabbit, "delivery") >= MOST_MESSAGES)
    assert waiting(rabbit, "delivery") <= MOST_MESSAGES + 1
    with Connection(rabbit.url) as connection:
        connection.default_channel.queue_delete("delivery")
    wait_until(lambda: waiting(rabbit, "delivery") >= MOST_MESSAGES)
    running.worker("delivery")
    wait_until(lambda: done(engine), deadline=60)
    assert len(receiver.events) == 3600
    assert set(receiver.events.values()) == {1}


def test_what_nobody_can_act_on_is_recorded_and_what_is_behind_it_is_delivered(
    engine: Engine, running: Service, receiver: Receiver, rabbit: Rabbit
) -> None:
    receiver.register(engine)
    worker = running.worker("delivery").wait_ready()
    with Connection(rabbit.url) as connection:
        producer = connection.Producer()
        for form, body in FOREIGN:
            producer.publish(body, routing_key="delivery", content_encoding="utf-8", **form)
    running.relay()
    some_events(engine, 3)
    wait_until(lambda: done(engine), deadline=30)
    wait_until(lambda: rows(engine, "SELECT count(*) FROM duehook.poison_messages") == [len(FOREIGN)])
    wait_until(lambda: waiting(rabbit, "delivery") == 0)
    assert worker.running
    assert set(receiver.events.values()) == {1}
