"""The database's clock, in the test's hand: `duehook.now()` replaced in this test's database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

# plpgsql, so that it is never inlined: each call reads what is committed by then, as the real clock would.
_REPLACE = """
    CREATE TABLE duehook.test_clock (at timestamptz NOT NULL);
    INSERT INTO duehook.test_clock VALUES ('{at}');
    CREATE OR REPLACE FUNCTION duehook.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    AS $$ BEGIN RETURN (SELECT at FROM duehook.test_clock); END $$;
"""


class Clock:
    """Stands still until it is moved."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.now = datetime(2030, 1, 1, 12, tzinfo=UTC)
        connection.execute(_REPLACE.format(at=self.now))

    def advance(self, **delta: float) -> datetime:
        """Move it on by a timedelta's keywords; every session sees it at its next look."""
        self.now += timedelta(**delta)
        self._connection.execute("UPDATE duehook.test_clock SET at = %s", [self.now])
        return self.now


@pytest.fixture
def clock(database_url: str) -> Iterator[Clock]:
    """A clock that stands still at noon, 2030-01-01 UTC, until the test moves it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Clock(connection)
