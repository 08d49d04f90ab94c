"""Leases in real processes: longer than the deadline, renewed while a send goes on, and never in two hands."""

import signal
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from app.core import reservations
from app.core.reservations import Hold
from tests.conftest import Connect
from tests.faults.test_crash_table import all_delivered, stalled
from tests.ledgers import TENANT, rows, some_events
from tests.processes import Process, Service
from tests.receivers import Answer, Receiver
from tests.recording import slow_recording
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def leased_for(running: Service, *, deadline: float, lease: float) -> None:
    """These, for the processes that are started from now on."""
    running.environment |= {"DUEHOOK_DEADLINE_SECONDS": f"{deadline:g}", "DUEHOOK_LEASE_SECONDS": f"{lease:g}"}


def the(engine: Engine, expression: str) -> Any:
    """Of the only delivery, or of all of them together."""
    return rows(engine, f"SELECT {expression} FROM duehook.deliveries")[0]


def attempts(engine: Engine) -> list[str]:
    return rows(engine, "SELECT number || outcome FROM duehook.attempts ORDER BY number")


def hold_seats(engine: Engine, count: int) -> None:
    """They end at one instant, so that they are expired in one statement, not in two by two threads at once."""
    with engine.begin() as connection:
        end = connection.execute(text("SELECT duehook.now() + interval '0.5 s'")).scalar()
        for number in range(count):
            reservations.hold(connection, TENANT, Hold(f"seat {number}", expires_at=end))


def seats(engine: Engine) -> Counter[str]:
    return Counter(rows(engine, "SELECT status FROM duehook.reservations"))


def says(process: Process, word: str) -> bool:
    return word in process.log.read_text()


def two_workers(running: Service, lane: str) -> tuple[Process, Process]:
    """Ready, and a relay beside them."""
    relay, *both = running.relay(), running.worker(lane), running.worker(lane)
    for each in (relay, *both):
        each.wait_ready()
    return both[0], both[1]


def the_one_that_says(workers: Sequence[Process], word: str) -> Process:
    return wait_until(lambda: [each for each in workers if says(each, word)], what=f"one of them says {word!r}")[0]


def test_a_receiver_that_takes_nearly_the_whole_deadline_gets_one_request_though_the_lease_is_hardly_longer(
    engine: Engine, running: Service, receiver: Receiver, connect: Connect
) -> None:
    """Its outcome is recorded half a second after the lease of the claim would have ended."""
    leased_for(running, deadline=3, lease=3.3)
    receiver.register(engine)

    def nearly(_: object) -> Answer:
        time.sleep(0.9 * 3)
        return Answer()

    receiver.answer = nearly
    running.relay()
    worker = running.worker("delivery").wait_ready()
    some_events(engine, 5)
    with slow_recording(connect):
        wait_until(lambda: the(engine, "count(*) FILTER (WHERE status = 'leased')") == 5)
        wait_until(lambda: the(engine, "bool_and(claimed_at + interval '3.8 s' < now())"))
    wait_until(lambda: all_delivered(engine, 5))
    assert set(receiver.events.values()) == {1}
    assert the(engine, "max(attempt)") == 1
    assert says(worker, '"renewed"')


def test_a_worker_that_was_frozen_past_its_lease_records_nothing_for_what_another_has_claimed_since(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    leased_for(running, deadline=2, lease=2.2)
    running.environment["DUEHOOK_PUBLISH_LEASE_SECONDS"] = "0.3"  # the frozen one is sent a wake-up too, in vain
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    workers = two_workers(running, "delivery")
    some_events(engine)
    assert arrived.wait(15)
    frozen = the_one_that_says(workers, '"taken"')
    frozen.send(signal.SIGSTOP)
    receiver.answer = lambda _: Answer()
    wait_until(lambda: all_delivered(engine, 1), deadline=30)
    ended = rows(engine, "SELECT d::text FROM duehook.deliveries d")

    frozen.send(signal.SIGCONT)
    hold.set()
    wait_until(lambda: says(frozen, "superseded"), what="it has found that somebody newer owns it")
    assert attempts(engine) == ["1abandoned", "2delivered"]
    assert rows(engine, "SELECT d::text FROM duehook.deliveries d") == ended
    first, second = receiver.received
    assert (first.event_id, first.body) == (second.event_id, second.body)
    assert (first.attempt, second.attempt) == (1, 2)


def test_a_worker_that_was_frozen_past_its_lease_still_records_what_nobody_has_claimed_since(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    leased_for(running, deadline=2.5, lease=2.7)  # long enough to stop both before it is over
    receiver.register(engine)
    arrived, hold = stalled(receiver)
    relay, frozen = running.relay(), running.worker("delivery")
    some_events(engine)
    assert arrived.wait(15)
    frozen.send(signal.SIGSTOP)
    relay.kill()
    wait_until(lambda: the(engine, "lease_until < now()"), what="the lease has ended")
    assert attempts(engine) == []
    frozen.send(signal.SIGCONT)
    wait_until(lambda: attempts(engine), what="it has recorded")
    hold.set()
    assert attempts(engine) == ["1unknown"], "no answer within the deadline"
    assert the(engine, "(status, attempt, step, abandoned)::text") == "(scheduled,1,1,0)"


def test_a_renewed_lease_of_a_killed_worker_heals_at_its_end_with_nothing_but_a_relay_and_another_worker(
    engine: Engine, running: Service, receiver: Receiver, connect: Connect
) -> None:
    leased_for(running, deadline=1.5, lease=1.65)
    receiver.register(engine)
    workers = two_workers(running, "delivery")
    with slow_recording(connect):
        some_events(engine, 5)
        renewed = "CASE WHEN bool_and(lease_until > claimed_at + interval '2 s') THEN min(lease_until) END"
        ends = wait_until(lambda: the(engine, renewed), what="all of them are renewed")
        the_one_that_says(workers, '"renewed"').kill()
    wait_until(lambda: all_delivered(engine, 5), deadline=30)
    assert set(receiver.events.values()) == {2}
    assert len({(each.event_id, each.body) for each in receiver.received}) == 5
    assert the(engine, "(min(attempt), max(attempt), min(step), max(step))::text") == "(2,2,1,1)"
    second = rows(engine, "SELECT min(started_at) FROM duehook.attempts WHERE number = 2")
    assert second[0] > ends - timedelta(seconds=0.2), "not before the lease ended, give or take two clocks"


def test_a_relay_frozen_while_it_publishes_loses_and_doubles_nothing_beside_another(
    engine: Engine, running: Service, receiver: Receiver, connect: Connect
) -> None:
    """Mostly between take and publish, or publish and move; it goes on when the other has done its work."""
    running.environment |= {"DUEHOOK_MAX_IN_FLIGHT": "400", "DUEHOOK_MAX_IN_FLIGHT_EACH": "400"}
    receiver.register(engine)
    frozen, worker = running.relay(), running.worker("delivery")
    for each in (frozen, worker):
        each.wait_ready()
    watcher = connect(autocommit=True)
    some_events(engine, 300)
    wait_until(lambda: watcher.execute("SELECT FROM duehook.outbox WHERE taken IS NOT NULL").rowcount)
    frozen.send(signal.SIGSTOP)
    running.relay()
    wait_until(lambda: all_delivered(engine, 300), deadline=30)
    frozen.send(signal.SIGCONT)
    some_events(engine, 20)
    wait_until(lambda: all_delivered(engine, 320), deadline=30)
    assert frozen.running
    assert set(receiver.events.values()) == {1}
    assert the(engine, "max(attempt)") == 1


def test_an_expiry_worker_frozen_in_a_batch_delays_that_batch_alone_and_nothing_of_it_expires_twice(
    engine: Engine, running: Service, connect: Connect
) -> None:
    running.environment["DUEHOOK_PUBLISH_LEASE_SECONDS"] = "0.3"  # the frozen one is sent a wake-up too, in vain
    workers = two_workers(running, "expiry")
    gate = connect()
    gate.execute("LOCK TABLE duehook.events IN SHARE MODE")
    hold_seats(engine, 20)
    waits = "SELECT pid FROM pg_stat_activity WHERE application_name ~ 'worker' AND wait_event_type = 'Lock'"
    (session,) = wait_until(lambda: rows(engine, waits), what="the batch waits for the table of events")
    frozen = the_one_that_says(workers, "duehook.expire[")
    frozen.send(signal.SIGSTOP)
    gate.rollback()
    idle = f"SELECT state = 'idle in transaction' FROM pg_stat_activity WHERE pid = {session}"
    wait_until(lambda: rows(engine, idle) == [True], what="its transaction stands open")

    hold_seats(engine, 5)
    wait_until(lambda: seats(engine) == {"held": 20, "expired": 5}, deadline=20)
    with engine.begin() as connection:  # as PostgreSQL does by itself, after a while
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar() == "10s"
        connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": session})
    wait_until(lambda: seats(engine) == {"expired": 25})
    frozen.send(signal.SIGCONT)
    hold_seats(engine, 5)
    wait_until(lambda: seats(engine) == {"expired": 30})
    assert rows(engine, "SELECT count(*) FROM duehook.events") == [30]
    assert frozen.running
