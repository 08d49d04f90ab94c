"""The work given from one adapter to the other and back, while it goes on."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import Engine, text

from app.core import reservations
from app.core.reservations import Hold
from app.domain.wakeups import Lane
from app.ledger import events, service
from app.ledger.events import NewEvent
from outbox_relay.relay import MOST_IDS
from tests.faults.test_crash_table import all_delivered
from tests.ledgers import TENANT, rows, some_events
from tests.processes import PATIENT, Process, Service
from tests.receivers import Answer, Received, Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ROUNDS = 10  # from the queue to the scan and back
KILLED = {2: Lane.DELIVERY, 5: Lane.EXPIRY}  # after which round the worker of which lane
QUEUES = [f"duehook:{lane}" for lane in Lane]


def give_to_scan(engine: Engine, share: int) -> None:
    with engine.begin() as connection:
        service.set_scan_share(connection, share)


class Load:
    """Orders and reservations without end, and what their one deduplicating receiver made of them."""

    def __init__(self, engine: Engine, receiver: Receiver) -> None:
        self._engine = engine
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.orders = 0
        self.holds = 0
        self._receiver = receiver
        receiver.answer = lambda received: Answer(500 if self._is_refused(received) else 200)
        receiver.register(engine, retry_schedule=[0.2, 0.5, *[1.0] * 20])  # no number of time-outs ends one

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            with self._engine.begin() as connection:
                some = [self._order(delay) for delay in (None, None, None, 0.4, 1.2, 2.5)]
                events.insert(connection, TENANT, some)
                for seconds in (0.3, 0.9, 2.2):
                    self.holds += 1
                    reservations.hold(connection, TENANT, Hold(f"seat {self.holds}", hold_seconds=seconds))

    def _order(self, delay: float | None) -> NewEvent:
        self.orders += 1
        return NewEvent("order.placed", json.dumps({"resource": f"order {self.orders}"}), delay_seconds=delay)

    def _is_refused(self, received: Received) -> bool:
        return received.attempt == 1 and hash(received.event_id) % 5 == 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def wanted(self) -> set[str]:
        return {f"order {n + 1}" for n in range(self.orders)} | {f"seat {n + 1}" for n in range(self.holds)}

    def effects(self) -> Counter[str]:
        """How often each order and each end of a reservation took effect, repeats of an event left out."""
        bodies = {each.event_id: each.body for each in self._receiver.received}
        return Counter(json.loads(body)["data"]["resource"] for body in bodies.values())


class Wire:
    """Everything that is done to the broker."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self.pushed: set[str] = set()
        self.taken: set[str] = set()
        self.deleting: list[str] = []

    def see(self, command: str) -> None:
        name, _, rest = command.partition(" ")
        tags = set(re.findall(r'"delivery_tag": "([^"]+)"', rest))
        match name:
            case "LPUSH" | "RPUSH":
                self.pushed |= tags
            case "HSET":
                self.taken |= tags
            case "DEL" | "UNLINK" | "LTRIM" | "LREM" | "LPOP" | "RPOP" | "RENAME" | "EXPIRE" | "FLUSHALL" | "FLUSHDB":
                if not rest.startswith("duehook:unacked_mutex"):
                    self.deleting.append(command)

    def waiting(self) -> set[str]:
        """The messages that are in a queue, or in the hands of a worker."""
        found = [json.loads(message)["properties"] for queue in QUEUES for message in self._client.lrange(queue, 0, -1)]
        held = {str(tag, "ascii") for tag in self._client.hkeys("duehook:unacked") if isinstance(tag, bytes)}
        return {each["delivery_tag"] for each in found} | held


@contextmanager
def watched(url: str) -> Iterator[Wire]:
    wire, ended = Wire(url), "the end of what is watched"
    with redis.Redis.from_url(url) as client, client.monitor() as monitor:

        def watch() -> None:
            for each in monitor.listen():
                if ended in each["command"]:
                    return
                wire.see(each["command"])

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield wire
        finally:
            client.echo(ended)
            thread.join()


def attempts(engine: Engine) -> dict[int, int]:
    with engine.connect() as connection:
        return {row.id: row.attempt for row in connection.execute(text("SELECT id, attempt FROM duehook.deliveries"))}


def give(engine: Engine, share: int, *to: Process) -> None:
    """Give the scan this share, and wait until those who have work now have acted on some."""

    def acts() -> int:
        return sum(each.log.read_text().count('"event":"woken"') for each in to)

    before = acts()
    give_to_scan(engine, share)
    wait_until(lambda: acts() > before, deadline=20, what="they work")


@pytest.mark.timeout(180)
def test_the_work_goes_to_and_fro_under_load_and_nothing_comes_of_it_but_the_work(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    running.relay().wait_ready()
    scan = running.scan().wait_ready()
    workers = {lane: running.worker(lane).wait_ready() for lane in (Lane.EXPIRY, Lane.DELIVERY)}
    before: dict[int, int] = {}
    with watched(broker_url) as wire:
        with Load(engine, receiver) as load:
            for turn in range(ROUNDS):
                give(engine, 100, scan)
                give(engine, 0, *workers.values())
                now = attempts(engine)
                assert all(now[delivery] >= attempt for delivery, attempt in before.items())
                before = now
                if turn in KILLED:
                    workers[KILLED[turn]].kill()
                    workers[KILLED[turn]] = running.worker(KILLED[turn])
        wait_until(lambda: all_delivered(engine, load.orders + load.holds), deadline=60, what="all is delivered")
        waiting = wire.waiting()
    assert load.effects() == dict.fromkeys(load.wanted, 1)
    sent = Counter((each.delivery_id, each.attempt) for each in receiver.received)
    assert max(sent.values()) == 1, "an attempt number is used once"
    assert wire.deleting == []
    lost = wire.pushed - wire.taken - waiting
    print(load.orders + load.holds, "deliveries", len(wire.pushed), "messages", len(lost), "lost with their workers")
    assert len(wire.pushed) > ROUNDS
    assert len(lost) <= len(KILLED), (
        "Redis loses what a killed worker has just popped, one for each; nobody else loses any"
    )


def test_what_waits_in_the_queue_stays_there_when_the_scan_does_the_work(
    engine: Engine, running: Service, receiver: Receiver, broker_url: str
) -> None:
    running.environment |= PATIENT
    receiver.register(engine)
    running.relay().wait_ready()
    events = 2 * MOST_IDS + 50
    with watched(broker_url) as wire:
        some_events(engine, events)
        wait_until(lambda: rows(engine, "SELECT min(publications) FROM duehook.outbox") == [1])
        in_queue = wire.waiting()
        assert len(in_queue) >= 3
        give_to_scan(engine, 100)
        running.scan()
        wait_until(lambda: all_delivered(engine, events), deadline=30)
        assert wire.waiting() >= in_queue
        give_to_scan(engine, 0)
        running.worker("delivery")
        wait_until(lambda: not wire.waiting(), deadline=20, what="a worker has looked at them all the same")
    assert wire.deleting == []
    assert set(receiver.events.values()) == {1}
    assert rows(engine, "SELECT DISTINCT attempt FROM duehook.deliveries") == [1]
