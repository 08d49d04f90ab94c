"""The crash table of the design, a row each: what was killed, what is left, what heals it."""

import signal
import threading
from uuid import uuid4

import pytest
import redis
from sqlalchemy import Engine, text

from app import settings as settings_of
from app.broker import TASK, make_celery
from app.core import deliveries as core
from app.core import events
from app.domain.wakeups import Kind
from app.ledger import outbox
from app.ledger.database import in_transaction
from app.ledger.outbox import Room
from tests.ledgers import ROOM, TENANT, TERMS, deliveries_of, row, rows, some_events
from tests.processes import Service
from tests.receivers import Answer, Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def all_delivered(engine: Engine, count: int) -> bool:
    states = rows(engine, "SELECT status FROM duehook.deliveries")
    return len(states) == count and set(states) == {"delivered"}


def stalled(receiver: Receiver) -> tuple[threading.Event, threading.Event]:
    """Have it keep its answers back: set when a request has arrived, and to be set to let them go."""
    arrived, hold = threading.Event(), threading.Event()

    def stall(_: object) -> Answer:
        arrived.set()
        return Answer(hold=hold)

    receiver.answer = stall
    return arrived, hold


def test_an_event_committed_before_anything_ran_is_delivered_once_it_does(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    some_events(engine, 20, data='{"emoji":"\U0001f69a","n":1.0}')
    running.relay()
    running.worker("delivery")
    wait_until(lambda: all_delivered(engine, 20), deadline=30)
    assert set(receiver.events.values()) == {1}
    assert receiver.received[0].body.endswith('"data":{"emoji":"\U0001f69a","n":1.0}}'.encode())


def test_rows_taken_by_a_relay_that_died_before_publishing_come_up_again(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    some_events(engine, 3)
    in_transaction(engine, lambda connection: outbox.take(connection, uuid4(), {Kind.DELIVERY: Room(100)}))
    running.relay()
    running.worker("delivery")
    wait_until(lambda: all_delivered(engine, 3), deadline=30)
    assert set(receiver.events.values()) == {1}


def test_what_was_published_but_not_moved_is_published_twice_and_delivered_once(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    """As left by a relay killed between publish and move: a wake-up in Redis, and the row up again."""
    receiver.register(engine)
    relay = running.relay().wait_ready()
    some_events(engine, 50)
    wait_until(lambda: rows(engine, "SELECT min(publications) FROM duehook.outbox") == [1])
    relay.kill()
    with engine.begin() as connection:
        connection.execute(text("UPDATE duehook.outbox SET publications = 0, look_at = now()"))
    running.relay()
    wait_until(lambda: rows(engine, "SELECT min(publications) FROM duehook.outbox") == [1])
    running.worker("delivery")
    wait_until(lambda: all_delivered(engine, 50), deadline=30)
    assert set(receiver.events.values()) == {1}
    assert rows(engine, "SELECT max(attempt) FROM duehook.deliveries") == [1]


def test_an_emptied_redis_costs_one_publish_lease(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    receiver.register(engine)
    running.relay().wait_ready()
    some_events(engine, 10)
    wait_until(lambda: rows(engine, "SELECT min(publications) FROM duehook.outbox") == [1])
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
    running.worker("delivery")
    wait_until(lambda: all_delivered(engine, 10), deadline=30)
    assert set(receiver.events.values()) == {1}


def test_ids_on_a_killed_worker_s_timer_come_up_after_the_publish_lease(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    some_events(engine, 5, delay_seconds=1.5)
    wait_until(lambda: rows(engine, "SELECT min(publications) FROM duehook.outbox") == [1])
    worker.kill()
    running.worker("delivery")
    wait_until(lambda: all_delivered(engine, 5), deadline=40)
    assert set(receiver.events.values()) == {1}


def test_a_lease_of_a_killed_worker_heals_at_its_end_without_beat(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    """Killed after the claim, before the send: attempt + 1, same step, same bytes."""
    receiver.register(engine)
    (event,) = some_events(engine)
    (delivery,) = deliveries_of(engine, event)
    terms = core.Terms(lease=TERMS.lease / 15, max_age=TERMS.max_age)  # 3 s
    core.claim(engine, [delivery], terms, ROOM)
    running.relay()
    running.worker("delivery")
    wait_until(lambda: all_delivered(engine, 1), deadline=30)
    assert [each.attempt for each in receiver.received] == [2]
    assert rows(engine, "SELECT number || outcome FROM duehook.attempts ORDER BY number") == [
        "1abandoned",
        "2delivered",
    ]


def test_a_worker_killed_after_the_send_and_before_the_record_sends_the_same_event_again(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    some_events(engine)
    assert arrived.wait(15)
    worker.kill()
    hold.set()
    receiver.answer = lambda _: Answer()
    running.worker("delivery")
    wait_until(lambda: all_delivered(engine, 1), deadline=30)
    first, second = receiver.received
    assert (first.event_id, first.body) == (second.event_id, second.body)
    assert (first.attempt, second.attempt) == (1, 2)


def test_a_cancel_while_a_dead_worker_s_lease_runs_ends_as_cancelled(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    (event,) = some_events(engine)
    (delivery,) = deliveries_of(engine, event)
    core.claim(engine, [delivery], core.Terms(lease=TERMS.lease / 15, max_age=TERMS.max_age), ROOM)
    with engine.begin() as connection:
        events.cancel(connection, TENANT, event)
    running.relay()
    running.worker("delivery")
    wait_until(lambda: rows(engine, "SELECT status FROM duehook.deliveries") == ["cancelled"], deadline=30)
    assert receiver.received == []


def test_a_wake_up_redelivered_after_its_outcome_was_recorded_claims_nothing(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    running.relay().wait_ready()
    running.worker("delivery").wait_ready()
    (event,) = some_events(engine)
    wait_until(lambda: all_delivered(engine, 1), deadline=20)
    (delivery,) = deliveries_of(engine, event)
    publish_again(running, delivery)
    some_events(engine)  # behind it in the queue: when this one is done, so is that
    wait_until(lambda: all_delivered(engine, 2), deadline=20)
    assert row(engine, "deliveries", "id", delivery)["attempt"] == 1
    assert set(receiver.events.values()) == {1}


def publish_again(running: Service, delivery: int) -> None:
    """The same wake-up once more, as Redis does when a worker died before its ack."""
    celery = make_celery(settings_of.load(broker_url=running.environment["DUEHOOK_BROKER_URL"]))
    celery.send_task(TASK[Kind.DELIVERY], args=[[delivery], [0]], queue="delivery")
    celery.close()


def test_a_worker_told_to_stop_ends_what_is_in_the_air_and_records_it(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    some_events(engine)
    assert arrived.wait(15)
    worker.send(signal.SIGTERM)
    hold.set()
    wait_until(lambda: not worker.running, deadline=20)
    assert all_delivered(engine, 1)
    assert len(receiver.received) == 1


def test_ids_held_by_a_worker_that_is_told_to_stop_are_looked_at_at_once(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    receiver.register(engine)
    relay = running.relay().wait_ready()
    worker = running.worker("delivery").wait_ready()
    some_events(engine, 5, delay_seconds=1.8)
    wait_until(lambda: rows(engine, "SELECT min(publications) FROM duehook.outbox") == [1])
    relay.stop()
    with redis.Redis.from_url(broker_url) as client:  # read by the worker, and no longer a message anywhere
        wait_until(lambda: not client.exists("duehook:unacked", "duehook:unacked_index", "duehook:delivery"))
    assert worker.stop() == 0
    assert rows(engine, "SELECT ref FROM duehook.outbox WHERE look_at > now() + interval '3 s'") == []
