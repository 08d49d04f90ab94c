"""Pings: events for one endpoint alone, whatever it wants."""

from sqlalchemy import Connection, text

_INSERT = text("""/* pings.insert */
    INSERT INTO duehook.events (tenant, origin, type, data, only_to)
    SELECT tenant, 'service', 'ping', json_build_object('endpoint_id', id), seq FROM duehook.endpoints
     WHERE tenant = :tenant AND seq = :endpoint AND deleted_at IS NULL
    RETURNING seq""")
_IS_PING = text("/* pings.is_ping */ SELECT EXISTS (SELECT FROM duehook.events WHERE seq = :event AND type = 'ping')")


def insert(connection: Connection, tenant: str, endpoint: int) -> int | None:
    """The seq of a new ping with its delivery; None when there is no such endpoint. Each call makes one."""
    seq: int | None = connection.execute(_INSERT, {"tenant": tenant, "endpoint": endpoint}).scalar_one_or_none()
    return seq


def is_ping(connection: Connection, event: int) -> bool:
    """Whether this event is a ping."""
    return bool(connection.execute(_IS_PING, {"event": event}).scalar_one())
