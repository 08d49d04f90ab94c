"""How an installation comes by the logins of its programs, and what becomes of those who may not make them."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from app.ledger.logins import ROLES, login_of, url_of
from app.ledger.version import current_version
from app.local.postgres import Postgres
from tests.conftest import FAST, Connect
from tests.integration.test_cli import Quick, quick  # noqa: F401 - a fixture
from tests.plain import Connection, column
from tests.security import rights
from tests.service import duehook

pytestmark = pytest.mark.slow
VARIABLES = {program: f"POSTGRES_{program.upper()}_PASSWORD" for program in ROLES}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server in which nobody has migrated yet, and which logs all that it is sent."""
    server = Postgres(tmp_path_factory.mktemp("cluster"), settings=FAST | {"log_statement": "all"})
    server.start()
    yield server
    server.stop()


@pytest.fixture
def superuser(cluster: Postgres) -> Iterator[Connection]:
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        yield connection


def test_an_owner_who_may_not_make_roles_is_told_who_must_and_can_go_on_then(
    cluster: Postgres, superuser: Connection
) -> None:
    """First of all, while the server has none of the roles."""
    superuser.execute("CREATE ROLE duehook_producer")
    superuser.execute("CREATE ROLE an_owner LOGIN PASSWORD 'x'")
    superuser.execute("CREATE DATABASE owned OWNER an_owner")
    url = make_url(cluster.url_of("owned")).set(username="an_owner", password="x").render_as_string(hide_password=False)
    refused = duehook("migrate", database_url=url)
    assert (refused.returncode, refused.stderr) == (
        1,
        "duehook: the database forbids it: an_owner may not create roles: as a superuser run CREATE ROLE duehook_api; "
        "CREATE ROLE duehook_relay; CREATE ROLE duehook_worker; and migrate again\n",
    )
    for role in ROLES.values():
        superuser.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
    assert duehook("migrate", database_url=url).returncode == 0
    superuser.execute("DROP DATABASE owned")
    for role in ("duehook_producer", *ROLES.values(), "an_owner"):
        superuser.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_two_databases_of_a_new_server_that_migrate_at_once_both_have_the_roles(
    cluster: Postgres, superuser: Connection
) -> None:
    names = [f"racing_{number}" for number in range(2)]
    for name in names:
        superuser.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with ThreadPoolExecutor(2) as both:
        done = both.map(lambda name: duehook("migrate", database_url=cluster.url_of(name)), names)
        assert [each.returncode for each in done] == [0, 0]
    found = []
    for name in names:
        with psycopg.connect(cluster.url_of(name)) as connection:
            found.append(rights.tables(connection))
    assert found[0] == found[1] and found[0].keys() == {*ROLES.values(), "duehook_producer"}


def test_migrate_makes_a_login_for_each_program_and_a_repeat_sets_its_password_anew(
    cluster: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = ({program: secrets.token_urlsafe(12) + "@/%20 '\"" for program in ROLES} for _ in range(2))
    for passwords in (old, new):
        for program, password in passwords.items():
            monkeypatch.setenv(VARIABLES[program], password)
        done = duehook("migrate", "--logins", "--json", database_url=cluster.url)
        logins = {program: login_of(program) for program in ROLES}
        assert json.loads(done.stdout) == {"version": current_version(), "logins": logins}, done.stderr
        for program, password in passwords.items():
            with psycopg.connect(url_of(cluster.url, program, password)) as connection:
                assert column(connection, "SELECT current_user::text") == [login_of(program)]
    for program, password in old.items():
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(url_of(cluster.url, program, password))
    log = Path(cluster.log).read_text()
    assert "duehook_api_login" in log, "it logs what it is sent"
    assert not [password for password in [*old.values(), *new.values()] if password[:12] in log]


def test_a_password_that_is_not_set_is_asked_for_before_anything_is_done(
    cluster: Postgres, monkeypatch: pytest.MonkeyPatch, superuser: Connection
) -> None:
    superuser.execute("CREATE DATABASE untouched")
    for program in ("api", "relay"):
        monkeypatch.setenv(VARIABLES[program], "x")
    done = duehook("migrate", "--logins", database_url=cluster.url_of("untouched"))
    assert (done.returncode, done.stderr) == (
        2,
        "duehook: POSTGRES_WORKER_PASSWORD is not set; set it to the password that duehook's worker logs in with.\n",
    )
    with psycopg.connect(cluster.url_of("untouched")) as connection:
        assert column(connection, "SELECT to_regnamespace('duehook')") == [None]


def test_a_database_without_a_place_in_its_url_keeps_its_form() -> None:
    assert url_of("postgresql://me:x@a:1,b:2/d?target_session_attrs=read-write", "api", "p w@/") == (
        "postgresql://duehook_api_login:p%20w%40%2F@a:1,b:2/d?target_session_attrs=read-write"
    )
    assert url_of("postgresql:///d?host=/run", "relay", "x") == "postgresql://duehook_relay_login:x@/d?host=/run"


@pytest.mark.parametrize("program", ROLES)
def test_no_program_is_granted_a_tenant_to_write_for(
    quick: Quick,  # noqa: F811
    connect: Connect,
    database_url: str,
    program: str,
) -> None:
    """Its policies let it at all tenants: a grant would promise what it can't keep."""
    with connect(autocommit=True) as db:
        db.execute(sql.SQL("CREATE ROLE a_mixture IN ROLE {}").format(sql.Identifier(ROLES[program])))
        try:
            done = quick("keys", "grant-sql", "a_mixture", "acme", database_url=database_url)
        finally:
            db.execute("DROP ROLE a_mixture")
    assert done.returncode == 1
    assert "so no grant keeps it to a tenant" in done.stderr
