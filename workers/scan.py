"""The scan: takes what is due out of the outbox and acts on it in this process, without any broker.

The other adapter of the same core: it takes and moves as the relay does, and in between wakes the host that lives in
this process. Several may run side by side.
"""

import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence

import structlog

from app.core.taking import FOLLOW, Taking
from app.core.threads import start_vital
from app.domain.wakeups import LANE, Adapter, Kind, Lane
from app.ledger import service
from app.ledger.database import UNDONE, cause_of, in_transaction
from app.ledger.outbox import Room, Taken
from app.process import set_up
from app.runtime import Runtime, open_runtime
from app.settings import Settings
from workers.host import Host

log = structlog.get_logger("duehook.scan")

POOL_SIZE = (
    15  # connections: a thread for each lane and for upkeep, one that follows, the host's timers, recorder and clock
)
SWEEP = 200  # rows of one kind in one take
IDLE = (0.002, 0.02)  # seconds between looks while there is nothing: at first, at most
JITTER = (0.8, 1.2)  # of a pause: scans that were started together must not look together
TROUBLE = (0.1, 5.0)  # seconds between tries while the database is away
UNREADY = 10.0  # seconds of that until it says so
SET_SCAN = "duehook wakeups set scan"


def scan(settings: Settings) -> None:
    """Notice and do this adapter's part of the work until a signal ends it.

    They are a worker's: SIGTERM, or one SIGINT, lets what is in the air end; SIGQUIT, or another SIGINT, leaves it to
    its leases.
    """
    runtime = open_runtime(settings, application_name="duehook scan", pool_size=POOL_SIZE)
    host = Host(runtime, "scan")
    told = _listen(host)
    host.start()
    running = Scan(runtime, host)
    set_up()
    settings.tell_ready()
    told.get()
    host.hurry()
    running.stop()
    settings.tell_unready()
    host.stop()
    log.info("scan_ended")


def _listen(host: Host) -> "queue.SimpleQueue[int]":
    """Gets what signals say; a queue of this kind is one that a handler may use, whatever it has interrupted."""
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        if number == signal.SIGQUIT or (number == signal.SIGINT and heard):
            host.cut()
        heard.append(number)
        told.put(number)

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        signal.signal(each, hear)
    return told


class Scan:
    """Works from the start, while its share is not 0; a thread for each lane, so that none holds up another."""

    def __init__(self, runtime: Runtime, host: Host) -> None:
        self._runtime = runtime
        self._host = host
        self._working = threading.Event()
        self._stopping = threading.Event()
        self._fine = time.monotonic()
        self._warned = False
        self._share: int | None = None
        self._threads = [
            self._begin("share", self._follow),
            self._begin(Lane.EXPIRY, self._while_working(Sweeper(runtime, host, Lane.EXPIRY).look)),
            self._begin(Lane.DELIVERY, self._while_working(Sweeper(runtime, host, Lane.DELIVERY).look)),
            self._begin(Lane.UPKEEP, self._while_working(Sweeper(runtime, host, Lane.UPKEEP).look)),
        ]
        self._begin("audit", self._while_working(self._keep_up))

    def stop(self) -> None:
        """Take nothing more; returns when everything taken is acted on, or held by the host.

        Upkeep is not waited for: it may take seconds, and its transactions are whole and short.
        """
        self._stopping.set()
        self._working.set()
        for thread in self._threads:
            thread.join()

    def _begin(self, name: str, turn: Callable[[], float]) -> threading.Thread:
        """A thread that takes one turn after the other, as many seconds apart as each says."""
        return start_vital(name, lambda: self._take_turns(name, turn))

    def _take_turns(self, name: str, turn: Callable[[], float]) -> None:
        trouble = TROUBLE[0]
        while not self._stopping.is_set():
            try:
                pause = turn()
                trouble = TROUBLE[0]
            except UNDONE as error:  # what was taken comes up again
                pause = trouble
                trouble = min(trouble * 2, TROUBLE[1])
                log.warning("scan_waits", thread=name, error=cause_of(error), seconds=round(pause, 1))
            self._stopping.wait(pause * random.uniform(*JITTER))

    def _while_working(self, turn: Callable[[], float]) -> Callable[[], float]:
        def wait_and_turn() -> float:
            self._working.wait()
            return 0 if self._stopping.is_set() else turn()

        return wait_and_turn

    def _follow(self) -> float:
        """Have the others work or rest, as the share says; all that is done while it is 0."""
        settings = self._runtime.settings
        try:
            share = in_transaction(self._runtime.engine, service.scan_share)
        except UNDONE:
            if time.monotonic() > self._fine + UNREADY:
                settings.tell_unready()
            raise
        if time.monotonic() > self._fine + UNREADY:
            settings.tell_ready()
        self._fine = time.monotonic()
        if share != self._share:
            log.info("scan_began" if self._share is None else "scan_share", share=share)
            self._share = share
        if share:
            self._working.set()
        else:
            self._working.clear()
            self._warn_if_nobody_works()
        return FOLLOW

    def _warn_if_nobody_works(self) -> None:
        if self._runtime.settings.broker_url is None and not self._warned:
            log.warning("nobody_notices", why="the queue has all the work and no broker is set", run=SET_SCAN)
            self._warned = True

    def _keep_up(self) -> float:
        """What beat has the workers do otherwise: a deployment without a broker must be whole."""
        self._host.audit()
        return self._runtime.settings.sweep_seconds


class Sweeper:
    """One lane's sweeps, in one thread: take what is due soon → wake the host → move it."""

    def __init__(self, runtime: Runtime, host: Host, lane: Lane) -> None:
        settings = runtime.settings
        self._taking = Taking(runtime.engine, Adapter.SCAN, settings.publish_lease, settings.horizon)
        self._host = host
        # What waits for its time is fanned out before deliveries are claimed, which may wait for room.
        self._kinds = [kind for kind in Kind if LANE[kind] is lane]
        self._idle = IDLE[0]

    def look(self) -> float:
        """One sweep; the seconds until the next."""
        batch = self._taking.take({kind: self._room(kind) for kind in self._kinds})
        if not batch.rows:
            self._idle = min(self._idle * 2, IDLE[1])
            return self._idle
        for kind in self._kinds:
            self._wake(kind, [row for row in batch.rows if row.kind is kind])
        self._taking.move(batch)  # what the host holds: what it has acted on has another look, or none, already
        self._idle = IDLE[0]
        return 0

    def _room(self, kind: Kind) -> Room:
        return self._taking.room(min(SWEEP, self._host.room(kind)), self._host.held(kind))

    def _wake(self, kind: Kind, rows: Sequence[Taken]) -> None:
        if not rows:
            return
        dues = [int(row.due_at.timestamp() * 1_000_000) for row in rows]
        try:
            self._host.wake(kind, [row.ref for row in rows], dues)
        except UNDONE:
            raise
        except Exception:  # as on a timer: it must not end the lane, and the rows come up after their publish lease
            log.exception("wakeup_failed", kind=kind, ids=len(rows))
