"""Pings: does an endpoint answer, and does it verify?"""

from sqlalchemy import Connection

from app.core.reservations import Refused
from app.ledger import endpoints, events, pings
from app.ledger.events import Event


def ping(connection: Connection, tenant: str, endpoint: int) -> Event | Refused | None:
    """Send an event of type `ping` to this endpoint alone, whatever its patterns; each call sends one.

    `Refused` while it is disabled, for the ping would wait; None when there is no such endpoint.
    """
    found = endpoints.find(connection, tenant, endpoint)
    if found is None:
        return None
    if found.status == "disabled":
        return Refused(f"{found.id} is disabled; enable it first, then ping")
    seq = pings.insert(connection, tenant, endpoint)
    return None if seq is None else events.find(connection, tenant, seq)
