"""The relay: take what is due soon → publish wake-ups → move the rows to the end of their publish lease.

No network call in a transaction: a relay that dies between two steps leaves rows that come up again, and a wake-up
that was published twice finds nothing to do the second time. Several may run side by side.

A row is moved a moment after it was published: most have been claimed by then, which has moved them already.
"""

import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import structlog
from celery import Celery
from sqlalchemy import Engine

from app import broker, metrics
from app.core.clock import LedgerClock
from app.core.taking import AHEAD, FRESH, Batch, Taking
from app.domain.wakeups import AT_ONCE, LANE, Adapter, Kind, Lane
from app.ledger import service
from app.ledger.database import UNDONE, cause_of, in_transaction
from app.ledger.outbox import Room, Taken
from app.settings import Settings
from outbox_relay.wire import LOST, Wakeup, make_wire

log = structlog.get_logger("duehook.relay")

# Receiving a message costs a worker more than a millisecond of CPU, an id in a batch a twentieth of that.
MOST_IDS = 200
TOGETHER = timedelta(seconds=1)  # a message's ids are due within it
MOST_MESSAGES = 5  # waiting in one queue; more waits in PostgreSQL, where it can be shared fairly
MOST_BACKLOG = 3  # the same of a backlog: what falls due just now waits behind them
IDLE = (0.002, 0.02)  # seconds between looks while there is nothing: at first, at most
OTHERS = 0.2  # the same while the scan notices everything
UNCLAIMED = 0.3  # seconds after which what was published is moved if nobody has claimed it; less than a take lasts
TROUBLE = (0.1, 5.0)  # seconds between tries while the broker or the database is away
UNREADY = 5.0  # seconds of trouble until it says so
KINDS = tuple(broker.TASK)
AWAY = (*LOST, *UNDONE)


def wakeups(taken: Sequence[Taken], now: datetime) -> Iterator[Wakeup]:
    """Pack taken rows into messages: by kind, in order of due time, at most `MOST_IDS` and `TOGETHER` in each.

    Of what is overdue the fresh goes first, and otherwise what was taken first: the rest is late already.
    """
    ordered = sorted(taken, key=lambda row: (row.kind, max(row.due_at, now), row.due_at < now - FRESH))
    for kind, rows in groupby(ordered, key=lambda row: row.kind):
        batch: list[Taken] = []
        for row in rows:
            if batch and (len(batch) == MOST_IDS or max(row.due_at, now) > max(batch[0].due_at, now) + TOGETHER):
                yield _wakeup(kind, batch, now)
                batch = []
            batch.append(row)
        yield _wakeup(kind, batch, now)


def _wakeup(kind: Kind, rows: Sequence[Taken], now: datetime) -> Wakeup:
    eta = rows[0].due_at - AHEAD
    return Wakeup(kind, rows, eta if eta > now and kind not in AT_ONCE else None)


class Ahead:
    """How many ids of a lane were published before they were due, and are not due yet."""

    def __init__(self) -> None:
        self._held: deque[tuple[datetime, int]] = deque()
        self._ids = 0

    def add(self, wakeups: Sequence[Wakeup]) -> None:
        for wakeup in wakeups:
            if wakeup.eta is not None:
                self._held.append((wakeup.eta, len(wakeup.rows)))
                self._ids += len(wakeup.rows)

    def ids(self, now: datetime) -> int:
        while self._held and self._held[0][0] <= now:
            self._ids -= self._held.popleft()[1]
        return self._ids


class Relay:
    """Runs until stopped; `waits` is told why it takes no work, and None when it does again."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        celery: Celery,
        clock: LedgerClock,
        waits: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._clock = clock
        self._waits = waits
        self._taking = Taking(engine, Adapter.QUEUE, settings.publish_lease, settings.horizon)
        self._wire = make_wire(celery)
        self._ahead = {lane: Ahead() for lane in Lane}
        self._published: deque[tuple[float, Batch]] = deque()  # when, and what has not been moved
        self._epoch: str | None = None
        self._stop = threading.Event()

    def stop(self) -> None:
        """End after the batch in progress: what is taken is published and moved, or comes up again."""
        self._stop.set()

    def run(self) -> None:
        """Look, publish, look again; quicker while there is work, and slower while something is away."""
        pause, trouble = IDLE[0], TROUBLE[0]
        fine = time.monotonic()
        while not self._stop.is_set():
            try:
                found = self.once()
            except AWAY as error:
                log.warning("relay_waits", error=_what(error), seconds=round(trouble, 1))
                metrics.PUBLISH_FAILURES.inc()
                self._wire.close()
                if time.monotonic() > fine + UNREADY:
                    self._settings.tell_unready()
                    self._waits(f"it can't publish ({_what(error)})")
                self._stop.wait(trouble)
                trouble = min(trouble * 2, TROUBLE[1]) * random.uniform(0.8, 1)
                continue
            if time.monotonic() > fine + 1:
                fine = time.monotonic()
                self._settings.tell_ready()
                self._waits(None)
            trouble = TROUBLE[0]
            pause = IDLE[0] if found else min(pause * 2, IDLE[1])
            if not found:
                self._stop.wait(OTHERS if self._taking.idle else pause)
        self._move_at_the_end()
        self._wire.close()

    def once(self) -> int:
        """One look; returns how many rows were published."""
        seen = self._wire.look()
        if seen.epoch not in (None, self._epoch):
            self._begin(seen.epoch)
        self._move(time.monotonic() - UNCLAIMED)
        batch = self._taking.take(self._rooms(seen.waiting))
        if batch.rows:
            messages = list(wakeups(batch.rows, self._clock.now()))
            self._wire.publish(messages)
            for lane, ahead in self._ahead.items():
                ahead.add([each for each in messages if LANE[each.kind] is lane])
            self._published.append((time.monotonic(), batch))
            for lane, number in Counter(LANE[row.kind] for row in batch.rows).items():
                metrics.PUBLISHED.labels(lane.value).inc(number)
        return len(batch.rows)

    def _move(self, until: float) -> None:
        """Move what was published until then, by the monotonic clock, and is still as it was taken."""
        while self._published and self._published[0][0] <= until:
            self._taking.move(self._published[0][1])
            self._published.popleft()

    def _move_at_the_end(self) -> None:
        try:
            self._move(math.inf)
        except UNDONE as error:  # the takes lapse, and it is published once more
            log.warning("not_moved", batches=len(self._published), error=cause_of(error))

    def _begin(self, epoch: str) -> None:
        """The broker is in a life that we do not know: if it is news to the ledger too, what was published is lost.

        The rows first: a relay that dies in between does it again. So does another one that sees it too; what is
        published twice finds nothing to do.
        """
        ours = bool(self._published)  # which nobody else could find among what was published
        self._move(math.inf)
        if ours or in_transaction(self._engine, service.broker_epoch) != epoch:
            lost = self._taking.look_at_published()
            in_transaction(self._engine, lambda connection: service.set_broker_epoch(connection, epoch))
            tell = log.warning if lost else log.info  # at the first start there is nothing to lose
            tell("broker_began_anew", published_again=lost)
        self._epoch = epoch

    def _rooms(self, waiting: Mapping[Lane, int]) -> dict[Kind, Room]:
        """How many rows of each kind to take: what its lane has room for, so that a backlog waits in PostgreSQL."""
        return {kind: self._room(LANE[kind], waiting[LANE[kind]]) for kind in KINDS}

    def _room(self, lane: Lane, waiting: int) -> Room:
        most, backlog = (MOST_IDS * max(0, messages - waiting) for messages in (MOST_MESSAGES, MOST_BACKLOG))
        return self._taking.room(most, self._ahead[lane].ids(self._clock.now()), backlog)


def _what(error: BaseException) -> str:
    """The name of what went wrong: texts may hold addresses and credentials."""
    return cause_of(error) if isinstance(error, UNDONE) else type(error.__cause__ or error).__name__
