"""One transaction, whichever library the receiver talks to its database with.

A receiver has imported the library of the connection it hands over, so nothing is imported for it here.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    from sqlalchemy.orm import Session, scoped_session

    class Django(Protocol):
        """`django.db.connection`, or one of `django.db.connections`."""

        alias: str

        def ensure_connection(self) -> None: ...

    OfSqlalchemy: TypeAlias = sqlalchemy.Connection | Session | scoped_session[Any]
    Connection: TypeAlias = psycopg.Connection[Any] | sqlite3.Connection | OfSqlalchemy | Django

Run: TypeAlias = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]
_PLACEHOLDER = re.compile(r":(\w+)")


def begin(connection: "Connection") -> AbstractContextManager[Run]:
    """A transaction that is committed at the end of the block and rolled back when the block raises.

    What was open on the connection before belongs to it; a connection in autocommit mode gets one all the same.
    Yields what runs a statement with `:name` placeholders and returns its rows. Raises TypeError for a connection of
    another kind, and the library's own error where the transaction belongs to somebody else, who may not commit it.
    """
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if iscoroutinefunction(getattr(connection, "commit", None)):
        raise TypeError(f"use a connection that is not async, in a thread, not {kind}")
    if isinstance(connection, sqlite3.Connection):
        return _sqlite(connection)
    if hasattr(connection, "begin_nested"):
        return _sqlalchemy(cast("OfSqlalchemy", connection))
    if hasattr(connection, "pgconn"):
        return _psycopg(cast("psycopg.Connection[Any]", connection))
    if hasattr(connection, "ensure_connection"):
        return _django(connection)
    raise TypeError(f"use a connection of psycopg, sqlite3, SQLAlchemy or Django, not {kind}")


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
    except BaseException:  # whatever ends the block undoes it, a stop of the program too; it goes on from here
        if not connection.closed:
            connection.rollback()
        raise


@contextmanager
def _sqlalchemy(connection: "OfSqlalchemy") -> Iterator[Run]:
    from sqlalchemy import CursorResult, text

    def run(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        result = cast("CursorResult[Any]", connection.execute(text(statement), dict(parameters)))
        return [tuple(row) for row in result] if result.returns_rows else []

    try:
        with connection.begin_nested():  # which PostgreSQL refuses in autocommit mode
            yield run
        connection.commit()
    except BaseException:  # whatever ends the block undoes it, a stop of the program too; it goes on from here
        connection.rollback()
        raise


@contextmanager
def _django(connection: "Django") -> Iterator[Run]:
    from django.db import connections, transaction

    using = connections[connection.alias]

    def run(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with using.cursor() as cursor:
            cursor.execute(_PLACEHOLDER.sub(r"%(\1)s", statement), parameters)
            return list(cursor.fetchall()) if cursor.description else []

    if not (using.in_atomic_block or using.get_autocommit()):  # atomic() would leave the commit to somebody else
        raise transaction.TransactionManagementError("call set_autocommit(True) first: receive() is who commits")
    with transaction.atomic(using=connection.alias, durable=True):  # which refuses to be inside another
        yield run


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
    except BaseException:  # whatever ends the block undoes it, a stop of the program too; it goes on from here
        _end(connection, "ROLLBACK", connection.rollback)
        raise


def _end(connection: sqlite3.Connection, statement: str, method: Callable[[], None]) -> None:
    """By the method, which does nothing in the autocommit mode that came with Python 3.12."""
    if getattr(connection, "autocommit", None) is not True:
        method()
    elif connection.in_transaction:
        connection.execute(statement)
