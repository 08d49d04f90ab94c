"""A delivery that kills whoever sends it, among others that were only in the air beside it."""

import json
import os
import signal
import threading
from collections import Counter

import pytest
from sqlalchemy import Engine

from app.domain.suspicion import POISON_AFTER, SUSPECTED_AFTER
from tests.integration.test_suspects import ended, some_suspects
from tests.killing import kill_peer, peer
from tests.ledgers import rows, some_events
from tests.processes import Process, Service
from tests.receivers import Answer, Received, Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
BYSTANDERS = 500
POISON = "worker.killer"
MANY = {"DUEHOOK_MAX_IN_FLIGHT": "1000", "DUEHOOK_MAX_IN_FLIGHT_EACH": "600"}


class Killer:
    """Answers the poison by killing who asks, and the others when as many deaths as make suspects have been."""

    def __init__(self, receiver: Receiver, crowd: int) -> None:
        self.killed: list[int] = []
        self._receiver = receiver
        self._crowd = crowd
        self._calm = threading.Event()
        receiver.answer = self._answer

    def _answer(self, received: Received) -> Answer:
        if json.loads(received.body)["type"] != POISON:
            return Answer(hold=self._calm)
        before = len(self._receiver.received)
        if len(self.killed) < SUSPECTED_AFTER:
            wait_until(lambda: len(self._receiver.received) >= before + self._crowd, what="many are in the air")
        self.killed.append(kill_peer(received.connection))
        if len(self.killed) == SUSPECTED_AFTER:
            self._calm.set()
        return Answer()


class Workers:
    """One at a time, started anew when it has died, as its supervisor would."""

    def __init__(self, running: Service, *lanes: str) -> None:
        self._running = running
        self.started: list[Process] = [running.worker("delivery")]

    def keep(self) -> bool:
        """Always False: for a wait that goes on."""
        if not self.started[-1].running:
            self.started.append(self._running.worker("delivery"))
        return False

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.started]


def states(engine: Engine) -> Counter[str]:
    return Counter(rows(engine, "SELECT coalesce(reason, status) FROM duehook.deliveries"))


def test_one_that_kills_every_worker_ends_dead_and_five_hundred_in_the_air_beside_it_are_delivered(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    running.environment |= MANY | {"DUEHOOK_DEADLINE_SECONDS": "8", "DUEHOOK_LEASE_SECONDS": "9"}
    receiver.register(engine)
    killer, workers = Killer(receiver, crowd=100), Workers(running)
    (poison,) = some_events(engine, type=POISON)
    some_events(engine, BYSTANDERS)
    running.relay()
    done = {"poison": 1, "delivered": BYSTANDERS}
    wait_until(lambda: states(engine) == done or workers.keep(), deadline=110, what="all have ended")

    assert killer.killed[:SUSPECTED_AFTER] == workers.pids[:SUSPECTED_AFTER]
    assert len(killer.killed) == POISON_AFTER
    assert len(workers.pids) == SUSPECTED_AFTER + 1, "the last one lives: only its children died"
    assert workers.started[-1].running
    attempts = "SELECT attempt FROM duehook.deliveries WHERE event {} :poison"
    assert rows(engine, attempts.format("="), poison=poison) == [POISON_AFTER]
    assert max(rows(engine, attempts.format("<>"), poison=poison)) <= SUSPECTED_AFTER + 1
    outcomes = Counter(rows(engine, "SELECT outcome FROM duehook.attempts WHERE outcome <> 'abandoned'"))
    assert outcomes == {"delivered": BYSTANDERS}
    abandoned = rows(engine, "SELECT delivery FROM duehook.attempts WHERE outcome = 'abandoned'")
    assert len(set(abandoned)) > 100, "many were suspects"


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_whose_worker_ends_in_the_middle_ends_what_it_has_begun_and_then_itself(
    engine: Engine, running: Service, receiver: Receiver, ending: signal.Signals
) -> None:
    """A signal that stops is sent to the whole group, as a terminal or a container's init does."""
    receiver.register(engine)
    running.environment |= {"DUEHOOK_DEADLINE_SECONDS": "15", "DUEHOOK_LEASE_SECONDS": "20"}
    arrived, hold, children = threading.Event(), threading.Event(), list[int]()

    def stall(received: Received) -> Answer:
        children.append(peer(received.connection))
        arrived.set()
        return Answer(hold=hold)

    receiver.answer = stall
    worker = running.worker("delivery").wait_ready()
    some_suspects(engine, 1)
    running.relay()
    assert arrived.wait(40)
    assert children != [worker.pid]
    if ending is signal.SIGKILL:
        worker.send(ending)
        wait_until(lambda: not worker.running)
    else:
        os.killpg(worker.pid, ending)
    hold.set()
    wait_until(lambda: states(engine) == {"delivered": 1}, deadline=20)
    wait_until(lambda: ended(children[0]) and not worker.running, deadline=30)
    assert rows(engine, "SELECT attempt FROM duehook.deliveries") == [1]
    assert len(receiver.received) == 1
    assert "Traceback" not in worker.log.read_text()
