"""From a wake-up to a recorded outcome, in one process with a real receiver."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from app import settings as settings_of
from app.core.clock import LedgerClock
from app.core.dispatch import Dispatcher
from app.domain.wakeups import Answer
from app.runtime import make_dispatcher, open_runtime
from tests.ledgers import an_endpoint, deliveries_of, row, rows, some_events
from tests.processes import KEY
from tests.receivers import Answer as Reply
from tests.receivers import Receiver
from tests.waiting import wait_until


@pytest.fixture
def dispatcher(engine: Engine, database_url: str) -> Iterator[Dispatcher]:
    settings = settings_of.load(database_url=database_url, secrets_key=KEY, allowed_networks="127.0.0.0/8")
    runtime = open_runtime(settings, application_name="test", pool_size=4)
    made = make_dispatcher(runtime, LedgerClock(runtime.engine))
    yield made
    made.stop()
    runtime.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def ids_of(engine: Engine, events: list[int]) -> list[int]:
    return [each for event in events for each in deliveries_of(engine, event)]


def states(engine: Engine) -> list[str]:
    return rows(engine, "SELECT status FROM duehook.deliveries ORDER BY id")


def test_a_delivery_whose_event_is_gone_is_buried_and_the_others_go_out(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    receiver.register(engine)
    events = some_events(engine, 3)
    ids = ids_of(engine, events)
    with engine.begin() as connection:  # as nobody can but the owner, with the guards switched off
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text("DELETE FROM duehook.events WHERE seq = :seq"), {"seq": events[1]})
    dispatcher.deliver(ids)
    wait_until(lambda: states(engine) == ["delivered", "dead", "delivered"])
    assert row(engine, "dead_letters", "delivery", ids[1])["reason"] == "poison"
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM duehook.deliveries WHERE id = :id"), {"id": ids[1]})


def test_an_endpoint_that_can_t_be_signed_for_harms_no_other(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    receiver.register(engine)
    without_secret = an_endpoint(engine)
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: sorted(states(engine)) == ["dead", "delivered"])
    assert rows(engine, "SELECT endpoint FROM duehook.dead_letters") == [without_secret]


def test_a_410_buries_the_delivery_and_disables_the_endpoint_and_tells_the_others(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine, event_types=["order.*"])
    receiver.answer = lambda _: Reply(410)
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: row(engine, "endpoints", "seq", endpoint)["status"] == "disabled")
    assert row(engine, "endpoints", "seq", endpoint)["disabled_reason"] == "gone"
    assert rows(engine, "SELECT reason FROM duehook.dead_letters") == ["gone"]
    assert rows(engine, "SELECT type FROM duehook.events WHERE origin = 'service'") == ["endpoint.disabled"]


def test_a_401_flags_the_endpoint_and_is_tried_again_in_minutes(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine)
    receiver.answer = lambda _: Reply(401)
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: row(engine, "endpoints", "seq", endpoint)["flagged"])
    assert states(engine) == ["scheduled"]
    assert rows(engine, "SELECT next_attempt_at > now() + interval '299 s' FROM duehook.deliveries") == [True]


def test_an_outcome_of_an_older_revision_says_nothing_about_the_endpoint(
    engine: Engine, dispatcher: Dispatcher, receiver: Receiver
) -> None:
    endpoint = receiver.register(engine)

    def move_and_answer(_: object) -> Reply:
        with engine.begin() as connection:
            connection.execute(text("UPDATE duehook.endpoints SET revision = revision + 1"))
        return Reply(410)

    receiver.answer = move_and_answer
    (event,) = some_events(engine)
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: states(engine) == ["dead"])
    (again,) = some_events(engine)
    receiver.answer = lambda _: Reply(200)
    dispatcher.deliver(deliveries_of(engine, again))
    wait_until(lambda: states(engine) == ["dead", "delivered"])
    assert row(engine, "endpoints", "seq", endpoint)["status"] == "enabled"


def test_a_repeated_wake_up_sends_nothing_twice(engine: Engine, dispatcher: Dispatcher, receiver: Receiver) -> None:
    receiver.register(engine)
    ids = ids_of(engine, some_events(engine, 20))
    dispatcher.deliver(ids)
    assert set(dispatcher.deliver(ids).answers.values()) <= {Answer.HELD, Answer.GONE, Answer.LOCKED}
    wait_until(lambda: set(states(engine)) == {"delivered"})
    assert set(receiver.events.values()) == {1}
