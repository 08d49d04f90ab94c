"""One transaction, whichever library the receiver talks to its database with.

A receiver has imported the library of the connection it hands over, so nothing is imported for it here.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy

    Connection: TypeAlias = psycopg.Connection[Any] | sqlite3.Connection | sqlalchemy.Connection

Run: TypeAlias = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]
_PLACEHOLDER = re.compile(r":(\w+)")


def begin(connection: "Connection") -> AbstractContextManager[Run]:
    """A transaction that is committed at the end of the block and rolled back when the block raises.

    What was open on the connection before belongs to it; a connection in autocommit mode gets one all the same.
    Yields what runs a statement with `:name` placeholders and returns its rows. Raises TypeError for a connection of
    another kind, and the library's own error where the transaction belongs to somebody else, who may not commit it.
    """
    if isinstance(connection, sqlite3.Connection):
        return _sqlite(connection)
    if hasattr(connection, "exec_driver_sql"):
        return _sqlalchemy(cast("sqlalchemy.Connection", connection))
    if hasattr(connection, "pgconn"):
        return _psycopg(connection)
    raise TypeError(f"use a connection of psycopg, sqlite3 or SQLAlchemy, not {type(connection).__qualname__}")


@contextmanager
def _psycopg(connection: "psycopg.Connection[Any]") -> Iterator[Run]:
    from psycopg.rows import tuple_row

    def run(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor.execute(_PLACEHOLDER.sub(r"%(\1)s", statement).encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    try:
        # A savepoint if one is open. It forbids whoever is inside to commit on his own.
        with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
            yield run
        connection.commit()
    except BaseException:
        if not connection.closed:
            connection.rollback()
        raise


@contextmanager
def _sqlalchemy(connection: "sqlalchemy.Connection") -> Iterator[Run]:
    from sqlalchemy import text

    def run(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        result = connection.execute(text(statement), dict(parameters))
        return [tuple(row) for row in result] if result.returns_rows else []

    try:
        with connection.begin_nested():  # which PostgreSQL refuses in autocommit mode
            yield run
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


@contextmanager
def _sqlite(connection: sqlite3.Connection) -> Iterator[Run]:
    def run(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, parameters).fetchall()

    try:
        # Where none is open a savepoint begins a transaction, in every mode the connection can be in, and its
        # release commits it.
        connection.execute("SAVEPOINT duehook")
        yield run
        connection.execute("RELEASE duehook")
        _end(connection, "COMMIT", connection.commit)
    except BaseException:
        _end(connection, "ROLLBACK", connection.rollback)
        raise


def _end(connection: sqlite3.Connection, statement: str, method: Callable[[], None]) -> None:
    """By the method, which does nothing in the autocommit mode that came with Python 3.12."""
    if getattr(connection, "autocommit", None) is not True:
        method()
    elif connection.in_transaction:
        connection.execute(statement)
