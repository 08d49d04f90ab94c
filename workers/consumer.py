"""Celery's consumer with a guard against a regression of 5.7.0."""

from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Lives through a broker outage while it holds an unacknowledged message; stock 5.7.0 exits with code 1.

    On a lost connection it calls `connection.collect()` and then `connection.close()`; the first leaves
    `_default_channel` behind, and the second then dereferences a client that is gone. Drop this when fixed upstream.
    """

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        connection: Any = self.connection
        if connection is not None:
            try:
                connection.collect(socket_timeout=5.0)
            except Exception:  # noqa: BLE001 - whatever a half-dead connection raises: it is being thrown away
                pass
            connection._default_channel = None
        super().on_connection_error_after_connected(exc)
