"""kombu's Redis transport, with a gate where messages come out of a queue.

BRPOP takes a message off its list before anybody has read it: what kombu then falls over is gone, and the worker with
it or back at the start. So each one is looked at in between, and what is poison goes on as a message that is sound.
"""

import time
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any, ClassVar

import structlog
from kombu.transport import redis
from redis.exceptions import RedisError

from app.domain.wakeups import Lane
from workers.message import flaw_of, unwrapped, wrapped

log = structlog.get_logger("duehook.worker")


class Client(redis.PrefixedStrictRedis):
    """The connection that pops."""

    def __init__(self, *args: Any, sep: str, visible: float, now: Callable[[], float], **kwargs: Any) -> None:
        self._sep = sep
        self._visible = visible
        self._now = now
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        """What is no answer to a BRPOP, or none from a lane, as it is."""
        answer = super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]
        if command_name == "BRPOP" and answer:
            key, item = answer
            lane = key.decode().partition(self._sep)[0]  # each priority has a list of its own
            if lane in list(Lane):
                return key, self._let_through(item, lane)
        return answer

    def _let_through(self, item: bytes, lane: str) -> bytes:
        raw = unwrapped(item)
        return wrapped(raw, lane) if flaw_of(raw, lane, self._visible, self._now()) else raw


class QoS(redis.QoS):
    """What is unacknowledged for too long goes back to its queue; an entry that nobody can read stops no other."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        try:
            super().restore_by_tag(tag, client, leftmost)  # type: ignore[no-untyped-call]
        except (RedisError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever reading it raises: kombu would try it again for ever
            log.warning("unacknowledged_unreadable", error=type(error).__name__)
            self._move_to_the_gate(tag, client)

    def _move_to_the_gate(self, tag: Any, client: Any) -> None:
        """Into a lane, where it is found to be poison and recorded."""
        with self.channel.conn_or_acquire(client) as connected, connected.pipeline() as pipe:
            entry = connected.hget(self.unacked_key, tag)
            self._remove_from_indices(tag, pipe)  # type: ignore[no-untyped-call]
            if entry:
                pipe.rpush(Lane.UPKEEP.value, entry)
            pipe.execute()


class Channel(redis.Channel):
    """Pops through the gate. What it wraps is unacknowledged like any message, until the consumer has recorded it.

    `now` is the ledger's clock where somebody has it.
    """

    QoS = QoS
    now: ClassVar[Callable[[], float]] = time.time
    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        """One for each pool. To make one costs half a millisecond, and kombu made three for each message."""
        if asynchronous:
            return super()._create_client(asynchronous)  # type: ignore[no-untyped-call]
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()  # type: ignore[no-untyped-call]
        return self._kept

    def _get_client(self) -> Any:
        made = super()._get_client()  # type: ignore[no-untyped-call]
        return partial(Client, sep=self.sep, visible=self.visibility_timeout, now=Channel.now, **made.keywords)

    def _receive_one(self, c: Any) -> Any:
        """A remote-control message. One that nobody can read is dropped: pub/sub keeps none, its sender has no answer.

        A KeyError is a field that is missing, though kombu takes it for a lost connection.
        """
        try:
            return super()._receive_one(c)  # type: ignore[no-untyped-call]
        except Empty:
            raise
        except Exception as error:
            if isinstance(error, self.connection_errors) and not isinstance(error, KeyError):
                raise
            log.warning("control_message_dropped", error=type(error).__name__)
            return False

    def close(self) -> None:
        """For good, also without a broker.

        kombu's own gives up when the answer that the channel waits for does not come. Celery 5.7.0 closes a lost
        connection twice, and the second time a channel that is still open looks for a client that is gone: a worker
        that held a message ended of a broker that was away for a moment. What it held comes after the broker's
        visibility timeout. Drop this when tests/faults/test_broker_outage_guard.py says so.
        """
        try:
            super().close()  # type: ignore[no-untyped-call]
        except (RedisError, OSError):
            super().close()  # type: ignore[no-untyped-call]


class Transport(redis.Transport):
    """For the consumer's connection alone; whoever only publishes needs none of it."""

    Channel = Channel
