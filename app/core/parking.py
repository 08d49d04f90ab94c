"""Parks in a thread of its own what endpoints take no more of: a backlog must not hold up whoever claims.

Ids that wait here are no claims and have no lease: their wake-ups were published, so their rows come up again if this
process dies. Parking takes at most half of the thread's time, because it shares the database with all that is due.
"""

import threading
import time
from collections.abc import Iterable

import structlog
from sqlalchemy import Engine

from app.core import deliveries
from app.core.sets import PAUSE
from app.core.threads import start_vital
from app.ledger.database import UNDONE, cause_of

log = structlog.get_logger("duehook.core")

MOST = 200  # in one statement
MOST_WAITING = 20_000  # ids; beyond it `add` waits
LONGEST_REST = 0.25  # seconds
TROUBLE = 0.5  # seconds until another try while the database is away


class Parking:
    """`add` from any thread."""

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._ids: dict[int, None] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = start_vital("parking", self._run)

    def add(self, ids: Iterable[int]) -> None:
        """Park these soon; waits while very many wait already, so that a backlog stays in the ledger."""
        with self._changed:
            self._ids.update(dict.fromkeys(ids))
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or len(self._ids) <= MOST_WAITING)

    def close(self) -> list[int]:
        """Park no more; returns what was not."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        return list(self._ids)

    def _run(self) -> None:
        while some := self._next():
            began = time.monotonic()
            try:
                again = deliveries.park(self._database, sorted(some)).again
            except UNDONE as error:
                log.warning("parking_waits", error=cause_of(error), ids=len(some))
                self._rest(TROUBLE)
                continue
            with self._changed:
                for each in some:
                    del self._ids[each]
                self._changed.notify_all()
            self._rest(min(LONGEST_REST, time.monotonic() - began))
            if again:  # somebody holds their rows of the outbox too
                self._rest(PAUSE.total_seconds())
                self.add(again)

    def _next(self) -> list[int]:
        """The first that wait; nothing when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._ids)
            return [] if self._closed else [each for each, _ in zip(self._ids, range(MOST), strict=False)]

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)
