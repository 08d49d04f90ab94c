"""Celery's consumer, on a transport of ours: what no worker can act on comes to it wrapped, and is recorded."""

import logging
import math
from functools import partial
from typing import Any

from celery.bootsteps import RUN
from celery.worker.consumer import Consumer as CeleryConsumer

from app.broker import is_redis
from app.core.poison import Keeper, Poison, PoisonReason
from workers.message import FAR, Flaw, envelope_of, flaw_of
from workers.transport import Channel

log = logging.getLogger("duehook.worker")
TRANSPORT = "workers.transport:Transport"
# Seconds between tries to connect. kombu's 2, 4, 6 up to 30 would have a worker miss half a minute of a return.
RECONNECT = {"interval_start": 0.1, "interval_step": 0.2, "interval_max": 2.0}
# Seconds that a task's events wait for others: to publish them one by one cost as much as receiving the message.
EVENTS_WAIT = 0.5


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Has poison recorded before it is acknowledged, and goes on with what is behind it meanwhile."""

    def __init__(self, *args: Any, keeper: Keeper, **kwargs: Any) -> None:
        self._keeper = keeper
        super().__init__(*args, **kwargs)

    def ensure_connected(self, conn: Any) -> Any:
        if is_redis(self.app.conf.broker_url):
            conn.transport_cls = TRANSPORT  # a scheme of our own in the URL would lose what kombu does for rediss://
        conn.ensure_connection = partial(conn.ensure_connection, **RECONNECT)
        return super().ensure_connected(conn)

    def register_with_event_loop(self, hub: Any) -> None:
        """The loop alone publishes them: the dispatcher lets whoever sends the 24th do it, and a task's thread must not
        be on an AMQP connection that the loop reads.
        """
        super().register_with_event_loop(hub)
        self.event_dispatcher.buffer_limit = math.inf
        hub.call_repeatedly(EVENTS_WAIT, self._flush_events)

    def on_send_event_buffered(self) -> None:
        """They wait, unless a stop has begun and nobody will come for them."""
        if self.blueprint.state != RUN:
            self._flush_events()

    def stop(self) -> None:
        """The last events first; what the broker does not take is the dispatcher's to keep, and raises nothing."""
        self._flush_events()
        super().stop()

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """On AMQP, whose messages arrive whole, the gate is here and not in the transport."""
        act = super().create_task_handler(*args, **kwargs)
        if is_redis(self.app.conf.broker_url):
            return act

        def judge(message: Any) -> None:
            lane = str(message.delivery_info["routing_key"])
            if flaw := flaw_of(envelope_of(message), lane, FAR, Channel.now()):
                self._keep(message, lane, flaw)
            else:
                act(message)

        return judge

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Where whatever the gate has wrapped arrives: its body is all of a message that nobody can act on."""
        lane = message.delivery_info["routing_key"]
        flaw = flaw_of(message.body, lane) or Flaw(PoisonReason.UNDECODABLE, str(exc))
        self._keep(message, lane, flaw)

    def _keep(self, message: Any, lane: str, flaw: Flaw) -> None:
        raw = message.body if isinstance(message.body, bytes) else str(message.body).encode()
        poison = Poison(lane, flaw.reason, flaw.error, raw, flaw.task)
        self._keeper.keep(poison, lambda: self.call_soon(message.ack_log_error, log, self.connection_errors))
