"""The producers of a run: they do the plan's steps, ask again until answered, and remember only what they were told."""

import queue
import threading
import time
from collections import Counter
from typing import Any

import psycopg

from app.client import Client, ConflictError, DuehookError, NewEvent
from tests.chaos.fleet import Fleet
from tests.chaos.plan import TENANTS, Plan, Step, payload_of

PRODUCERS = 6
INSERT = """
    INSERT INTO duehook.events (tenant, type, key, data) VALUES (%s, 'order.placed', %s, %s) ON CONFLICT DO NOTHING"""


class Load:
    """`expected` are (tenant, key) of events that must exist, `rolled_back` those that must not; `confirmed` are the
    reservations whose confirm was answered with yes, `held` those whose hold was.
    """

    def __init__(self, plan: Plan, fleet: Fleet) -> None:
        self._fleet = fleet
        self._steps: queue.Queue[Step] = queue.Queue()
        for step in plan.steps():
            self._steps.put(step)
        self.total = self._steps.qsize()
        self.expected: set[tuple[str, str]] = set()
        self.rolled_back: set[tuple[str, str]] = set()
        self.held: set[str] = set()
        self.confirmed: set[str] = set()
        self.surprises: Counter[str] = Counter()
        self._holds: dict[str, threading.Event] = {
            step.ids[0]: threading.Event() for step in list(self._steps.queue) if step.what == "hold"
        }
        self._threads = [threading.Thread(target=self._produce, daemon=True) for _ in range(PRODUCERS)]
        self._stopped = threading.Event()

    def start(self) -> None:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def left(self) -> int:
        return self._steps.qsize()

    def stop(self) -> None:
        self._stopped.set()

    def _produce(self) -> None:
        clients = {tenant: self._fleet.client(tenant) for tenant in TENANTS}
        while not self._stopped.is_set():
            try:
                step = self._steps.get_nowait()
            except queue.Empty:
                return
            if (wait := self._began + step.at - time.monotonic()) > 0:
                self._stopped.wait(wait)
            self._until_done(step, clients[step.tenant])

    def _until_done(self, step: Step, client: Client) -> None:
        while not self._stopped.is_set():
            try:
                self._do(step, client)
                return
            except DuehookError as error:  # none is expected that the client does not live through itself
                self.surprises[f"{step.what}: {type(error).__name__}: {error}"[:160]] += 1
            except psycopg.Error:
                pass  # the transaction may have been committed all the same: once more, its keys are its own
            self._stopped.wait(0.2)

    def _do(self, step: Step, client: Client) -> None:
        keyed: dict[str, Any] = {"idempotency_key": f"{step.what}-{step.ids[0]}"}
        match step.what:
            case "hold":
                client.reservations.hold("seat", hold_seconds=step.seconds, id=step.ids[0], **keyed)
                self.held.add(step.ids[0])
                self._holds[step.ids[0]].set()
            case "confirm" | "release":
                self._end(step, client, keyed)
            case "list":
                events = [NewEvent("order.placed", payload_of(key), key=key) for key in step.ids]
                client.events.post_many(events, **keyed)
                self.expected |= {(step.tenant, key) for key in step.ids}
            case "single" | "scheduled":
                (key,) = step.ids
                delay = step.seconds or None
                client.events.post("order.placed", payload_of(key), key=key, delay_seconds=delay, **keyed)
                self.expected.add((step.tenant, key))
            case "sql" | "rolled-back":
                self._transact(step)

    def _end(self, step: Step, client: Client, keyed: dict[str, Any]) -> None:
        (id,) = step.ids
        while not self._holds[id].wait(0.2):
            if self._stopped.is_set():
                return
        try:
            if step.what == "confirm":
                client.reservations.confirm(id, **keyed)
                self.confirmed.add(id)
            else:
                client.reservations.release(id, **keyed)
        except ConflictError:
            pass  # it came too late

    def _transact(self, step: Step) -> None:
        wanted = {(step.tenant, key) for key in step.ids}
        with psycopg.connect(self._fleet.postgres.url, connect_timeout=5, options="-c lock_timeout=10s") as connection:
            for key in step.ids:
                connection.execute(INSERT, (step.tenant, key, psycopg.types.json.Json(payload_of(key))))
            if step.what == "rolled-back":
                connection.rollback()
                self.rolled_back |= wanted
                return
        self.expected |= wanted
