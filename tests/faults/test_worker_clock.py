"""A worker on a host whose clock is wrong, is set while it runs, and is put right again."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from app.broker import PREFIX
from app.core.presence import OFF
from app.core.taking import AHEAD
from tests.faults.test_crash_table import all_delivered
from tests.ledgers import rows, some_events
from tests.processes import Process, Service
from tests.receivers import Answer, Received, Receiver
from tests.waiting import wait_until

RECEIVED = "] received"
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FAKETIME is None, reason="libfaketime is missing, run: apt-get install libfaketime"),
]


class HostClock:
    """The clock of one process's host, by libfaketime; its monotonic clock goes on as it does when a clock is set."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead: float) -> None:
        """So many seconds ahead of the right one."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead:+f}\n")
        new.replace(self._file)


@pytest.fixture
def host_clock(tmp_path: Path) -> HostClock:
    return HostClock(tmp_path)


def worker_there(running: Service, clock: HostClock, *lanes: str) -> Process:
    """A worker on the host with that clock."""
    right = running.environment
    running.environment = right | clock.environment
    worker = running.worker(*lanes)
    running.environment = right
    return worker


def note_arrivals(receiver: Receiver) -> dict[str, float]:
    arrived: dict[str, float] = {}

    def answer(received: Received) -> Answer:
        arrived[received.event_id] = time.time()
        return Answer()

    receiver.answer = answer
    return arrived


def lateness(engine: Engine, arrived: dict[str, float]) -> list[float]:
    """Seconds from due to arrival, of each event that arrived."""
    due = rows(engine, "SELECT id || ' ' || extract(epoch FROM due_at) FROM duehook.events")
    return sorted(arrived[event] - float(at) for event, at in (each.split() for each in due) if event in arrived)


def went_away(worker: Process) -> Callable[[], bool]:
    return lambda: "clock_off" in worker.log.read_text() and not worker.ready_file.exists()


def test_a_worker_whose_clock_is_off_takes_nothing_while_another_is_on_time_and_comes_back_with_its_clock(
    engine: Engine, running: Service, receiver: Receiver, host_clock: HostClock
) -> None:
    arrived = note_arrivals(receiver)
    receiver.register(engine)
    running.relay().wait_ready()
    wrong = worker_there(running, host_clock, "delivery").wait_ready()
    right = running.worker("delivery").wait_ready()
    host_clock.set(300)
    wait_until(went_away(wrong), deadline=5, what="it notices within a second or two")
    assert "300" in wrong.log.read_text().split("clock_off")[0].splitlines()[-1]
    taken = wrong.log.read_text().count(RECEIVED)

    for _ in range(20):
        some_events(engine, 1)
        some_events(engine, 1, delay_seconds=2.5)
    wait_until(lambda: all_delivered(engine, 40))
    late = lateness(engine, arrived)
    assert late[0] >= 0
    assert late[-1] < 1
    assert wrong.log.read_text().count(RECEIVED) == taken

    host_clock.set(0)
    wait_until(wrong.ready_file.exists, deadline=5, what="it is ready again")
    assert right.stop() == 0
    some_events(engine, 5)
    wait_until(lambda: all_delivered(engine, 45))
    assert set(receiver.events.values()) == {1}
    assert wrong.running


def test_a_worker_that_starts_with_a_wrong_clock_waits_for_the_right_one(
    engine: Engine, running: Service, receiver: Receiver, host_clock: HostClock, broker_url: str
) -> None:
    host_clock.set(-300)
    receiver.register(engine)
    worker = worker_there(running, host_clock, "delivery")
    running.relay().wait_ready()
    some_events(engine, 3)
    with redis.Redis.from_url(broker_url) as client:
        wait_until(lambda: "clock_off" in worker.log.read_text(), deadline=20)
        wait_until(lambda: "Connected to" in worker.log.read_text(), deadline=20)
        wait_until(lambda: client.llen(PREFIX + "delivery") > 0, what="the wake-up is published")
        wait_until(lambda: "unready" in str(unready(engine)), what="the ledger knows why")
        assert client.llen(PREFIX + "delivery") > 0
    assert not worker.ready_file.exists()
    assert receiver.received == []
    host_clock.set(0)
    wait_until(lambda: all_delivered(engine, 3), deadline=5)
    assert worker.ready_file.exists()


def unready(engine: Engine) -> list[str]:
    return rows(engine, "SELECT 'unready: ' || unready FROM duehook.processes WHERE unready IS NOT NULL")


def test_what_a_worker_holds_when_its_clock_is_set_back_is_done_on_time_by_another(
    engine: Engine, running: Service, receiver: Receiver, host_clock: HostClock, broker_url: str
) -> None:
    """By its own clock it would hold some for five minutes longer; their publish lease would end after one."""
    running.environment |= {
        "DUEHOOK_HORIZON_SECONDS": "4",
        "DUEHOOK_PUBLISH_LEASE_SECONDS": "60",
        "DUEHOOK_VISIBILITY_TIMEOUT_SECONDS": "60",
    }
    arrived = note_arrivals(receiver)
    receiver.register(engine)
    running.relay().wait_ready()
    wrong = worker_there(running, host_clock, "delivery").wait_ready()
    with redis.Redis.from_url(broker_url) as client:
        some_events(engine, 5, delay_seconds=4)
        wait_until(lambda: client.hlen(PREFIX + "unacked") > 0, what="a wake-up is held by the worker")
        some_events(engine, 5, delay_seconds=4)  # it gets these before it looks at its clock, most likely
        host_clock.set(-300)
        wait_until(went_away(wrong), deadline=5)
        wait_until(lambda: client.llen(PREFIX + "delivery") > 0, what="it is in its queue again")
        assert client.hlen(PREFIX + "unacked") == 0
    running.worker("delivery").wait_ready()
    wait_until(lambda: all_delivered(engine, 10), deadline=8)
    assert set(receiver.events.values()) == {1}
    assert lateness(engine, arrived)[0] >= 0
    assert '"woken"' not in wrong.log.read_text()


def test_a_clock_that_is_off_by_less_than_a_second_changes_no_due_time(
    engine: Engine, running: Service, receiver: Receiver, host_clock: HostClock
) -> None:
    """A clock would delay each round, a busy machine now and then one: the best of three says what the clock does."""
    arrived = note_arrivals(receiver)
    receiver.register(engine)
    running.relay().wait_ready()
    worker = worker_there(running, host_clock, "delivery").wait_ready()
    late: dict[float, list[float]] = {0.8: [], -0.8: []}
    for number, offset in enumerate([*late] * 3, start=1):
        arrived.clear()
        host_clock.set(offset)
        some_events(engine, 5, delay_seconds=3)  # Celery has them first
        wait_until(lambda number=number: all_delivered(engine, 5 * number), deadline=12)  # type: ignore[misc]
        first, *_, last = lateness(engine, arrived)
        assert first >= 0
        late[offset].append(last)
    assert max(min(each) for each in late.values()) < 0.3, late
    assert worker.ready_file.exists()


def test_a_worker_has_its_ids_before_they_are_due_whatever_clock_it_may_have() -> None:
    celery_s_look = 1.0  # its loop may sleep as long as that when a timer has fired
    assert timedelta(seconds=OFF + celery_s_look) <= AHEAD
