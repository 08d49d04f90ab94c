"""The ledger's clock as this process can read it without asking: its own clock and the measured offset."""

import threading
import time
from datetime import UTC, datetime

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from app.ledger import service

ROUNDS = 3


class LedgerClock:
    """`time()` in seconds since 1970 by the database's clock, right within half a round trip when last measured."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.offset = 0.0
        self.measure()

    def time(self) -> float:
        return time.time() + self.offset

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)

    def measure(self) -> float:
        """Ask the database a few times and keep the answer of the quickest round trip (Cristian, 1989)."""
        answers = []
        with self._engine.connect() as connection:
            for _ in range(ROUNDS):
                before = time.time()
                at = service.now(connection).timestamp()
                after = time.time()
                answers.append((after - before, at - (before + after) / 2))
        self.offset = min(answers)[1]
        return self.offset

    def keep(self, every: float, stop: threading.Event) -> None:
        """Measure again every so many seconds until stopped; a database that is away changes nothing."""
        while not stop.wait(every):
            try:
                self.measure()
            except OperationalError:
                continue
