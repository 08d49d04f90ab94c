"""The relay: take what is due soon → publish wake-ups → move the rows to the end of their publish lease.

Three transactions and no network call in any: a relay that dies between them leaves rows that come up again, and a
wake-up that was published twice finds nothing to do the second time.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

import structlog
from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from app import broker
from app.core.clock import LedgerClock
from app.core.taking import Taking
from app.domain.wakeups import AT_ONCE, LANE, Adapter, Kind, Lane
from app.ledger.outbox import Taken
from app.settings import Settings

log = structlog.get_logger("duehook.relay")

# Receiving a message costs a worker more than a millisecond of CPU, an id in a batch a twentieth of that.
MOST_IDS = 100
TOGETHER = timedelta(seconds=1)  # a message's ids are due within it
AHEAD = timedelta(seconds=1)  # a worker gets a wake-up this much before its ids are due
MOST_MESSAGES = 50  # waiting in one queue; more waits in PostgreSQL
IDLE = (0.002, 0.02)  # seconds between looks while there is nothing: at first, at most
TROUBLE = (0.1, 5.0)  # seconds between tries while the broker or the database is away
KINDS = tuple(broker.TASK)


@dataclass(frozen=True, slots=True)
class Wakeup:
    """One message: ids of one kind that are due together; `eta` is None for what is due by now."""

    kind: Kind
    rows: Sequence[Taken]
    eta: datetime | None


def wakeups(taken: Sequence[Taken], now: datetime) -> Iterator[Wakeup]:
    """Pack taken rows into messages: by kind, in order of due time, at most `MOST_IDS` and `TOGETHER` in each."""
    ordered = sorted(taken, key=lambda row: (row.kind, max(row.due_at, now), row.ref))
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


class Relay:
    """Runs until stopped; several may run side by side."""

    def __init__(self, settings: Settings, engine: Engine, celery: Celery, clock: LedgerClock) -> None:
        self._taking = Taking(engine, Adapter.QUEUE, settings.publish_lease)
        self._celery = celery
        self._clock = clock
        self._stop = threading.Event()
        self._connection = celery.connection_for_write()
        self._producer = celery.amqp.Producer(self._connection, auto_declare=False)

    def stop(self) -> None:
        """End after the batch in progress: what is taken is published and moved, or comes up again."""
        self._stop.set()

    def run(self) -> None:
        """Look, publish, look again; quicker while there is work, and slower while something is away."""
        idle, trouble = IDLE[0], TROUBLE[0]
        while not self._stop.is_set():
            try:
                found = self.once()
            except (KombuError, RedisError, OSError, DBAPIError) as error:
                log.warning("relay_waits", error=type(error).__name__, seconds=trouble)
                self._reconnect()
                self._stop.wait(trouble)
                trouble = min(trouble * 2, TROUBLE[1])
                continue
            trouble = TROUBLE[0]
            idle = IDLE[0] if found else min(idle * 2, IDLE[1])
            if not found:
                self._stop.wait(idle)
        self._connection.release()

    def once(self) -> int:
        """One look; returns how many rows were published."""
        batch = self._taking.take(self._limits())
        if batch.rows:
            self._publish(list(wakeups(batch.rows, self._clock.now())))
            self._taking.move(batch)
        return len(batch.rows)

    def _limits(self) -> dict[Kind, int]:
        """How many rows of each kind to take: what its lane has room for, so that a backlog waits in PostgreSQL."""
        waiting = self._waiting()
        return {kind: MOST_IDS * max(0, MOST_MESSAGES - waiting[LANE[kind]]) for kind in KINDS}

    def _waiting(self) -> dict[Lane, int]:
        client = self._connection.default_channel.client
        with client.pipeline(transaction=False) as pipeline:
            for lane in Lane:
                pipeline.llen(lane.value)
            return dict(zip(Lane, pipeline.execute(), strict=True))

    def _publish(self, messages: Sequence[Wakeup]) -> None:
        """All in one pipeline. An error means that some of them may have been published: the rows come up again."""
        with self._producer.batch(max_size=len(messages)):
            for message in messages:
                ids = [row.ref for row in message.rows]
                dues = [row.due_at for row in message.rows]
                lane = LANE[message.kind]
                broker.wake(self._celery, self._producer, message.kind, lane, ids, dues, message.eta)

    def _reconnect(self) -> None:
        """A new connection: what the old one was doing when it broke is not known."""
        self._connection.release()
        self._connection = self._celery.connection_for_write()
        self._producer = self._celery.amqp.Producer(self._connection, auto_declare=False)
