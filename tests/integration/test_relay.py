"""One look of the relay after another, against a real broker with nobody behind it."""

import pytest
import redis
from sqlalchemy import Engine

from app.broker import make_celery
from app.core.clock import LedgerClock
from app.settings import Settings, load
from outbox_relay.relay import MOST_MESSAGES, Relay
from tests.ledgers import an_endpoint, rows, some_events


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
    assert rows(engine, "SELECT kind FROM duehook.outbox WHERE publications > 0") == ["reservation"]
