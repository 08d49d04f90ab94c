"""Plain SQL over psycopg, as a program in any language would send it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from tests.waiting import wait_until

Connection = psycopg.Connection[Any]
Row = dict[str, Any]


def insert(connection: Connection, table: str, **columns: Any) -> Row:
    """The new row of `duehook.table`; the tenant is acme unless it says otherwise."""
    columns = {"tenant": "acme", **columns}
    statement = sql.SQL("INSERT INTO duehook.{} ({}) VALUES ({}) RETURNING *").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.Placeholder() * len(columns)),
    )
    return _rows(connection, statement, list(columns.values()))[0]


def update(connection: Connection, table: str, row: Row, **columns: Any) -> int:
    """Sets columns of the row with this seq or id; returns how many rows PostgreSQL counts."""
    key = "seq" if "seq" in row else "id"
    statement = sql.SQL("UPDATE duehook.{} SET {} WHERE {} = {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in columns),
        sql.Identifier(key),
        sql.Placeholder(),
    )
    return connection.execute(statement, [*columns.values(), row[key]]).rowcount


def rows(connection: Connection, query: LiteralString, parameters: Sequence[Any] = ()) -> list[Row]:
    return _rows(connection, sql.SQL(query), parameters)


def column(connection: Connection, query: LiteralString, parameters: Sequence[Any] = ()) -> list[Any]:
    """The first column of each row."""
    return [row[0] for row in connection.execute(query, parameters)]


def value(connection: Connection, query: LiteralString, parameters: Sequence[Any] = ()) -> Any:
    """The one value that the query returns."""
    (found,) = column(connection, query, parameters)
    return found


def row(connection: Connection, table: str, key: int) -> Row:
    """The row as it stands, by seq or id."""
    name = "id" if table == "deliveries" else "ref" if table == "outbox" else "seq"
    statement = sql.SQL("SELECT * FROM duehook.{} WHERE {} = {}").format(
        sql.Identifier(table), sql.Identifier(name), sql.Placeholder()
    )
    (found,) = _rows(connection, statement, [key])
    return found


def columns_of(connection: Connection, table: str) -> list[str]:
    """The names of a table's columns, so that a new one can't be forgotten by a test."""
    return column(
        connection,
        """SELECT attname::text FROM pg_attribute
            WHERE attrelid = ('duehook.' || %s)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum""",
        [table],
    )


@contextmanager
def refused(connection: Connection, sqlstate: str, words: str = "") -> Iterator[None]:
    """Passes when PostgreSQL refuses what is done inside with this SQLSTATE and these words; leaves nothing behind."""
    with pytest.raises(psycopg.Error) as caught, connection.transaction():
        yield
    assert caught.value.sqlstate == sqlstate, f"{caught.value.sqlstate} instead of {sqlstate}: {caught.value}"
    message = caught.value.diag.message_primary or ""
    assert words in message
    if sqlstate.startswith("DH"):
        assert is_sentence(message), message


def is_sentence(message: str) -> bool:
    """Whether somebody who reads it alone learns something: words, all of them filled in."""
    return len(message.split()) >= 4 and "%" not in message and "NULL" not in message


def sqlstate_of(connection: Connection, work: Callable[[], object]) -> str | None:
    """The SQLSTATE that `work` is refused with, None when it is done; undone in any case."""
    try:
        with connection.transaction(force_rollback=True):
            work()
    except psycopg.Error as error:
        return error.sqlstate
    return None


@contextmanager
def blocked(connection: Connection, work: Callable[[], Any], watcher: Connection) -> Iterator[Future[Any]]:
    """Does `work`, which uses `connection`, in a thread; the body runs once it waits for somebody's lock."""
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        query: LiteralString = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        pid = [connection.info.backend_pid]
        wait_until(lambda: future.done() or value(watcher, query, pid), what="it is blocked")
        assert not future.done(), "it was not blocked"
        yield future


def _rows(connection: Connection, statement: sql.SQL | sql.Composed, parameters: Sequence[Any]) -> list[Row]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement, parameters).fetchall()
