"""Broker messages that no worker can act on, put in front of real work."""

import hashlib
import json

import pytest
import redis
from sqlalchemy import Engine

from app import settings as settings_of
from app.broker import TASK, make_celery
from app.domain.wakeups import Kind
from app.local.postgres import Postgres
from tests.ledgers import deliveries_of, rows, some_events
from tests.messages import POISON, SECRET, wakeup
from tests.processes import Process, Service
from tests.receivers import Receiver
from tests.waiting import wait_until
from workers.message import unwrapped

pytestmark = pytest.mark.slow
QUEUE = "duehook:delivery"
UNACKED = "duehook:unacked"
CONTROL = "duehook:/0.celery.pidbox"
CONTROLS = [b"garbage", b"\xff", b"5", b"{}", b'{"properties": {}}', b"[" * 100_000]
SEEN = "SELECT coalesce(sum(seen), 0) FROM duehook.poison_messages"


def kept(engine: Engine) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT digest, lane, reason, size, seen FROM duehook.poison_messages")
        return sorted(map(tuple, found))


def has_nothing(client: "redis.Redis") -> bool:
    return not client.exists("duehook:unacked", "duehook:unacked_index", QUEUE)


def undisturbed(worker: Process) -> bool:
    return worker.running and "Connection to broker lost" not in worker.log.read_text()


def test_what_nobody_can_act_on_is_recorded_and_what_is_behind_it_is_delivered(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    receiver.register(engine)
    worker = running.worker("delivery").wait_ready()
    (event,) = some_events(engine)
    (delivery,) = deliveries_of(engine, event)
    # Ids all the same: none of anything, of another kind, twice.
    ids = [-1, 2**63 - 1, -(2**63), event, delivery, delivery]
    work = [wakeup(ids, [0] * len(ids), task=task) for task in TASK.values()]
    with redis.Redis.from_url(broker_url) as client:
        wait_until(lambda: client.pubsub_numpat() == 1, what="it listens to remote control")
        for each in CONTROLS:
            client.publish(CONTROL, each)
        client.lpush(QUEUE, *POISON, *POISON, *work)
        wait_until(lambda: rows(engine, "SELECT status FROM duehook.deliveries") == ["delivered"], deadline=30)
        wait_until(lambda: rows(engine, SEEN) == [2 * len(POISON)])
        wait_until(lambda: has_nothing(client))
    inspect = make_celery(settings_of.load(broker_url=broker_url)).control.inspect(timeout=1)
    wait_until(lambda: list((inspect.ping() or {}).values()) == [{"ok": "pong"}])

    assert undisturbed(worker)
    assert worker.log.read_text().count("control_message_dropped") >= 3
    assert list(receiver.events.values()) == [1]
    assert kept(engine) == sorted(
        (hashlib.sha256(raw).digest(), "delivery", reason.value, len(raw), 2) for raw, reason in POISON.items()
    )
    assert not any(SECRET.encode() in bytes(each) for each in rows(engine, "SELECT body FROM duehook.poison_messages"))
    assert SECRET not in worker.log.read_text()


def test_a_database_that_is_away_costs_no_poison_and_no_spinning(
    engine: Engine, running: Service, broker_url: str, postgres: Postgres
) -> None:
    """What was popped is unacknowledged meanwhile; a worker that ends gives it back, whole, to be judged again."""
    worker = running.worker("delivery").wait_ready()
    messages = [f"garbage {number}".encode() for number in range(8)]
    with redis.Redis.from_url(broker_url) as client:

        def arrive_without_a_database() -> None:
            postgres.kill()
            before = worker.log.read_text().count("poison_waits")
            client.lpush(QUEUE, *messages)
            wait_until(lambda: worker.log.read_text().count("poison_waits") >= before + 2)
            assert client.hlen("duehook:unacked") + client.llen(QUEUE) == len(messages)
            assert worker.log.read_text().count("poison_waits") <= before + 4

        arrive_without_a_database()
        postgres.start()
        engine.dispose()
        wait_until(lambda: rows(engine, SEEN) == [len(messages)])
        wait_until(lambda: has_nothing(client))
        assert undisturbed(worker)

        arrive_without_a_database()
        assert worker.stop() == 0
        assert {unwrapped(item) for item in client.lrange(QUEUE, 0, -1)} == {*messages}
        postgres.start()


def test_an_unacknowledged_entry_that_nobody_can_read_is_recorded_and_stops_no_other(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    receiver.register(engine)
    some_events(engine)
    (delivery,) = rows(engine, "SELECT id FROM duehook.deliveries")
    worker = running.worker("delivery", "upkeep").wait_ready()
    message = json.loads(wakeup([delivery], [0]))
    with redis.Redis.from_url(broker_url) as client:
        client.hset(UNACKED, mapping={"a": b"garbage", "b": b"[1]", "c": json.dumps([message, "", "delivery"])})
        client.zadd(f"{UNACKED}_index", {"a": 3, "b": 2, "nothing": 2, "c": 1})
        wait_until(lambda: rows(engine, "SELECT status FROM duehook.deliveries") == ["delivered"], deadline=30)
        wait_until(lambda: rows(engine, SEEN) == [2])
        wait_until(lambda: not client.exists(UNACKED, f"{UNACKED}_index"))
    assert {digest for digest, *_ in kept(engine)} == {hashlib.sha256(each).digest() for each in (b"garbage", b"[1]")}
    assert undisturbed(worker)


def test_a_rate_limit_by_remote_control_stops_no_lane(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    receiver.register(engine)
    running.relay()
    running.worker("delivery").wait_ready()
    control = make_celery(settings_of.load(broker_url=broker_url)).control
    wait_until(lambda: control.rate_limit(TASK[Kind.DELIVERY], "1/h", reply=True, timeout=1))
    for _ in range(4):
        some_events(engine)
        wait_until(lambda: "scheduled" not in rows(engine, "SELECT status FROM duehook.deliveries"))
