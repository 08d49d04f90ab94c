"""The schema comes to this version once, whole, from whoever asks and however many do."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import make_url

from app.ledger.migrate import database_version, migrate
from app.ledger.version import current_version
from app.local.postgres import Postgres
from tests.clock import Clock
from tests.hostility import life_of_everything, set_decoys
from tests.plain import Connection, column, sqlstate_of, value
from tests.waiting import wait_until


@pytest.fixture
def server(postgres: Postgres, template: str) -> Iterator[Connection]:
    """The superuser; the role of producers exists, as it does wherever a ledger was migrated before."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def empty(postgres: Postgres, server: Connection) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    name = f"empty_{secrets.token_hex(4)}"
    server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield postgres.url_of(name)
    server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def objects(connection: Connection) -> list[str]:
    """Everything in the database that a migration makes, with the transaction that made it."""
    return column(
        connection,
        """SELECT c.xmin || ' ' || relname FROM pg_class c WHERE relnamespace = to_regnamespace('duehook')
           UNION ALL SELECT p.xmin || ' ' || proname FROM pg_proc p WHERE pronamespace = to_regnamespace('duehook')
           UNION ALL SELECT t.xmin || ' ' || tgname FROM pg_trigger t WHERE NOT tgisinternal
           UNION ALL SELECT o.xmin || ' ' || polname FROM pg_policy o
           UNION ALL SELECT n.xmin || ' ' || nspname FROM pg_namespace n WHERE nspname = 'duehook' ORDER BY 1""",
    )


def test_the_version_is_reported_before_and_after(empty: str) -> None:
    assert database_version(empty) is None
    assert migrate(empty) == current_version() == database_version(empty)


def test_a_second_migration_changes_nothing(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as connection:
        before = objects(connection)
        assert migrate(empty) == current_version()
        assert objects(connection) == before != []


def test_two_migrations_at_once_queue_and_both_succeed(empty: str) -> None:
    with (
        psycopg.connect(empty) as holder,
        psycopg.connect(empty, autocommit=True) as connection,
        ThreadPoolExecutor(2) as both,
    ):
        holder.execute("SELECT pg_advisory_xact_lock(hashtext('duehook.migrate'))")
        versions = [both.submit(migrate, empty) for _ in range(2)]
        waiting = """SELECT count(*) = 2 FROM pg_stat_activity
                      WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'"""
        try:
            wait_until(lambda: value(connection, waiting), what="both wait for the lock")
        finally:
            holder.commit()
        assert [version.result(30) for version in versions] == [current_version()] * 2
        assert column(connection, "SELECT count(*) FROM duehook.service") == [1]


def test_who_has_to_wait_is_told_for_whom(empty: str) -> None:
    heard: list[str] = []
    with psycopg.connect(empty, application_name="a stranger") as holder, ThreadPoolExecutor(1) as other:
        holder.execute("SELECT pg_advisory_xact_lock(hashtext('duehook.migrate'))")
        version = other.submit(migrate, empty, heard.append)
        try:
            wait_until(lambda: heard, what="it is told")
        finally:
            holder.commit()
        assert version.result(30) == current_version()
        assert heard == [f"process {holder.info.backend_pid} of PostgreSQL (user {holder.info.user}, a stranger)"]


def test_a_migration_that_fails_half_way_leaves_nothing(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA duehook; CREATE TABLE duehook.endpoints ()")
        before = objects(connection)
        with pytest.raises(errors.DuplicateTable):
            migrate(empty)
        assert objects(connection) == before
        assert database_version(empty) is None
        connection.execute("DROP TABLE duehook.endpoints")
        assert migrate(empty) == current_version()


def test_an_owner_without_other_rights_migrates_and_has_a_whole_ledger(postgres: Postgres, server: Connection) -> None:
    name, password = f"owner_{secrets.token_hex(4)}", secrets.token_hex(16)
    owner = sql.Identifier(name)
    with ExitStack() as undo:
        server.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(owner, sql.Literal(password)))
        undo.callback(server.execute, sql.SQL("DROP ROLE {}").format(owner))
        server.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(owner))
        undo.callback(server.execute, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(owner))
        url = make_url(postgres.url_of(name)).set(username=name, password=password)
        as_owner = url.render_as_string(hide_password=False)
        assert migrate(as_owner) == current_version()
        with psycopg.connect(as_owner, autocommit=True) as connection:
            life_of_everything(connection, Clock(connection))


def test_better_matching_decoys_in_public_are_not_bound_into_the_schema(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as connection:
        set_decoys(connection)
        assert migrate(empty) == current_version()
        assert sqlstate_of(connection, lambda: connection.execute("SELECT cardinality(ARRAY['a'])")) == "P0001"
        life_of_everything(connection, Clock(connection))


def test_no_function_takes_names_from_the_search_path_of_who_calls_it(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as connection:
        loose = column(
            connection,
            """SELECT proname FROM pg_proc
                WHERE pronamespace = 'duehook'::regnamespace AND prosqlbody IS NULL
                  AND NOT coalesce(proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']""",
        )
        assert loose == []


def test_databases_of_one_server_share_the_role_of_producers(empty: str, server: Connection) -> None:
    migrate(empty)
    assert column(server, "SELECT rolcanlogin FROM pg_roles WHERE rolname = 'duehook_producer'") == [False]
