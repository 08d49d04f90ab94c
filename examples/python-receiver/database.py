"""The receiver's own database: its connections, its tables, and the effect that an event has."""

import os
from typing import Any

from sqlalchemy import Connection, create_engine, make_url, text

from app.receiver import Event, ddl

_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('create tables'))")
# No unique key on order_key: an order that ships twice has to show.
_SHIPMENTS = "CREATE TABLE IF NOT EXISTS shipments (id bigserial PRIMARY KEY, order_key text NOT NULL)"
_SHIP = text("INSERT INTO shipments (order_key) VALUES (:order_key) RETURNING id")

engine = create_engine(
    make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"),
    pool_size=10,
    pool_pre_ping=True,  # or each connection that a restart has cut costs one delivery a retry
    pool_timeout=5,
    # Together shorter than the sender's deadline: whoever can't have the database in time says so by a 500.
    connect_args={"connect_timeout": 3, "options": "-c lock_timeout=3s"},
)


def create_tables() -> None:
    """A repeat changes nothing, and two at once do not get in each other's way."""
    with engine.begin() as connection:
        connection.execute(_ONE_AT_A_TIME)
        for statement in (*ddl(), _SHIPMENTS):
            connection.execute(text(statement))


def apply(connection: Connection, event: Event) -> dict[str, Any] | None:
    """What an event does here; returns what a duplicate is answered with. It never commits: `receive` does."""
    match event.type:
        case "order.placed":
            return {"shipment": connection.execute(_SHIP, {"order_key": event.key or event.id}).scalar_one()}
        case _:  # a ping, or a type that came into the endpoint's patterns before its code came in here
            return None
