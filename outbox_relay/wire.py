"""The relay's end of the broker: what waits there, which life it is in, and wake-ups published in one go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from celery import Celery
from kombu.connection import Connection
from redis import Redis

from app import broker
from app.domain.wakeups import LANE, Kind, Lane
from app.ledger.outbox import Taken

EPOCH = f"{broker.PREFIX}epoch"
PATIENCE = 5.0  # seconds for one answer of a frozen broker: a stop must not wait longer for it


@dataclass(frozen=True, slots=True)
class Wakeup:
    """One message: ids of one kind that are due together; `eta` is None for what is due by now."""

    kind: Kind
    rows: Sequence[Taken]
    eta: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Messages that wait in each lane, and the life of the broker that they are in."""

    waiting: Mapping[Lane, int]
    epoch: str


class Wire:
    """One connection, made when first used; after any error it is thrown away, for what it was doing is not known."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._connect()

    def _connect(self) -> None:
        self._connection: Connection = self._celery.connection_for_write(
            transport_options={
                "socket_timeout": PATIENCE,
                "socket_connect_timeout": PATIENCE,
                "max_retries": 1,  # the relay's own loop tries again, and hears a stop meanwhile
                "interval_start": 0,
            }
        )
        self._producer = self._celery.amqp.Producer(self._connection, auto_declare=False)
        self._client: Redis | None = None

    def close(self) -> None:
        """Let go of the connection; it is made anew when next used."""
        self._connection.release()
        self._connect()

    def look(self) -> Seen:
        """Ask the broker, in one round trip.

        A life ends when the broker starts anew (its run) and when it is emptied while it runs (its mark).
        """
        if self._client is None:
            self._client = self._open()
        with self._client.pipeline(transaction=False) as pipeline:
            for lane in Lane:
                pipeline.llen(broker.PREFIX + lane.value)
            pipeline.get(EPOCH)
            *lengths, mark = pipeline.execute()
        return Seen(dict(zip(Lane, lengths, strict=True)), f"{self._run} {mark or self._mark(self._client)!r}")

    def _open(self) -> Redis:
        """A client of this connection to a broker that takes writes: one that is full or a replica answers reads."""
        channel: Any = self._connection.default_channel
        client = Redis(connection_pool=channel.pool)
        client.set(f"{broker.PREFIX}relay", self._celery.now().isoformat())
        self._run = str(client.info("server")["run_id"])
        return client

    @staticmethod
    def _mark(client: Redis) -> object:
        """Mark the life of a broker that has none; whoever is first does."""
        client.set(EPOCH, uuid4().hex, nx=True)
        return client.get(EPOCH)

    def publish(self, wakeups: Sequence[Wakeup]) -> None:
        """All in one pipeline. An error means that some of them may have been published."""
        with self._producer.batch(max_size=len(wakeups)):
            for wakeup in wakeups:
                ids = [row.ref for row in wakeup.rows]
                dues = [row.due_at for row in wakeup.rows]
                broker.wake(self._celery, self._producer, wakeup.kind, LANE[wakeup.kind], ids, dues, wakeup.eta)
