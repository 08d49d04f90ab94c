"""A database that takes its time to record, and for nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

# Waits in front of the rows and not behind their locks: whoever likes may have them meanwhile.
_SLOW = """
    CREATE FUNCTION duehook.test_slow() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF current_query() LIKE '/* deliveries.record */%' THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER test_slow BEFORE UPDATE ON duehook.deliveries
        FOR EACH STATEMENT EXECUTE FUNCTION duehook.test_slow()"""


@contextmanager
def slow_recording(connect: Callable[..., psycopg.Connection[Any]]) -> Iterator[None]:
    """While this lasts no outcome is recorded: the statement that would do it waits, its snapshot taken."""
    connection = connect(autocommit=True)
    connection.execute(_SLOW)
    connection.execute("SELECT pg_advisory_lock(4711)")
    try:
        yield
    finally:
        connection.execute("SELECT pg_advisory_unlock(4711)")
