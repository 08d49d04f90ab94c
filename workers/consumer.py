"""Celery's consumer, on a transport of ours: what no worker can act on comes to it wrapped, and is recorded."""

import logging
from functools import partial
from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer

from app.core.poison import Keeper, Poison, PoisonReason
from workers.message import Flaw, flaw_of

log = logging.getLogger("duehook.worker")
TRANSPORT = "workers.transport:Transport"
# Seconds between tries to connect. kombu's 2, 4, 6 up to 30 would have a worker miss half a minute of a return.
RECONNECT = {"interval_start": 0.1, "interval_step": 0.2, "interval_max": 2.0}


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Has poison recorded before it is acknowledged, and goes on with what is behind it meanwhile."""

    def __init__(self, *args: Any, keeper: Keeper, **kwargs: Any) -> None:
        self._keeper = keeper
        super().__init__(*args, **kwargs)

    def ensure_connected(self, conn: Any) -> Any:
        conn.transport_cls = TRANSPORT  # a scheme of our own in the URL would lose what kombu does for rediss://
        conn.ensure_connection = partial(conn.ensure_connection, **RECONNECT)
        return super().ensure_connected(conn)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Where whatever the gate has wrapped arrives: its body is all of a message that nobody can act on."""
        lane = message.delivery_info["routing_key"]
        flaw = flaw_of(message.body, lane) or Flaw(PoisonReason.UNDECODABLE, str(exc))
        poison = Poison(lane, flaw.reason, flaw.error, message.body, flaw.task)
        self._keeper.keep(poison, lambda: self.call_soon(message.ack_log_error, log, self.connection_errors))
