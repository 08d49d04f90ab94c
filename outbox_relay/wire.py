"""The relay's end of the broker: what waits there, which life it is in, and wake-ups published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol
from uuid import uuid4

from amqp.exceptions import AMQPError, NotFound
from celery import Celery
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import RedisError

from app import broker
from app.domain.wakeups import LANE, Kind, Lane
from app.ledger.outbox import Taken

EPOCH = f"{broker.PREFIX}epoch"
PATIENCE = 5.0  # seconds for one answer of a frozen broker: a stop must not wait longer for it
LOST = (KombuError, RedisError, AMQPError, OSError)  # the broker is away or refuses


@dataclass(frozen=True, slots=True)
class Wakeup:
    """One message: ids of one kind that are due together; `eta` is None for what is due by now."""

    kind: Kind
    rows: Sequence[Taken]
    eta: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Messages that wait in each lane, and the life of the broker that they are in; None when it is as before."""

    waiting: Mapping[Lane, int]
    epoch: str | None


class Wire(Protocol):
    """A connection, made when first used. After one of `LOST` it is closed: what it was doing is not known."""

    def look(self) -> Seen:
        """Ask what waits, and whether it is still the broker that we published to."""

    def publish(self, wakeups: Sequence[Wakeup]) -> None:
        """Publish; an error means that some of them may have been published."""

    def close(self) -> None:
        """Let go of the connection; the next use makes another."""


def make_wire(celery: Celery) -> Wire:
    """The one for this broker."""
    return RedisWire(celery) if broker.is_redis(celery.conf.broker_url) else AmqpWire(celery)


class _Wire:
    """What both have in common."""

    # The relay's own loop tries again, and hears a stop meanwhile.
    options: ClassVar[Mapping[str, object]] = {"max_retries": 1, "interval_start": 0}

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._connect()

    def _connect(self) -> None:
        self._connection = self._celery.connection_for_write(transport_options=dict(self.options))
        self._producer = self._celery.amqp.Producer(self._connection, auto_declare=False)

    def close(self) -> None:
        self._connection.release()
        self._connect()

    def _publish(self, wakeups: Sequence[Wakeup]) -> None:
        for wakeup in wakeups:
            ids = [row.ref for row in wakeup.rows]
            dues = [row.due_at for row in wakeup.rows]
            broker.wake(self._celery, self._producer, wakeup.kind, LANE[wakeup.kind], ids, dues, wakeup.eta)


class RedisWire(_Wire):
    """Each look and each publication is one round trip."""

    options: ClassVar[Mapping[str, object]] = {
        **_Wire.options,
        "socket_timeout": PATIENCE,
        "socket_connect_timeout": PATIENCE,
    }

    def _connect(self) -> None:
        super()._connect()
        self._client: Redis | None = None

    def look(self) -> Seen:
        """A life ends when the broker starts anew (its run) and when it is emptied while it runs (its mark)."""
        if self._client is None:
            self._client = self._open()
        with self._client.pipeline(transaction=False) as pipeline:
            for lane in Lane:
                pipeline.llen(broker.PREFIX + lane.value)
            pipeline.get(EPOCH)
            *lengths, mark = pipeline.execute()
        return Seen(dict(zip(Lane, lengths, strict=True)), f"{self._run} {mark or self._mark(self._client)!r}")

    def publish(self, wakeups: Sequence[Wakeup]) -> None:
        with self._producer.batch(max_size=len(wakeups)):
            self._publish(wakeups)

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


class AmqpWire(_Wire):
    """Each message is confirmed by the broker before the next is sent."""

    options: ClassVar[Mapping[str, object]] = {
        **_Wire.options,
        "read_timeout": PATIENCE,  # a broker that is short of memory blocks whoever publishes
        "write_timeout": PATIENCE,
    }

    def look(self) -> Seen:
        """A life ends when a queue is gone; a durable one outlives a restart with all that was confirmed."""
        counts = {lane: self._count(lane) for lane in Lane}
        epoch = None if None not in counts.values() else uuid4().hex
        return Seen({lane: count or 0 for lane, count in counts.items()}, epoch)

    def publish(self, wakeups: Sequence[Wakeup]) -> None:
        self._publish(wakeups)

    def _count(self, lane: Lane) -> int | None:
        """Messages that wait in a lane; None when its queue was gone, and is made anew by this call."""
        channel: Any = self._connection.default_channel
        try:
            return int(channel.queue_declare(lane.value, passive=True).message_count)
        except NotFound:  # which has closed the channel
            self.close()
            self._celery.amqp.queues[lane.value](self._connection.default_channel).declare()
            return None
