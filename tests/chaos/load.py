"""The producers of a run: they do the plan's steps, ask again until answered, and remember only what they were told."""

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from app.client import Accepted, Client, ConflictError, DuehookError, NewEvent
from tests.chaos.fleet import Fleet
from tests.chaos.plan import TENANTS, Plan, Step, payload_of

PRODUCERS = 6
INSERT = """
    INSERT INTO duehook.events (tenant, type, key, data) VALUES (%s, 'order.placed', %s, %s) ON CONFLICT DO NOTHING"""


@dataclass(slots=True)
class Told:
    """What producers were answered, and what they committed themselves.

    `expected` are (tenant, key) of events that must exist, `rolled_back` those that must not; `ids` the ids that the
    API gave for a key, `due` when it said that a scheduled one is due, in seconds since 1970. `held` are the
    reservations whose hold was answered with yes, and when it said that they end; `ends` those of them whose confirm or
    release was, and what that makes of them; `refused` those where it came too late.
    """

    expected: set[tuple[str, str]] = field(default_factory=set)
    rolled_back: set[tuple[str, str]] = field(default_factory=set)
    ids: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def accepted(self, tenant: str, events: Iterable[Accepted]) -> None:
        """As the API answered."""
        for each in events:
            assert each.key
            self.expected.add((tenant, each.key))
            self.ids.setdefault((tenant, each.key), set()).add(each.id)
            if each.due_at > each.created_at:
                self.due[each.id] = each.due_at.timestamp()


class Load:
    """The producers; `told` is what they may rely on."""

    def __init__(self, plan: Plan, fleet: Fleet) -> None:
        self._fleet = fleet
        self._steps: queue.Queue[Step] = queue.Queue()
        for step in plan.steps():
            self._steps.put(step)
        self.total = self._steps.qsize()
        self.told = Told()
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
                held = client.reservations.hold("seat", hold_seconds=step.seconds, id=step.ids[0], **keyed)
                self.told.held[held.id] = held.expires_at.timestamp()
                self.told.tenants[held.id] = step.tenant
                self._holds[step.ids[0]].set()
            case "confirm" | "release":
                self._end(step, client, keyed)
            case "list":
                events = [NewEvent("order.placed", payload_of(key), key=key) for key in step.ids]
                self.told.accepted(step.tenant, client.events.post_many(events, **keyed))
            case "single" | "scheduled":
                (key,) = step.ids
                delay = step.seconds or None
                posted = client.events.post("order.placed", payload_of(key), key=key, delay_seconds=delay, **keyed)
                self.told.accepted(step.tenant, [posted])
            case "sql" | "rolled-back":
                self._transact(step)

    def _end(self, step: Step, client: Client, keyed: dict[str, Any]) -> None:
        (id,) = step.ids
        while not self._holds[id].wait(0.2):
            if self._stopped.is_set():
                return
        try:
            act = client.reservations.confirm if step.what == "confirm" else client.reservations.release
            self.told.ends[id] = act(id, **keyed).status
        except ConflictError:
            self.told.refused.add(id)

    def _transact(self, step: Step) -> None:
        wanted = {(step.tenant, key) for key in step.ids}
        with psycopg.connect(self._fleet.postgres.url, connect_timeout=5, options="-c lock_timeout=10s") as connection:
            for key in step.ids:
                connection.execute(INSERT, (step.tenant, key, psycopg.types.json.Json(payload_of(key))))
            if step.what == "rolled-back":
                connection.rollback()
                self.told.rolled_back |= wanted
                return
        self.told.expected |= wanted
