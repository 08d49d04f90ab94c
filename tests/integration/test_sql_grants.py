"""`duehook keys grant-sql` and `list-sql`: who is let in, for what, and why somebody is not."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, LiteralString, cast

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Engine, make_url

from app.core import grants
from app.ledger.migrate import migrate
from app.local.postgres import Postgres
from tests.conftest import Connect
from tests.integration.test_cli import Done, Quick, quick
from tests.plain import Connection, blocked, column, refused, value

__all__ = ["quick"]
DENIED = "42501"
POST: LiteralString = "INSERT INTO duehook.events (tenant, type, data) VALUES (%s, 'order.placed', '1')"
OWN: LiteralString = "SELECT tenant FROM duehook.own_tenants ORDER BY tenant"
PASSWORD = "of-the-tests"
MakeRole = Callable[..., str]
Ask = Callable[..., Done]


@pytest.fixture
def db(connect: Connect) -> Connection:
    """A superuser, as whom the ledger was migrated."""
    return connect(autocommit=True)


@pytest.fixture
def make_role(db: Connection) -> Iterator[MakeRole]:
    """Makes a role that may log in; gone at the end with all it has."""
    with ExitStack() as undo:

        def make(options: LiteralString = "", name: str | None = None) -> str:
            name = name or f"program_{secrets.token_hex(4)}"
            role = sql.Identifier(name)
            made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} {}")
            db.execute(made.format(role, sql.Literal(PASSWORD), sql.SQL(options)))
            undo.callback(db.execute, sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))
            return name

        yield make


@pytest.fixture
def keys(quick: Quick, database_url: str) -> Ask:
    """Runs `duehook keys` on this test's ledger, as a superuser unless it is told otherwise."""

    def run(*arguments: str, as_role: str | None = None) -> Done:
        url = make_url(database_url)
        if as_role is not None:
            url = url.set(username=as_role, password=PASSWORD)
        return quick("keys", *arguments, database_url=url.render_as_string(hide_password=False))

    return run


@pytest.fixture
def log_in(connect: Connect) -> Callable[[str], Connection]:
    return lambda role: connect(user=role, password=PASSWORD, autocommit=True)


def listed(keys: Ask) -> list[dict[str, Any]]:
    done = keys("list-sql", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def problem(done: Done, code: int = 1) -> str:
    """The one sentence that it failed with."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    return done.stderr.removeprefix("duehook: ")


def test_a_role_writes_for_the_tenants_it_was_granted_until_they_are_revoked(
    keys: Ask, make_role: MakeRole, log_in: Callable[[str], Connection]
) -> None:
    role = make_role()
    program = log_in(role)
    with refused(program, DENIED, "permission denied for schema duehook"):
        program.execute(POST, ["acme"])
    assert keys("grant-sql", role, "acme").stdout == f"{role} may write SQL for tenant acme.\n"
    granted = json.loads(keys("grant-sql", role, "shop", "--json").stdout)
    assert granted == {"role": role, "tenant": "shop", "granted": True}
    for tenant in ("acme", "shop"):
        program.execute(POST, [tenant])
    with refused(program, DENIED, "new row violates row-level security policy"):
        program.execute(POST, ["other"])
    assert listed(keys) == [{"role": role, "tenant": tenant, "problem": None} for tenant in ("acme", "shop")]
    revoked = keys("grant-sql", role, "acme", "--revoke")
    assert revoked.stdout == f"{role} may no longer write SQL for tenant acme.\n"
    assert column(program, OWN) == ["shop"]
    assert json.loads(keys("grant-sql", role, "shop", "--revoke", "--json").stdout)["granted"] is False
    assert column(program, "SELECT id FROM duehook.events") == [], "a member without a tenant sees nothing"


def test_granting_and_revoking_may_be_repeated(keys: Ask, make_role: MakeRole) -> None:
    role = make_role()
    first, again = (keys("grant-sql", role, "acme") for _ in range(2))
    assert (first.returncode, first.stdout) == (again.returncode, again.stdout) == (0, first.stdout)
    assert len(listed(keys)) == 1
    keys("grant-sql", role, "acme", "--revoke")
    repeated = keys("grant-sql", role, "acme", "--revoke")
    assert (repeated.returncode, repeated.stdout) == (0, f"{role} had no grant for tenant acme.\n")
    assert listed(keys) == []


@pytest.mark.parametrize("name", ['Two "words"', "100 % :sure", "ROLE", "[/bold]", "\N{HIRAGANA LETTER A}" * 21])
def test_a_role_is_taken_as_it_is_spelled(
    keys: Ask, make_role: MakeRole, log_in: Callable[[str], Connection], name: str
) -> None:
    role = make_role(name=name)
    assert keys("grant-sql", role, "acme").returncode == 0
    assert column(log_in(role), OWN) == ["acme"]
    assert listed(keys) == [{"role": role, "tenant": "acme", "problem": None}]
    assert keys("grant-sql", role.swapcase() + "x", "acme").returncode == 1


@pytest.mark.parametrize("name", ["nobody_of_this_name", 'a"b', "x" * 64, "", "public"])
def test_a_role_that_is_not_there_is_refused_with_how_to_make_it(keys: Ask, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    assert problem(keys("grant-sql", name, "acme")) == (
        f"the database has no role {name!r}; make it first: CREATE ROLE {quoted} LOGIN PASSWORD '…';\n"
    )


@pytest.mark.parametrize("tenant", ["*", "a b", "", "x" * 65])
def test_a_grant_is_for_one_tenant(keys: Ask, tenant: str) -> None:
    assert "can't name a tenant" in problem(keys("grant-sql", "anybody", tenant), code=2)


def test_a_tenant_is_never_granted_to_all_producers_at_once(keys: Ask) -> None:
    assert "what all producers are members of" in problem(keys("grant-sql", grants.PRODUCER, "acme"), code=2)
    assert listed(keys) == []


@pytest.mark.parametrize("options", ["SUPERUSER", "BYPASSRLS", "OWNER"])
def test_whom_no_grant_would_keep_to_a_tenant_is_refused(
    keys: Ask, db: Connection, make_role: MakeRole, options: str
) -> None:
    role = make_role("SUPERUSER" if options == "SUPERUSER" else "BYPASSRLS" if options == "BYPASSRLS" else "")
    if options == "OWNER":
        owner = make_role()
        db.execute(sql.SQL("ALTER TABLE duehook.events OWNER TO {}").format(sql.Identifier(owner)))
        db.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(owner), sql.Identifier(role)))
    try:
        assert "so no grant keeps it to a tenant" in problem(keys("grant-sql", role, "acme"))
    finally:
        db.execute("ALTER TABLE duehook.events OWNER TO CURRENT_USER")
    assert listed(keys) == []


def test_a_role_that_does_not_inherit_gets_the_rights_all_the_same(
    keys: Ask, db: Connection, make_role: MakeRole, log_in: Callable[[str], Connection]
) -> None:
    role = make_role("NOINHERIT")
    done = keys("grant-sql", role, "acme")
    if value(db, "SELECT current_setting('server_version_num')::int") >= 160000:
        assert column(log_in(role), OWN) == ["acme"]
    else:
        assert f'ALTER ROLE "{role}" INHERIT;' in problem(done)


def test_an_owner_of_the_ledger_needs_the_right_to_make_producers_and_is_told_how_to_get_it(
    quick: Quick, postgres: Postgres, db: Connection, make_role: MakeRole
) -> None:
    owner_name, program_name, another_name = make_role(), make_role(), make_role()
    owner, program = sql.Identifier(owner_name), sql.Identifier(program_name)
    with ExitStack() as undo:
        db.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(owner))
        undo.callback(db.execute, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(owner))
        url = make_url(postgres.url_of(owner_name)).set(username=owner_name, password=PASSWORD)
        ours = url.render_as_string(hide_password=False)
        migrate(ours)
        said = problem(quick("keys", "grant-sql", program_name, "acme", database_url=ours))
        assert said == (
            f"{owner_name!r} may not make members of duehook_producer; as a superuser run"
            f' GRANT duehook_producer TO "{program_name}"; and repeat this,'
            f' or run GRANT duehook_producer TO "{owner_name}" WITH ADMIN OPTION; once.\n'
        )
        db.execute(sql.SQL("GRANT duehook_producer TO {}").format(program))
        assert quick("keys", "grant-sql", program_name, "acme", database_url=ours).returncode == 0
        db.execute(sql.SQL("GRANT duehook_producer TO {} WITH ADMIN OPTION").format(owner))
        undo.callback(db.execute, sql.SQL("REVOKE duehook_producer FROM {} CASCADE").format(owner))
        assert quick("keys", "grant-sql", another_name, "shop", database_url=ours).returncode == 0
        for name, tenant in ((program_name, "acme"), (another_name, "shop")):
            with psycopg.connect(url.set(username=name).render_as_string(hide_password=False)) as connection:
                assert column(connection, OWN) == [tenant]


def test_somebody_who_is_not_the_owner_is_forbidden_to_grant(keys: Ask, make_role: MakeRole) -> None:
    somebody, program = make_role(), make_role()
    keys("grant-sql", somebody, "acme")
    for arguments in (["grant-sql", program, "acme"], ["grant-sql", somebody, "acme", "--revoke"], ["list-sql"]):
        assert problem(keys(*arguments, as_role=somebody)).startswith("the database forbids it: permission denied for")


def test_two_who_grant_the_same_role_at_once_queue_and_both_succeed(
    engine: Engine, db: Connection, make_role: MakeRole
) -> None:
    role = make_role()
    with engine.connect() as first, engine.connect() as second:
        assert grants.grant(first, role, "acme", "cli:tester") is None
        behind = cast(Connection, second.connection.driver_connection)
        with blocked(behind, lambda: grants.grant(second, role, "shop", "cli:tester"), db) as answer:
            first.commit()
            assert answer.result(10) is None
        second.commit()
    assert column(db, "SELECT tenant FROM duehook.sql_grants ORDER BY tenant") == ["acme", "shop"]


def test_a_grant_whose_role_is_gone_or_lost_its_rights_is_listed_as_such_and_can_be_revoked(
    keys: Ask, db: Connection, make_role: MakeRole
) -> None:
    role, gone = make_role(), make_role()
    for each in (role, gone):
        keys("grant-sql", each, "acme")
    db.execute(sql.SQL("REVOKE duehook_producer FROM {}").format(sql.Identifier(role)))
    db.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(sql.Identifier(gone), sql.Identifier(f"{gone}_x")))
    assert {each["role"]: each["problem"] for each in listed(keys)} == {
        role: "the role has not the rights of duehook_producer",
        gone: "the role is gone",
    }
    db.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(sql.Identifier(f"{gone}_x"), sql.Identifier(f"{gone}_y")))
    lines = keys("list-sql").stdout.splitlines()
    assert lines[0] == "role\ttenant\tproblem" and f"{gone}\tacme\tthe role is gone" in lines
    for each in (role, gone):
        assert "may no longer" in keys("grant-sql", each, "acme", "--revoke").stdout
    assert listed(keys) == []
    db.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(sql.Identifier(f"{gone}_y"), sql.Identifier(gone)))
