"""The producers of a run: they do the plan's steps, ask again until answered, and remember only what they were told."""

import queue
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from app.client import Accepted, Client, ConflictError, DuehookError, NewEvent, Reservation
from tests.chaos.fleet import Fleet
from tests.chaos.plan import TENANTS, Plan, Step, payload_of

PRODUCERS = 6
RESOURCE = "seat"
ENDS = {"confirm": "confirmed", "release": "released"}
ASKED_AGAIN = 5  # one step in so many is asked for once more, after it was answered
INSERT = """
    INSERT INTO duehook.events (tenant, type, key, data) VALUES (%s, 'order.placed', %s, %s) ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class Act:
    """A confirm or release: when it was first asked for, when it was answered, and whether with yes."""

    what: str
    asked_at: float
    answered_at: float
    yes: bool


@dataclass(slots=True)
class Told:
    """What producers asked for and were answered, and what they committed themselves; times are since 1970.

    `expected` are (tenant, key) of events that must exist, `rolled_back` those that must not; `ids` the ids that the
    API gave for a key, `due` when it said that an event is due. `held` are the reservations whose hold was answered
    with yes, and when it said that they end. `windows` says of a key and a reservation between which times that must
    be: after what was asked for, counted from the first request, and after the same, counted from the answer.
    `contradictions` are answers that did not fit what was asked, or an earlier answer.
    """

    expected: set[tuple[str, str]] = field(default_factory=set)
    rolled_back: set[tuple[str, str]] = field(default_factory=set)
    ids: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)
    acts: dict[str, Act] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)

    def end_of(self, id: str) -> str:
        """What a reservation must have become."""
        act = self.acts.get(id)
        return ENDS[act.what] if act and act.yes else "expired"

    def accepted(self, step: Step, asked_at: float, events: Iterable[Accepted]) -> None:
        """As the API answered, perhaps once more."""
        answered = list(events)
        keys = tuple(each.key for each in answered)
        self.unless(keys == step.ids, f"the answer to {step.ids} was of {keys}")
        for key, event in zip(step.ids, answered, strict=False):
            self.ids.setdefault((step.tenant, key), set()).add(event.id)
            due_at = event.due_at.timestamp()
            self.unless(self.due.setdefault(key, due_at) == due_at, f"{key} was said to be due at two times")
        self.committed(step, asked_at)

    def committed(self, step: Step, asked_at: float) -> None:
        """By the API or by the producer itself; the answer has just come."""
        for key in step.ids:
            self.expected.add((step.tenant, key))
            self.windows.setdefault(key, (asked_at + step.seconds, time.time() + step.seconds))

    def hold(self, step: Step, asked_at: float, held: Reservation) -> None:
        """As the API answered, perhaps once more."""
        (id,) = step.ids
        self.unless((held.id, held.resource) == (id, RESOURCE), f"the hold of {id} was answered with {held.id}")
        ends_at = held.expires_at.timestamp()
        self.unless(self.held.setdefault(id, ends_at) == ends_at, f"{id} was said to end at two times")
        self.windows.setdefault(id, (asked_at + step.seconds, time.time() + step.seconds))
        self.tenants[id] = step.tenant

    def act(self, step: Step, asked_at: float, status: str | None) -> None:
        """As the API answered, perhaps once more: with this status, or with no."""
        (id,) = step.ids
        yes = status is not None
        self.unless(status in (None, ENDS[step.what]), f"{step.what} of {id} made it {status}")
        first = self.acts.setdefault(id, Act(step.what, asked_at, time.time(), yes))
        self.unless(first.yes == yes, f"{step.what} of {id} was answered with yes and with no")

    def unless(self, right: bool, sentence: str) -> None:
        if not right:
            self.contradictions.append(sentence)


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
        self._asked: dict[str, float] = {}  # when a confirm or release was first asked for
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
        asked_at = time.time()
        while not self._stopped.is_set():
            try:
                self._do(step, client, asked_at)
                return
            except ConflictError as error:  # its ids are its own, and it asks for the same each time
                self.told.contradictions.append(f"{step.what} of {step.ids[0]} was refused: {error}")
                return
            except DuehookError as error:  # none is expected that the client does not live through itself
                self.surprises[f"{step.what}: {type(error).__name__}: {error}"[:160]] += 1
            except psycopg.Error:
                pass  # the transaction may have been committed all the same: once more, its keys are its own
            self._stopped.wait(0.2)

    def _do(self, step: Step, client: Client, asked_at: float) -> None:
        match step.what:
            case "hold":
                for keyed in askings(step):
                    held = client.reservations.hold(RESOURCE, hold_seconds=step.seconds, id=step.ids[0], **keyed)
                    self.told.hold(step, asked_at, held)
                self._holds[step.ids[0]].set()
            case "confirm" | "release":
                self._end(step, client)
            case "list":
                events = [NewEvent("order.placed", payload_of(key), key=key) for key in step.ids]
                for keyed in askings(step):
                    self.told.accepted(step, asked_at, client.events.post_many(events, **keyed))
            case "single" | "scheduled":
                (key,) = step.ids
                delay = step.seconds or None
                for keyed in askings(step):
                    posted = client.events.post("order.placed", payload_of(key), key=key, delay_seconds=delay, **keyed)
                    self.told.accepted(step, asked_at, [posted])
            case "sql" | "rolled-back":
                self._transact(step, asked_at)

    def _end(self, step: Step, client: Client) -> None:
        (id,) = step.ids
        while not self._holds[id].wait(0.2):
            if self._stopped.is_set():
                return
        asked_at = self._asked.setdefault(id, time.time())
        act = client.reservations.confirm if step.what == "confirm" else client.reservations.release
        for keyed in askings(step):
            try:
                status = act(id, **keyed).status
            except ConflictError:
                status = None
            self.told.act(step, asked_at, status)

    def _transact(self, step: Step, asked_at: float) -> None:
        with psycopg.connect(self._fleet.postgres.url, connect_timeout=5, options="-c lock_timeout=10s") as connection:
            for key in step.ids:
                connection.execute(INSERT, (step.tenant, key, psycopg.types.json.Json(payload_of(key))))
            if step.what == "rolled-back":
                connection.rollback()
                self.told.rolled_back |= {(step.tenant, key) for key in step.ids}
                return
        self.told.committed(step, asked_at)


def askings(step: Step) -> Iterator[dict[str, Any]]:
    """With its idempotency key; of some steps once more without it, so that the ledger alone can tell the repeat."""
    yield {"idempotency_key": f"{step.what}-{step.ids[0]}"}
    if zlib.crc32(step.ids[0].encode()) % ASKED_AGAIN == 0:
        yield {}
