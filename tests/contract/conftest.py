"""One served API for all tests, with a tenant for each: a database for each would cost more than the tests do."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import httpx
import psycopg
import pytest

from app.domain.states import KeyScope
from app.local.postgres import Postgres
from tests.clock import Clock
from tests.contract.served import Api, served
from tests.invariants import assert_invariants

NUMBERS = count(1)


@pytest.fixture(scope="session")
def contract_url(postgres: Postgres, template: str) -> str:
    """The database of all contract tests of this worker."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE contract TEMPLATE {template}")
    return postgres.url_of("contract")


@pytest.fixture(scope="session")
def contract_clock(contract_url: str) -> Iterator[Clock]:
    with psycopg.connect(contract_url, autocommit=True) as connection:
        yield Clock(connection)


@pytest.fixture(scope="session")
def api(contract_url: str, contract_clock: Clock) -> Iterator[Api]:
    """The API; at the end the whole database is audited."""
    with served(contract_url) as running:
        yield running
    assert_invariants(contract_url)


@pytest.fixture
def clock(contract_clock: Clock) -> Clock:
    """A clock that stands still at noon, 2030-01-01 UTC, until the test moves it."""
    contract_clock.advance(seconds=(datetime(2030, 1, 1, 12, tzinfo=UTC) - contract_clock.now).total_seconds())
    return contract_clock


@pytest.fixture
def tenant(clock: Clock) -> str:
    """The tenant of this test alone."""
    return f"acme-{next(NUMBERS)}"


@pytest.fixture
def acme(api: Api, tenant: str) -> Iterator[httpx.Client]:
    """An operator of this test's tenant."""
    with api.client(tenant) as client:
        yield client


@pytest.fixture
def producer(api: Api, tenant: str) -> Iterator[httpx.Client]:
    """A producer of it."""
    with api.client(tenant, KeyScope.PRODUCER) as client:
        yield client


@pytest.fixture
def rival(api: Api, tenant: str) -> Iterator[httpx.Client]:
    """An operator of another tenant."""
    with api.client(f"{tenant}-rival") as client:
        yield client
