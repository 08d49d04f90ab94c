"""Rows that nobody could have stored through any door of ours: each ends alone, and what is beside it goes out."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from app.core.dispatch import Dispatcher
from app.ledger.sealing import Sealer
from tests.integration.test_dispatch import Dispatching, dispatching
from tests.ledgers import deliveries_of, row, rows, some_events
from tests.processes import KEY
from tests.receivers import Receiver
from tests.waiting import wait_until

__all__ = ["dispatching"]
SEALER = Sealer([KEY])
DAMAGE: dict[str, tuple[str, Any]] = {
    "no URL": ("url", ""),
    "no host": ("url", "http://"),
    "another scheme": ("url", "ftp://127.0.0.1/"),
    "headers that are no JSON": ("headers", SEALER.seal("{")),
    "headers that are a number": ("headers", SEALER.seal("5")),
    "headers that are a list": ("headers", SEALER.seal('["ab"]')),
    "a header that is a number": ("headers", SEALER.seal('{"a": 5}')),
    "a header of two lines": ("headers", SEALER.seal('{"a": "b\\r\\nc: d"}')),
    "a header that is no Latin": ("headers", SEALER.seal('{"a": "\\u2028"}')),
    "a header without a name": ("headers", SEALER.seal('{"": "b"}')),
    "half a character": ("headers", SEALER.seal('{"a": "\\ud800"}')),
}
DAMAGE |= {
    "never again": ("retry_schedule", [float("nan")]),
    "yesterday": ("retry_schedule", [-1.0]),
    "at the end of time": ("retry_schedule", [1e300]),
}
SECRETS = {
    "a secret that is none": SEALER.seal("none"),
    "an empty secret": SEALER.seal(""),
    "a short secret": SEALER.seal("whsec_AAAA"),
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def damaged_beside_sound(engine: Engine, receiver: Receiver, statement: str, value: object) -> tuple[list[int], int]:
    """The deliveries of an event to three endpoints, and which of those is damaged."""
    seqs = [receiver.register(engine) for _ in range(3)]
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(statement), {"value": value, "seq": seqs[1]})
    (event,) = some_events(engine)
    return deliveries_of(engine, event), seqs[1]


def ends_alone(engine: Engine, dispatcher: Dispatcher, ids: list[int], damaged: int) -> None:
    dispatcher.deliver(ids)
    wait_until(lambda: sorted(rows(engine, "SELECT status FROM duehook.deliveries")) == ["dead", *["delivered"] * 2])
    assert row(engine, "dead_letters", "endpoint", damaged)["reason"] == "poison"
    assert rows(engine, "SELECT outcome FROM duehook.attempts ORDER BY outcome") == [
        "delivered",
        "delivered",
        "unreached",
    ]


@pytest.mark.parametrize("what", DAMAGE)
def test_an_endpoint_s_damaged_row_ends_its_delivery_and_stops_none_beside_it(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, what: str
) -> None:
    column, value = DAMAGE[what]
    dispatcher, _ = dispatching()
    ids, damaged = damaged_beside_sound(
        engine, receiver, f"UPDATE duehook.endpoints SET {column} = :value WHERE seq = :seq", value
    )
    ends_alone(engine, dispatcher, ids, damaged)


@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_that_nobody_can_sign_with_ends_its_delivery_and_stops_none_beside_it(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, what: str
) -> None:
    dispatcher, _ = dispatching()
    ids, damaged = damaged_beside_sound(
        engine, receiver, "UPDATE duehook.secrets SET sealed = :value WHERE endpoint = :seq", SECRETS[what]
    )
    ends_alone(engine, dispatcher, ids, damaged)


def test_a_secret_under_another_key_costs_its_delivery_no_attempt_and_stops_none_beside_it(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    """Lost infrastructure, not poison: a process with the right keys may have it."""
    dispatcher, _ = dispatching()
    sealed = Sealer(["another key, of thirty-two characters or more"]).seal(receiver.secret)
    ids, _ = damaged_beside_sound(
        engine, receiver, "UPDATE duehook.secrets SET sealed = :value WHERE endpoint = :seq", sealed
    )
    dispatcher.deliver(ids)
    ended = ["delivered", "delivered", "scheduled"]
    wait_until(lambda: sorted(rows(engine, "SELECT status FROM duehook.deliveries")) == ended)
    assert rows(engine, "SELECT outcome FROM duehook.attempts") == ["delivered"] * 2
    assert rows(engine, "SELECT abandoned FROM duehook.deliveries") == [0, 0, 0]
