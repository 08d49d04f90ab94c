"""The real PostgreSQL and Valkey every test may use, one pair per worker of pytest-xdist."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
import redis
from kombu import pools
from sqlalchemy import Engine

from app.ledger.database import connect_engine
from app.local.postgres import Postgres
from app.local.services import LocalServices
from tests.invariants import assert_invariants
from tests.races.counting import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]  # a hook, which pytest looks for here
# A crash of the machine may cost these databases everything; a commit waits for its WAL as in real use. No vacuum or
# analyze comes round while a test compares plans or counts.
FAST = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
TEMPLATE = "duehook_template"
NUMBERS = count(1)
MINUTES = ("chaos", "eval", "machines")  # folders of tests that take one or more
Connect = Callable[..., psycopg.Connection[Any]]


def pytest_configure() -> None:
    """Forgets the developer's own service and database, at once: modules may read settings at import."""
    for name in list(os.environ):
        if name.startswith(("DUEHOOK_", "PG")):
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes goes first, or all but one of the workers have nothing to do meanwhile."""
    items.sort(key=lambda item: item.path.parent.name not in MINUTES)


@pytest.fixture(scope="session")
def services() -> Iterator[LocalServices]:
    """One PostgreSQL and one Valkey for the whole session."""
    with (
        tempfile.TemporaryDirectory(prefix="duehook-tests-") as home,
        LocalServices(Path(home), postgres_settings=FAST) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def postgres(services: LocalServices) -> Postgres:
    """The session's PostgreSQL."""
    assert services.postgres is not None
    return services.postgres


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """A migrated database that each test's own is copied from; nobody can connect to it any more."""
    from app.ledger.migrate import migrate

    _execute(postgres, f"CREATE DATABASE {TEMPLATE}")
    migrate(postgres.url_of(TEMPLATE))
    _execute(postgres, f"ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false")
    return TEMPLATE


@pytest.fixture
def database_url(postgres: Postgres, template: str) -> Iterator[str]:
    """A fresh migrated database of this test alone."""
    name = f"duehook_{next(NUMBERS)}"
    _execute(postgres, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield postgres.url_of(name)
    _execute(postgres, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def connect(database_url: str) -> Iterator[Connect]:
    """Opens plain connections to this test's database, with psycopg's own options; all closed at the end."""
    with ExitStack() as opened:

        def open_one(**options: Any) -> psycopg.Connection[Any]:
            connection = psycopg.connect(database_url, **options)
            opened.callback(connection.close)  # never commits what a test left open
            return connection

        yield open_one


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Our own way to this test's database; when the test is over the invariants are audited over all of it."""
    made = connect_engine(database_url, application_name="test")
    yield made
    made.dispose()
    assert_invariants(database_url)


@pytest.fixture
def broker_url(services: LocalServices) -> str:
    """The session's Valkey, emptied. kombu keeps connections by URL, and an earlier test may have killed theirs."""
    services.start()
    pools.reset()
    with redis.Redis.from_url(services.broker_url) as client:
        client.flushall()
    return services.broker_url


def _execute(postgres: Postgres, statement: LiteralString) -> None:
    """As the superuser, over a connection of its own each time: a test may have killed the server."""
    if not postgres.running:
        postgres.start()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(statement)
