"""This process as the ledger knows it: which it is, how far its host's clock is off, and why it takes no work."""

import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from typing import Self
from uuid import uuid4

import structlog
from sqlalchemy import Connection, Engine

from app import metrics
from app.core.clock import LedgerClock
from app.core.threads import start_vital
from app.ledger import processes
from app.ledger.database import UNDONE, cause_of, in_transaction
from app.ledger.processes import Who

log = structlog.get_logger("duehook.presence")

SECONDS = 5.0  # between two words to the ledger
SECONDS_OFF = 1.0  # the same while the clock is off
LOOK = 0.25  # between two looks at the host's clock, which ask nobody
OFF = 1.0  # seconds that a host's clock may be off
RIGHT = 0.5  # within this it is right again: one that is off by the limit must not be now in and now out


def leave_counted(engine: Engine, role: str) -> None:
    """Add what this process has counted to the sums of its host, when it ends and has no row of its own."""
    in_transaction(engine, lambda connection: _leave(connection, _myself(role)))


def _myself(role: str) -> Who:
    return Who(uuid4(), role, socket.gethostname(), os.getpid(), version("duehook"))


def _leave(connection: Connection, who: Who) -> None:
    processes.tell(connection, who, timedelta(), None, metrics.counted()[0])
    processes.leave(connection, who.id)


class Presence:
    """Keeps this process's row and its `clock`, which is measured every few seconds.

    A process that goes by its host's own clock gives `heard`: it is called every few seconds with why the process
    must take no work, None when it may, so that it may miss one. Anybody else goes by `clock` and may go on.
    A database that is away changes nothing; starting needs it.
    """

    def __init__(self, engine: Engine, role: str, heard: Callable[[str | None], None] | None = None) -> None:
        self._engine = engine
        self._who = _myself(role)
        self._heard = heard
        self._stopping = threading.Event()
        self.clock = LedgerClock(engine)
        self.unready: str | None = None
        self._waits: str | None = None
        self._heard_of = True  # by the ledger, when it was told last
        self._say()
        self._thread = start_vital("presence", self._run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_for(self, why: str | None) -> None:
        """Let the ledger know with the next word why this process takes no work; None when it does again."""
        self._waits = why

    def stop(self) -> None:
        """Take this process's row away; a repeat does nothing."""
        self._stopping.set()
        self._thread.join()
        try:
            in_transaction(self._engine, lambda connection: _leave(connection, self._who))
        except UNDONE:  # it is taken for dead, and forgotten after a day
            pass

    def _run(self) -> None:
        said = time.monotonic()
        while not self._stopping.wait(LOOK):
            pause = SECONDS_OFF if self.unready else SECONDS
            if time.monotonic() >= said + pause or self._turned():
                self._say()
                said = time.monotonic()

    def _say(self) -> None:
        """Measured first: a host that slept looks like one whose clock was set, until the database is asked."""
        try:
            self.clock.measure()
        except UNDONE:
            pass
        if self._heard is not None:
            self._judge()
            self._heard(self.unready)
        try:
            in_transaction(self._engine, self._tell)
        except UNDONE as error:
            if self._heard_of:  # once: it is said again every few seconds
                log.warning("presence_not_told", error=cause_of(error))
            self._heard_of = False
        else:
            self._heard_of = True

    def _tell(self, connection: Connection) -> None:
        offset = timedelta(seconds=self.clock.offset)
        why = self.unready or self._waits
        counted, gauges = metrics.counted()
        self.clock.hear(lambda: processes.tell(connection, self._who, offset, why, counted, gauges))
        processes.forget(connection)

    def _judge(self) -> None:
        turned, offset = self._turned(), self.clock.offset
        off = turned != bool(self.unready)
        side = "behind" if offset > 0 else "ahead of"
        self.unready = f"this host's clock is {abs(offset):.3f} s {side} the database's" if off else None
        if turned and off:
            log.error("clock_off", why=self.unready, takes_no_work_until_within_seconds=RIGHT)
        elif turned:
            log.warning("clock_right", offset_seconds=round(offset, 3))

    def _turned(self) -> bool:
        """Whether the clock is off that was right, or right that was off: for certain, whatever it is exactly."""
        if self._heard is None:
            return False
        off, error = abs(self.clock.offset), self.clock.error
        return off + error < RIGHT if self.unready else off - error > OFF
