"""Redrives on real processes: workers killed in the middle, wake-ups that come too often, no broker at all."""

import time
from itertools import count

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, text

from app.broker import TASK, make_celery
from app.core import jobs as core
from app.core import redrives
from app.domain.states import JobStatus
from app.domain.wakeups import Kind
from app.ledger import jobs, service
from app.ledger.dead_letters import Filter
from app.ledger.jobs import Job
from app.settings import load
from tests.ledgers import TENANT, an_endpoint, dead, rows
from tests.processes import Service
from tests.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
MANY = 3_000
ROUNDS = "SELECT DISTINCT round FROM duehook.deliveries ORDER BY 1"


def redrive(engine: Engine, rate: float | None = None) -> int:
    with engine.begin() as connection:
        return redrives.start(connection, TENANT, Filter(), rate).seq


def job(engine: Engine, seq: int) -> Job:
    with engine.begin() as connection:
        found = jobs.find(connection, TENANT, seq)
    assert found is not None
    return found


def wait_for(engine: Engine, seq: int, done: int, deadline: float = 60) -> Job:
    """Returns when it has done so many, or has ended."""

    def come_so_far() -> Job | None:
        now = job(engine, seq)
        opened = rows(engine, "SELECT count(*) FROM duehook.deliveries WHERE round = 2")[0]
        assert now.done <= opened, "progress is what is committed, and a moment old"
        return now if now.done >= done or now.status is JobStatus.COMPLETED else None

    found = wait_until(come_so_far, deadline=deadline, what=f"{done} are re-opened")
    assert found is not None
    return found


def test_an_upkeep_worker_killed_in_the_middle_loses_nothing_and_counts_nothing_twice(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    receiver.register(engine, event_types=["order.*"])
    dead(engine, MANY)
    running.relay().wait_ready()
    seq = redrive(engine)
    for lives in count(1):
        worker = running.worker("upkeep").wait_ready()
        before = job(engine, seq).done
        reached = wait_for(engine, seq, before + MANY // 6)
        if reached.status is JobStatus.COMPLETED:
            assert lives > 2, "it was killed at least twice"
            break
        worker.kill()
    assert (reached.done, reached.total) == (MANY, MANY)
    assert reached.result == {"reopened": MANY, "made": 0, "skipped": {}}
    assert rows(engine, ROUNDS) == [2]
    running.worker("delivery").wait_ready()
    delivered = "SELECT count(*) FROM duehook.deliveries WHERE status = 'delivered'"
    wait_until(lambda: rows(engine, delivered) == [MANY], deadline=90, what="all are delivered")
    assert set(receiver.events.values()) == {1}
    assert len(receiver.events) == MANY
    assert {each.attempt for each in receiver.received} == {2}


def test_wakeups_that_come_too_often_and_to_two_workers_do_nothing_twice(
    engine: Engine, running: Service, broker_url: str
) -> None:
    an_endpoint(engine, event_types=["order.*"])
    dead(engine, MANY)
    seq = redrive(engine, rate=2_000)
    for process in (running.relay(), running.worker("upkeep"), running.worker("upkeep")):
        process.wait_ready()
    celery = make_celery(load(broker_url=SecretStr(broker_url)))
    began = time.monotonic()
    while job(engine, seq).status is not JobStatus.COMPLETED:
        celery.send_task(TASK[Kind.JOB], args=[[seq, seq], [0, 0]], queue="upkeep")
        assert time.monotonic() < began + 60
        time.sleep(0.01)  # a hundred a second
    assert time.monotonic() > began + MANY / 2_000 - 0.2 - 0.1, "and never faster than the rate"
    ended = job(engine, seq)
    assert (ended.done, ended.total, rows(engine, ROUNDS)) == (MANY, MANY, [2])
    assert rows(engine, "SELECT count(*) FROM duehook.events WHERE type = 'job.completed'") == [1]


def test_the_scan_does_them_without_a_broker_and_a_cancel_holds(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    del running.environment["DUEHOOK_BROKER_URL"]
    receiver.register(engine, event_types=["order.*"])
    dead(engine, MANY)
    with engine.begin() as connection:
        service.set_scan_share(connection, 100)
    scans = [running.scan().wait_ready() for _ in range(2)]
    first = redrive(engine)
    wait_for(engine, first, 400)
    scans[0].kill()
    with engine.begin() as connection:
        cancelled = core.cancel(connection, TENANT, first)
    assert isinstance(cancelled, Job)
    left = MANY - cancelled.done
    assert 0 < left < MANY
    second = redrive(engine)
    ended = wait_for(engine, second, left)
    wait_until(lambda: job(engine, second).status is JobStatus.COMPLETED, deadline=30, what="it has ended")
    assert ended.done == left
    assert job(engine, first) == cancelled, "nobody has touched it since"
    with engine.begin() as connection:
        opened = connection.execute(text("SELECT count(*) FROM duehook.deliveries WHERE round = 2")).scalar_one()
        reopened_again = connection.execute(
            text("SELECT count(*) FROM duehook.deliveries WHERE round > 2")
        ).scalar_one()
    assert (opened, reopened_again) == (MANY, 0)
