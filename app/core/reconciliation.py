"""Reconciliation: the slow second path, and an audit of what the outbox promises."""

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, Engine

from app.ledger import reconciliation
from app.ledger.database import in_transaction
from app.ledger.reconciliation import Terms, Walk
from app.ledger.walking import TOP, Stretch


@dataclass(frozen=True, slots=True)
class Pace:
    """How much one call does: seconds when all is well, seconds while there is something to repair, rows at a time."""

    quiet: float = 0.75
    busy: float = 10.0
    stretch: int = 5_000


TERMS, PACE = Terms(), Pace()
NEWEST = 0.25  # of each walk's time goes to the newest rows, before the walk goes on where it was


def audit(engine: Engine, terms: Terms = TERMS, pace: Pace = PACE) -> Counter[str]:
    """Walk the tables for a moment and repair what breaks the promise; returns repairs by kind.

    It moves nothing that has a correct row: it can't tell what is lost from what is queued behind others. While it
    finds damage it goes on at once, so that even an emptied outbox heals in minutes. Two at once are harmless, and
    one that comes too soon after another has nothing to do. On a healthy day everything is zero.
    """
    if not in_transaction(engine, lambda connection: reconciliation.begin(connection, terms.every / 2)):
        return Counter()
    began = time.monotonic()
    repairs: Counter[str] = Counter()
    for left, which in zip(range(len(Walk), 0, -1), Walk, strict=True):
        now = time.monotonic()
        quiet, busy = (max(0.0, began + most - now) / left for most in (pace.quiet, pace.busy))
        repairs += _Walking(engine, which, terms, pace.stretch, quiet, busy).walk()
    return repairs


class _Walking:
    """One walk of one call: `quiet` seconds long, `busy` seconds while it finds something."""

    def __init__(self, engine: Engine, which: Walk, terms: Terms, most: int, quiet: float, busy: float) -> None:
        self._engine = engine
        self._which = which
        self._terms = terms
        self._most = most
        self._quiet = quiet
        self._began = time.monotonic()
        self._busy_until = self._began + busy
        self._repairs: Counter[str] = Counter()

    def walk(self) -> Counter[str]:
        """The newest rows, then on from where the last call came to; returns what was repaired."""
        below = self._down(TOP, self._began + self._quiet * NEWEST)
        if below is not None:
            mark = in_transaction(self._engine, lambda connection: reconciliation.mark(connection, self._which))
            below = self._down(min(below, mark), self._began + self._quiet)
        in_transaction(self._engine, lambda connection: reconciliation.set_mark(connection, self._which, below))
        return self._repairs

    def _down(self, below: int, quiet_until: float) -> int | None:
        """Stretch after stretch until the time is up; returns below which key to go on, None after the last."""
        while (step := in_transaction(self._engine, partial(self._stretch, below=below))) is not None:
            stretch, repairs = step
            self._repairs += repairs
            if stretch.below is None:
                return None
            below = stretch.below
            if time.monotonic() >= (self._busy_until if repairs else quiet_until):
                break
        return below

    def _stretch(self, connection: Connection, below: int) -> tuple[Stretch, Counter[str]] | None:
        """Look and repair; None when somebody else is at it just now."""
        if not reconciliation.lock_audit(connection):
            return None
        stretch = reconciliation.look(connection, self._which, below, self._most, self._terms)
        if not stretch.suspects:
            return stretch, Counter()
        return stretch, reconciliation.repair(connection, self._which, stretch.suspects, self._terms)
