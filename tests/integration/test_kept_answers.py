"""Which of two equal requests is the first, decided in the database; and how its answer is kept."""

from typing import Any

import pytest
from psycopg import errors
from sqlalchemy import Engine

from app.ledger import endpoints, idempotency
from app.ledger.idempotency import KEPT_FOR, Begun, Kept, Request
from tests.clock import Clock
from tests.conftest import Connect
from tests.plain import blocked

ONE = Request(b"1" * 32, "acme", b"b" * 32)
LIKE_ONE = Request(b"1" * 8 + b"2" * 24, "acme", b"b" * 32)
OTHER = Request(b"2" * 32, "acme", b"b" * 32)
CREATED = Kept(201, b'{"a":"\xc3\xa9"}')
BARRIER = 42
BEGIN = "SELECT first, status FROM duehook.begin_once(%s, %s)"
BEGIN_LATE = """SELECT first, status FROM duehook.begin_once(
    CASE pg_advisory_xact_lock_shared(%s)::text WHEN '' THEN %s::bytea END, %s)"""
HELD_UP = f"""CREATE OR REPLACE FUNCTION duehook.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$ BEGIN
    IF current_setting('application_name') = 'late' THEN PERFORM pg_advisory_xact_lock_shared({BARRIER}); END IF;
    RETURN clock_timestamp();
END $$"""
KEEP = "INSERT INTO duehook.kept_answers (request, tenant, body, status, answer) VALUES (%s, 'acme', %s, %s, '')"


def test_the_first_is_first_until_its_transaction_ends(engine: Engine) -> None:
    with engine.connect() as first, engine.connect() as second:
        assert idempotency.begin(first, ONE) is Begun.FIRST
        assert idempotency.begin(second, ONE) is Begun.RUNNING
        assert idempotency.begin(second, OTHER) is Begun.FIRST
        first.rollback()
        assert idempotency.begin(second, ONE) is Begun.FIRST


def test_a_kept_answer_is_found_by_many_at_once(engine: Engine) -> None:
    with engine.begin() as connection:
        assert idempotency.begin(connection, ONE) is Begun.FIRST
        assert idempotency.keep(connection, ONE, CREATED)
    with engine.connect() as one, engine.connect() as another:
        assert idempotency.begin(one, ONE) == idempotency.begin(another, ONE) == CREATED
        assert idempotency.begin(one, Request(ONE.id, "acme", b"x" * 32)) is Begun.ANOTHER


def test_what_is_rolled_back_was_never_kept(engine: Engine) -> None:
    with engine.connect() as connection:
        assert idempotency.keep(connection, ONE, CREATED)
        connection.rollback()
        assert idempotency.begin(connection, ONE) is Begun.FIRST


def test_requests_that_share_a_lock_are_told_apart(engine: Engine) -> None:
    with engine.connect() as first, engine.connect() as second:
        assert idempotency.begin(first, ONE) is Begun.FIRST
        assert idempotency.keep(first, ONE, CREATED)
        assert idempotency.begin(second, LIKE_ONE) is Begun.RUNNING
        first.commit()
        assert idempotency.begin(second, LIKE_ONE) is Begun.FIRST


def test_no_other_login_can_take_the_locks_of_a_request_or_of_a_tenant(engine: Engine, connect: Connect) -> None:
    """Any may take any advisory lock: those here have numbers that nobody can compute without the owner's salt."""
    stranger = connect(autocommit=True)
    stranger.execute("SELECT pg_advisory_lock(%s)", [int.from_bytes(ONE.id[:8], signed=True)])
    stranger.execute("SELECT pg_advisory_lock(1, hashtext('acme')), pg_advisory_lock(hashtext('acme'))")
    without_salt = "SELECT pg_advisory_lock(('x' || encode(substr(sha256(%s), 1, 8), 'hex'))::bit(64)::bigint)"
    for name in (ONE.id[:8], b"acme"):
        stranger.execute(without_salt, [name])
    with engine.begin() as connection:
        assert idempotency.begin(connection, ONE) is Begun.FIRST
        endpoints.lock_number(connection, "acme")
        connection.exec_driver_sql("CREATE ROLE locksmith")
        connection.exec_driver_sql("GRANT duehook_producer TO locksmith")
        may = "SELECT has_table_privilege('locksmith', 'duehook.service', 'SELECT'), has_function_privilege("
        asked = connection.exec_driver_sql(may + "'locksmith', 'duehook.lock_of(bytea)', 'EXECUTE')").one()
        assert tuple(asked) == (False, False)
        connection.rollback()


def test_an_answer_is_kept_once_until_it_is_a_day_old(engine: Engine, clock: Clock) -> None:
    with engine.connect() as connection:
        assert idempotency.keep(connection, ONE, CREATED)
        clock.advance(seconds=KEPT_FOR.total_seconds() - 1)
        assert not idempotency.keep(connection, ONE, Kept(200, b"{}"))
        assert idempotency.begin(connection, ONE) == CREATED
        clock.advance(seconds=1)
        assert idempotency.begin(connection, ONE) is Begun.FIRST
        assert idempotency.keep(connection, Request(ONE.id, "acme", b"c" * 32), Kept(200, b"{}"))
        assert idempotency.begin(connection, Request(ONE.id, "acme", b"c" * 32)) == Kept(200, b"{}")


def test_whoever_gets_the_lock_late_sees_what_the_first_committed(connect: Connect) -> None:
    """Its statement began, and took its snapshot, before that; the function waits at its argument."""
    first, second, barrier = connect(), connect(), connect()
    barrier.execute("SELECT pg_advisory_xact_lock(%s)", [BARRIER])
    assert first.execute(BEGIN, [ONE.id, KEPT_FOR]).fetchone() == (True, None)
    first.execute(KEEP, [ONE.id, ONE.body, 201])

    def begin() -> Any:
        return second.execute(BEGIN_LATE, [BARRIER, ONE.id, KEPT_FOR]).fetchone()

    with blocked(second, begin, connect(autocommit=True)) as waiting:
        first.commit()  # and has let go of its lock, which of several it would do in an order of PostgreSQL's
        barrier.commit()
        assert waiting.result(10) == (True, 201)


def test_whoever_has_looked_before_the_first_committed_is_not_first(connect: Connect) -> None:
    """It finds an answer that is too old, and is held up just when it asks how late it is."""
    first, second = connect(), connect(application_name="late")
    with connect(autocommit=True) as setting:
        setting.execute(HELD_UP)
        setting.execute(KEEP, [ONE.id, ONE.body, 201])
        setting.execute("UPDATE duehook.kept_answers SET created_at = '2020-01-01Z'")
    first.execute("SELECT pg_advisory_xact_lock(%s)", [BARRIER])
    assert first.execute(BEGIN, [ONE.id, KEPT_FOR]).fetchone() == (True, None)
    first.execute("UPDATE duehook.kept_answers SET created_at = now()")

    def begin() -> Any:
        return second.execute(BEGIN, [ONE.id, KEPT_FOR]).fetchone()

    with blocked(second, begin, connect(autocommit=True)) as waiting:
        first.commit()
        assert waiting.result(10) == (False, None)


@pytest.mark.parametrize("status", [199, 300, 409, 500])
def test_only_a_success_can_be_kept(connect: Connect, status: int) -> None:
    with pytest.raises(errors.CheckViolation):
        connect().execute(KEEP, [ONE.id, ONE.body, status])


def test_pruning_takes_the_oldest_first_and_only_what_is_a_day_old(engine: Engine, clock: Clock) -> None:
    with engine.begin() as connection:
        for number in range(5):
            assert idempotency.keep(connection, Request(bytes([number]) * 32, "acme", ONE.body), CREATED)
            clock.advance(seconds=1)
        clock.advance(hours=24, seconds=-2)
        assert idempotency.prune(connection, most=2) == 2
        left = connection.exec_driver_sql("SELECT get_byte(request, 0) FROM duehook.kept_answers ORDER BY 1").scalars()
        assert list(left) == [2, 3, 4]
        assert idempotency.prune(connection, most=9) == 2
        assert idempotency.prune(connection, most=9) == 0


def test_pruning_leaves_to_others_what_they_are_at(engine: Engine, connect: Connect, clock: Clock) -> None:
    with engine.begin() as connection:
        assert idempotency.keep(connection, ONE, CREATED)
        assert idempotency.keep(connection, OTHER, CREATED)
    clock.advance(hours=24)
    connect().execute("SELECT FROM duehook.kept_answers WHERE request = %s FOR UPDATE", [ONE.id])
    with engine.begin() as connection:
        assert idempotency.prune(connection, most=9) == 1
