"""The erasure of a tenant on real processes: its worker killed again and again, its deliveries in the air."""

import threading

import pytest
from sqlalchemy import Engine

from app.core import erasures
from app.domain.states import JobStatus
from app.ledger import jobs
from app.ledger.jobs import Job
from tests.integration.test_erasures import left, orphans
from tests.ledgers import TENANT, rows, some_events
from tests.processes import Service
from tests.receivers import Answer, Received, Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
MANY = 1_500


def job(engine: Engine, seq: int) -> Job:
    with engine.begin() as connection:
        found = jobs.find(connection, TENANT, seq)
    assert found is not None
    return found


def test_a_tenant_goes_whole_though_its_worker_is_killed_and_nothing_is_sent_once_it_has_begun(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    answer = threading.Event()

    def hold(_: Received) -> Answer:
        return Answer(hold=answer)

    receiver.answer = hold
    receiver.register(engine, event_types=["order.*"], max_in_flight=5)
    some_events(engine, MANY)
    for process in (running.relay(), running.worker("delivery")):
        process.wait_ready()
    wait_until(lambda: len(receiver.received) >= 5, deadline=30, what="some are in the air")
    with engine.begin() as connection:
        started = erasures.start_tenant(connection, TENANT, "cli:tester")
    assert started is not None
    sent = lives = 0
    while is_open(engine, started.seq):
        worker = running.worker("upkeep").wait_ready()
        come_on(engine, started.seq, job(engine, started.seq).done + MANY // 2)
        sent, lives = sent or len(receiver.received), lives + 1
        answer.set()
        worker.kill()
    assert lives > 2, "it was killed at least twice"
    ended = job(engine, started.seq)
    assert ended.status is JobStatus.COMPLETED
    assert left(engine) == {"jobs": 1}
    assert orphans(engine) == []
    assert ended.done == sum((ended.result or {})["erased"].values())
    assert len(receiver.received) == sent, "nothing is sent after its first steps"


def come_on(engine: Engine, seq: int, done: int) -> None:
    """Returns when it has done so much, or has ended."""
    wait_until(lambda: job(engine, seq).done > done or not is_open(engine, seq), deadline=60, what="it goes on")


def is_open(engine: Engine, seq: int) -> bool:
    return bool(rows(engine, "SELECT status IN ('queued', 'running') FROM duehook.jobs WHERE seq = :seq", seq=seq)[0])
