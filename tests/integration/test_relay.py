"""One look of the relay after another, against a real broker with nobody behind it."""

import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text

from app.broker import make_celery
from app.core.clock import LedgerClock
from app.local.valkey import Valkey
from app.settings import Settings, load
from outbox_relay.relay import MOST_MESSAGES, Relay, _what
from outbox_relay.wire import EPOCH, LOST
from tests.clock import Clock
from tests.conftest import Connect
from tests.ledgers import TENANT, an_endpoint, claimed, rows, some_events
from tests.waiting import wait_until


@pytest.fixture
def settings(database_url: str, broker_url: str) -> Settings:
    return load(database_url=database_url, broker_url=broker_url, secrets_key=["k" * 32])


@pytest.fixture
def relay(settings: Settings, engine: Engine) -> Relay:
    return Relay(settings, engine, make_celery(settings), LedgerClock(engine))


def test_what_is_due_later_is_held_off_while_workers_hold_much_already(
    engine: Engine, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.taking.MOST_HELD", 10)
    an_endpoint(engine)
    some_events(engine, 20, delay_seconds=8)
    assert relay.once() == 20
    some_events(engine, 20, delay_seconds=8)
    some_events(engine, 3)
    assert relay.once() == 3, "what is due goes on"


def test_what_is_due_by_now_is_not_counted_as_ahead(
    engine: Engine, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.taking.MOST_HELD", 10)
    an_endpoint(engine)
    some_events(engine, 20)
    assert relay.once() == 20
    some_events(engine, 20, delay_seconds=8)
    assert relay.once() == 20


def test_a_full_lane_takes_nothing_and_the_other_goes_on(engine: Engine, relay: Relay, broker_url: str) -> None:
    an_endpoint(engine)
    with redis.Redis.from_url(broker_url) as client:
        client.lpush("duehook:delivery", *["x"] * MOST_MESSAGES)
    some_events(engine, 5)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO duehook.reservations (tenant, resource, expires_at) VALUES ('acme', 'a', now())"
        )
    assert relay.once() == 1
    assert rows(engine, "SELECT kind FROM duehook.outbox WHERE taken IS NOT NULL") == ["reservation"]


def messages_of(broker_url: str, lane: str) -> list[dict[str, Any]]:
    """What waits in a lane, as Redis has it."""
    with redis.Redis.from_url(broker_url) as client:
        waiting: Sequence[bytes] = client.lrange(f"duehook:{lane}", 0, -1)
    return [json.loads(each) for each in waiting]


def test_jobs_and_deliveries_wait_in_lanes_of_their_own(engine: Engine, relay: Relay, broker_url: str) -> None:
    an_endpoint(engine)
    some_events(engine)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO duehook.jobs (tenant, kind, parameters) VALUES (:tenant, 'redrive', '{}')"),
            {"tenant": TENANT},
        )
    assert relay.once() == 2
    assert [len(messages_of(broker_url, lane)) for lane in ("delivery", "upkeep")] == [1, 1]


def test_a_wake_up_holds_numbers_alone(engine: Engine, relay: Relay, broker_url: str) -> None:
    an_endpoint(engine, url="http://127.0.0.1:9/hidden")
    some_events(engine, data='"hidden"', key="hidden")
    assert relay.once() == 1
    (message,) = messages_of(broker_url, "delivery")
    args, kwargs, embedded = json.loads(b64decode(message["body"]))
    assert all(type(each) is int for part in args for each in part) and len(args) == 2
    assert (kwargs, set(embedded.values())) == ({}, {None})
    headers = message["headers"]
    assert (headers["argsrepr"], headers["kwargsrepr"]) == (repr(args[0]), "{}")
    assert "hidden" not in json.dumps(message) and TENANT not in json.dumps(message)


def test_the_broker_is_asked_and_told_while_no_transaction_is_open(
    engine: Engine, relay: Relay, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = connect(autocommit=True)
    wire, seen = relay._wire, []

    def watched(name: str) -> None:
        ask = getattr(wire, name)

        def ask_and_look(*args: Any) -> Any:
            answer = ask(*args)
            open_ones = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchone()
            seen.append((name, open_ones))
            return answer

        monkeypatch.setattr(wire, name, ask_and_look)

    watched("look")
    watched("publish")
    an_endpoint(engine)
    some_events(engine)
    assert relay.once() == 1
    assert seen == [("look", (0,)), ("publish", (0,))]


def test_what_could_not_be_published_comes_up_again_when_the_take_lapses(
    engine: Engine, clock: Clock, settings: Settings, broker_url: str
) -> None:
    """The broker is full: it takes the look and refuses the message."""
    relay = Relay(settings, engine, make_celery(settings), LedgerClock(engine))
    an_endpoint(engine)
    some_events(engine)
    with redis.Redis.from_url(broker_url) as client:
        assert relay.once() == 1
        with engine.begin() as connection:
            connection.execute(text("UPDATE duehook.outbox SET look_at = duehook.now(), taken = NULL"))
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(LOST):
                relay.once()
        finally:
            client.config_set("maxmemory", 0)
            relay._wire.close()
    assert rows(engine, "SELECT publications FROM duehook.outbox") == [0]
    clock.advance(seconds=3)
    assert relay.once() == 1


PUBLISHED = "SELECT publications FROM duehook.outbox WHERE kind = 'delivery' ORDER BY ref"


def test_only_what_nobody_has_claimed_a_moment_later_is_moved(engine: Engine, relay: Relay) -> None:
    """A claim sets the next look itself; to move the row before it would be work for nothing."""
    an_endpoint(engine)
    some_events(engine, 3)
    assert relay.once() == 3
    assert (relay.once(), rows(engine, PUBLISHED)) == (0, [0, 0, 0])
    (first,) = claimed(engine, rows(engine, "SELECT min(id) FROM duehook.deliveries")[0])
    wait_until(lambda: relay.once() or rows(engine, PUBLISHED) != [0, 0, 0], what="it has moved them")
    left = rows(engine, "SELECT ref FROM duehook.outbox WHERE publications = 0")
    assert (left, rows(engine, PUBLISHED)) == ([first.delivery], [0, 1, 1])


def test_a_relay_that_stops_moves_what_it_has_published(engine: Engine, relay: Relay) -> None:
    an_endpoint(engine)
    some_events(engine, 3)
    assert relay.once() == 3
    relay.stop()
    relay.run()
    assert rows(engine, PUBLISHED) == [1, 1, 1]


def test_what_a_relay_has_not_moved_when_the_broker_is_emptied_is_published_again_though_another_saw_it_first(
    engine: Engine, relay: Relay, settings: Settings, broker_url: str
) -> None:
    an_endpoint(engine)
    some_events(engine, 5)
    assert relay.once() == 5
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
    assert Relay(settings, engine, make_celery(settings), LedgerClock(engine)).once() == 0
    assert relay.once() == 5


def test_what_an_emptied_broker_has_lost_is_published_again_by_the_next_look(
    engine: Engine, relay: Relay, broker_url: str
) -> None:
    an_endpoint(engine)
    some_events(engine, 5)
    assert (relay.once(), relay.once()) == (5, 0)
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
    assert relay.once() == 5
    assert len(messages_of(broker_url, "delivery")) == 1


def test_a_restart_of_the_broker_is_noticed_though_its_mark_is_there_still(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    """It may have lost what came last, and the mark is older than that."""
    valkey = Valkey(tmp_path)
    valkey.start()
    try:
        settings = load(database_url=database_url, broker_url=valkey.url, secrets_key=["k" * 32])
        relay = Relay(settings, engine, make_celery(settings), LedgerClock(engine))
        an_endpoint(engine)
        some_events(engine, 5)
        assert (relay.once(), relay.once()) == (5, 0)
        with redis.Redis.from_url(valkey.url) as client:
            mark = client.get(EPOCH)
        valkey.kill()
        valkey.start()
        relay._wire.close()
        with redis.Redis.from_url(valkey.url) as client:
            assert mark is not None and client.get(EPOCH) == mark
        assert relay.once() == 5
    finally:
        valkey.stop()


def test_another_relay_on_the_same_broker_publishes_nothing_again(
    engine: Engine, relay: Relay, settings: Settings
) -> None:
    an_endpoint(engine)
    some_events(engine, 5)
    assert relay.once() == 5
    wait_until(lambda: relay.once() or rows(engine, PUBLISHED) == [1] * 5, what="it has moved them")
    assert Relay(settings, engine, make_celery(settings), LedgerClock(engine)).once() == 0


def test_what_is_wrong_with_a_broker_is_told_without_its_words() -> None:
    secret = "redis://:hidden@127.0.0.1:9/0"
    wrapped = redis.ConnectionError("away")
    wrapped.__cause__ = OSError(secret)
    assert [_what(each) for each in (redis.ConnectionError(secret), wrapped)] == ["ConnectionError", "OSError"]
