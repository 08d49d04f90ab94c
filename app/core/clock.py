"""The ledger's clock as this process can read it without asking, and how far this host's own clock is from it."""

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine

from app.ledger import service

ROUNDS = 3
DRIFT = 0.0005  # seconds a second that two clocks may drift apart: as fast as NTP slews one


class LedgerClock:
    """`time()` in seconds since 1970 by the database's clock, within half a round trip of it when last measured.

    It runs on this host's monotonic clock, which nobody sets: when the host's own clock is set while this process
    runs, nothing here moves, and `offset` shows it at once. What a suspended host slept through is missing until the
    next measure.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ahead = 0.0
        self._error = math.inf
        self._measured = 0.0
        self.measure()

    def time(self) -> float:
        return time.monotonic() + self._ahead

    def now(self) -> datetime:
        return self.at(time.monotonic())

    def at(self, monotonic: float) -> datetime:
        """When it was that `time.monotonic()` said so."""
        return datetime.fromtimestamp(monotonic + self._ahead, UTC)

    @property
    def offset(self) -> float:
        """How many seconds the ledger's clock is ahead of this host's, right now."""
        return self.time() - time.time()

    @property
    def error(self) -> float:
        """How many seconds `time()` and `offset` may be wrong by now."""
        return self._error + (time.monotonic() - self._measured) * DRIFT

    def measure(self) -> None:
        """Ask the database a few times; raises when it is away, and what was known stays."""
        with self._engine.connect() as connection:
            self.measure_by(connection)

    def measure_by(self, connection: Connection) -> None:
        """The same over a connection that is open."""
        for _ in range(ROUNDS):
            self.hear(lambda: service.now(connection))

    def hear(self, ask: Callable[[], datetime]) -> None:
        """Take one answer, unless what is known is more exact than half its round trip (Cristian, 1989).

        An answer that contradicts what is known is taken in any case: this host slept, or the database has moved to
        another one.
        """
        before = time.monotonic()
        at = ask().timestamp()
        after = time.monotonic()
        ahead, error = at - (before + after) / 2, (after - before) / 2
        known = self.error
        if error <= known or abs(ahead - self._ahead) > error + known:
            self._ahead, self._error, self._measured = ahead, error, after
