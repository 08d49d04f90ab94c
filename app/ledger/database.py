"""Connections to the ledger."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError, OperationalError, TimeoutError

from app.ledger.arrays import ArrayDumper

T = TypeVar("T")

# What comes of a call that the database did not do: it is away, it refused, or no connection of the pool came free.
UNDONE = (DBAPIError, TimeoutError)
Undone = DBAPIError | TimeoutError

# Names mean PostgreSQL's own: a table or function in a schema that others may write to must not come before them.
NAMES = {"search_path": "pg_catalog", "timezone": "UTC"}
# What a service connection must never do: wait for ever on somebody's lock, or hold locks while its process is
# frozen. Sequential scans are off because every statement of the ledger has an index: a plan made while a table
# was small must not stay when it has grown.
SESSION = {
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "enable_seqscan": "off",
    "jit": "off",
    **NAMES,
}
RETRIED = (errors.SerializationFailure, errors.DeadlockDetected)
RETRIES = 5


def driver_url(database_url: str) -> URL:
    """The libpq URL as SQLAlchemy wants it; `postgresql+psycopg://` is taken too."""
    return make_url(database_url).set(drivername="postgresql+psycopg")


def connect_engine(
    database_url: str,
    *,
    application_name: str,
    pool_size: int = 5,
    session: dict[str, str] | None = None,
    pool_timeout: float = 30,
) -> Engine:
    """An engine that connects when first used and replaces connections that a restart has cut."""
    options = " ".join(f"-c {name}={value}" for name, value in (SESSION if session is None else session).items())
    engine = create_engine(
        driver_url(database_url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout,
        pool_use_lifo=True,
        hide_parameters=True,  # an error's text reaches logs; payloads and secrets must not
        connect_args={"application_name": application_name, "options": options, "connect_timeout": 5},
    )
    event.listen(engine, "connect", _write_arrays_quickly)
    return engine


def _write_arrays_quickly(connection: psycopg.Connection[Any], _: object) -> None:
    connection.adapters.register_dumper(list, ArrayDumper)


def in_transaction(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run `work` in one transaction, whole again after a deadlock or serialization failure (40P01, 40001).

    `work` must be repeatable: nothing it does may leave the transaction.
    """
    for left in reversed(range(RETRIES)):
        try:
            with engine.begin() as connection:
                return work(connection)
        except OperationalError as error:
            if not isinstance(error.orig, RETRIED) or not left:
                raise
    raise AssertionError("unreachable")


def sqlstate(error: DBAPIError) -> str | None:
    """The SQLSTATE behind a database error, None when the connection was lost."""
    return getattr(error.orig, "sqlstate", None)


def is_lost(error: Undone) -> bool:
    """Whether the database itself is gone, full or stopping, so that no other row would fare better.

    No connection of the pool, no SQLSTATE (the connection broke), classes 08 (connection), 53 (no resources: disk
    full, too many connections) and 57P (shutdown, crash of another session).
    """
    if isinstance(error, TimeoutError):
        return True
    state = sqlstate(error)
    return state is None or error.connection_invalidated or state[:2] in ("08", "53") or state[:3] == "57P"


def is_impatient(error: DBAPIError) -> bool:
    """Whether a statement was given up because it waited too long (55P03, 57014): that says nothing about its rows."""
    return sqlstate(error) in ("55P03", "57014")


def cause_of(error: Undone) -> str:
    """The name of what went wrong, for logs: its text may hold what must not be there."""
    return type(getattr(error, "orig", None) or error).__name__
