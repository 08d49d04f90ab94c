"""A set of ids that is acted on together, and a row that keeps it from that."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection, Engine

from app.core.sets import look
from app.domain.wakeups import Answer
from app.ledger.database import SESSION, connect_engine
from tests.conftest import Connect
from tests.ledgers import an_endpoint, rows, some_events


def test_a_row_that_is_waited_for_too_long_is_looked_at_again_and_the_others_are_done(
    engine: Engine, database_url: str, connect: Connect
) -> None:
    an_endpoint(engine)
    some_events(engine, 4)
    ids = sorted(rows(engine, "SELECT id FROM duehook.deliveries"))
    connect().execute("SELECT FROM duehook.deliveries WHERE id = %s FOR UPDATE", [ids[2]])
    impatient = connect_engine(database_url, application_name="test", session=SESSION | {"lock_timeout": "50ms"})

    def touch(connection: Connection, some: Sequence[int]) -> dict[int, Answer]:
        for each in some:
            connection.exec_driver_sql("UPDATE duehook.deliveries SET updated_at = now() WHERE id = %s", (each,))
        return dict.fromkeys(some, Answer.TAKEN)

    looked = look(impatient, ids, touch)
    impatient.dispose()
    assert looked.again == [ids[2]]
    assert [looked.answers[each] for each in ids] == [Answer.TAKEN, Answer.TAKEN, Answer.LOCKED, Answer.TAKEN]


def test_a_row_that_the_database_refuses_is_answered_alone(engine: Engine) -> None:
    an_endpoint(engine)
    some_events(engine, 4)
    ids = sorted(rows(engine, "SELECT id FROM duehook.deliveries"))

    def touch(connection: Connection, some: Sequence[int]) -> dict[int, Answer]:
        for each in some:
            wrong = "'nonsense'" if each == ids[1] else "status"
            connection.exec_driver_sql(f"UPDATE duehook.deliveries SET status = {wrong} WHERE id = %s", (each,))
        return dict.fromkeys(some, Answer.TAKEN)

    looked = look(engine, ids, touch)
    assert looked.again == []
    assert [looked.answers[each] for each in ids] == [Answer.TAKEN, Answer.FAILED, Answer.TAKEN, Answer.TAKEN]


def test_a_lost_database_is_raised(engine: Engine, connect: Connect) -> None:
    def end(connection: Connection, _: Sequence[int]) -> dict[int, Answer]:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        return {}

    with pytest.raises(Exception, match="terminating connection"):
        look(engine, [1, 2], end)
