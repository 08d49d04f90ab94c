"""The relay and its broker: away, refusing, frozen, emptied, full; alone and side by side with others."""

import json
import os
import signal
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import Engine, text

from app.local.services import LocalServices
from app.local.valkey import Valkey
from outbox_relay.relay import MOST_IDS, MOST_MESSAGES, UNREADY
from tests.ledgers import rows, some_events
from tests.processes import Service
from tests.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
QUEUE = "duehook:delivery"


@pytest.fixture
def valkey(services: LocalServices, broker_url: str) -> Valkey:
    assert services.valkey is not None
    return services.valkey


@pytest.fixture
def client(broker_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(broker_url) as connected:
        yield connected


def delivered(engine: Engine) -> int:
    return int(rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE status = 'delivered'")[0])


def many_due(engine: Engine, endpoint: int, count: int) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO duehook.events (tenant, type, data, only_to)
                    SELECT 'acme', 'order.placed', '{}', :endpoint FROM generate_series(1, :count)"""),
            {"endpoint": endpoint, "count": count},
        )


def published(client: "redis.Redis") -> Counter[int]:
    """How often each id waits in the delivery lane."""
    found: Counter[int] = Counter()
    for message in client.lrange(QUEUE, 0, -1):
        args, _, _ = json.loads(b64decode(json.loads(message)["body"]))
        found.update(args[0])
    return found


# How a broker refuses: the state, and its undoing.
def _no_memory(client: "redis.Redis", _: Valkey) -> Callable[[], object]:
    client.config_set("maxmemory", "1")
    return lambda: client.config_set("maxmemory", "0")


def _read_only(client: "redis.Redis", _: Valkey) -> Callable[[], object]:
    client.slaveof("127.0.0.1", 1)
    return lambda: client.slaveof()


def _frozen(_: "redis.Redis", valkey: Valkey) -> Callable[[], object]:
    pid = valkey.pid
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


def _away(_: "redis.Redis", valkey: Valkey) -> Callable[[], object]:
    valkey.kill()
    return valkey.start


REFUSALS = [_no_memory, _read_only, _frozen, _away]


@contextmanager
def refusing(refuse: Callable[..., Callable[[], object]], client: "redis.Redis", valkey: Valkey) -> Iterator[None]:
    undo = refuse(client, valkey)
    try:
        yield
    finally:
        undo()


def test_a_broker_that_refuses_is_waited_for_and_nothing_is_lost(
    engine: Engine, running: Service, receiver: Receiver, client: "redis.Redis", valkey: Valkey
) -> None:
    receiver.register(engine)
    relay = running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()

    def troubles() -> int:
        return relay.log.read_text().count("relay_waits")

    for refuse in REFUSALS:
        before = troubles()
        with refusing(refuse, client, valkey):
            some_events(engine, 150)
            wait_until(lambda known=before: troubles() > known, deadline=20)  # type: ignore[misc]
        wait_until(lambda: not rows(engine, "SELECT ref FROM duehook.outbox"), deadline=30, what=f"done after {refuse}")
        assert relay.running
        assert worker.running
    assert delivered(engine) == 150 * len(REFUSALS)
    assert set(receiver.events.values()) == {1}


def test_a_relay_that_cannot_publish_says_that_it_is_not_ready_and_then_that_it_is(
    engine: Engine, running: Service, receiver: Receiver, client: "redis.Redis", valkey: Valkey
) -> None:
    receiver.register(engine)
    relay = running.relay().wait_ready()
    ready = relay.ready_file
    with refusing(_no_memory, client, valkey):
        some_events(engine)
        wait_until(lambda: not ready.exists(), deadline=UNREADY + 20, what="the relay says that it is not ready")
        wait_until(lambda: "can't publish" in (rows(engine, "SELECT unready FROM duehook.processes")[0] or ""))
    wait_until(lambda: ready.exists(), deadline=20, what="it is ready again")
    written = ready.stat().st_mtime
    wait_until(lambda: ready.stat().st_mtime > written, what="it goes on saying that it lives")


def test_a_relay_is_told_to_stop_while_its_broker_is_frozen(
    engine: Engine, running: Service, receiver: Receiver, client: "redis.Redis", valkey: Valkey
) -> None:
    receiver.register(engine)
    relay = running.relay().wait_ready()
    with refusing(_frozen, client, valkey):
        some_events(engine)
        assert relay.stop(deadline=10) == 0
    running.relay()
    running.worker("delivery")
    wait_until(lambda: delivered(engine) == 1, deadline=30)


def test_no_more_waits_in_the_broker_than_the_window_and_nothing_twice(
    engine: Engine, running: Service, receiver: Receiver, client: "redis.Redis"
) -> None:
    endpoint = receiver.register(engine)
    many_due(engine, endpoint, 10_000)
    running.relay().wait_ready()
    wait_until(lambda: client.llen(QUEUE) >= MOST_MESSAGES)
    lapsed = "SELECT count(*) FROM duehook.outbox WHERE publications > 0 AND look_at < duehook.now() - interval '3 s'"
    wait_until(lambda: rows(engine, lapsed)[0] > 0, deadline=20, what="publish leases have ended long ago")
    waiting = published(client)
    assert client.llen(QUEUE) == MOST_MESSAGES
    assert set(waiting.values()) == {1}
    assert len(waiting) == MOST_MESSAGES * MOST_IDS


def test_three_relays_publish_each_id_once(engine: Engine, running: Service, receiver: Receiver) -> None:
    running.environment["DUEHOOK_PUBLISH_LEASE_SECONDS"] = "60"
    receiver.register(engine)
    relays = [running.relay().wait_ready() for _ in range(3)]
    worker = running.worker("delivery").wait_ready()
    for _ in range(20):
        some_events(engine, 50)
    wait_until(lambda: delivered(engine) == 1000, deadline=30)
    assert all(relay.running for relay in relays)
    assert set(receiver.events.values()) == {1}
    assert '"gone"' not in worker.log.read_text(), "a worker was woken for what somebody had done already"


def test_what_an_emptied_broker_lost_is_published_again_at_once(
    engine: Engine, running: Service, receiver: Receiver, client: "redis.Redis"
) -> None:
    running.environment["DUEHOOK_PUBLISH_LEASE_SECONDS"] = "600"
    receiver.register(engine)
    relay = running.relay().wait_ready()
    some_events(engine, 300)
    wait_until(lambda: len(published(client)) == 300)
    client.flushall()
    wait_until(lambda: len(published(client)) == 300, what="everything is published again")
    told = [
        each for each in map(json.loads, relay.log.read_text().splitlines()) if each["event"] == "broker_began_anew"
    ]
    assert [(each["level"], each["published_again"]) for each in told] == [("info", 0), ("warning", 300)]


def test_what_a_restarted_broker_may_have_lost_is_published_again_at_once(
    engine: Engine, running: Service, receiver: Receiver, client: "redis.Redis", valkey: Valkey
) -> None:
    running.environment["DUEHOOK_PUBLISH_LEASE_SECONDS"] = "600"
    receiver.register(engine)
    running.relay().wait_ready()
    some_events(engine, 300)
    wait_until(lambda: len(published(client)) == 300)
    valkey.kill()
    appended = valkey.folder / "appendonlydir"
    for file in appended.glob("*.incr.aof"):
        file.write_bytes(b"")
    valkey.start()
    wait_until(lambda: len(published(client)) == 300, deadline=20, what="everything is published again")


def test_a_relay_that_starts_anew_on_the_same_broker_publishes_nothing_again(
    engine: Engine, running: Service, receiver: Receiver, client: "redis.Redis"
) -> None:
    running.environment["DUEHOOK_PUBLISH_LEASE_SECONDS"] = "600"
    receiver.register(engine)
    relay = running.relay().wait_ready()
    some_events(engine, 300)
    wait_until(lambda: len(published(client)) == 300)
    assert relay.stop() == 0
    again = running.relay().wait_ready()
    some_events(engine, 1)
    wait_until(lambda: len(published(client)) == 301)
    assert set(published(client).values()) == {1}
    assert "broker_began_anew" not in again.log.read_text()
