"""One running service for all receivers, each of which has a tenant, an endpoint and a database of its own."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import psycopg
import pytest
import redis
from sqlalchemy import Engine

from app.core import endpoints
from app.core.endpoints import Wanted
from app.domain.signing_keys import hmac_secret
from app.ledger.database import connect_engine
from app.ledger.sealing import Sealer
from app.local.postgres import Postgres
from app.local.services import LocalServices
from tests.invariants import assert_invariants
from tests.processes import KEY, PATIENT, service
from tests.receiving.programs import PROGRAMS, Program
from tests.receiving.shop import Shop
from tests.receiving.wire import Wire

SEALER = Sealer([KEY])
NUMBERS = count(1)
STRANGER = hmac_secret(b"the secret of another endpoint of this receiver")
# Quick at first; then so slow that a receiver that starts again does not fail ten times in a row: the service would
# leave it alone for seconds.
RETRIES = [0.05] * 6 + [1.0] * 20


@pytest.fixture(scope="module")
def ledger(postgres: Postgres, template: str) -> Iterator[str]:
    """The service's database; at the end it is audited."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE receiving TEMPLATE {template}")
        url = postgres.url_of("receiving")
        yield url
        assert_invariants(url)
        connection.execute("DROP DATABASE receiving WITH (FORCE)")


@pytest.fixture(scope="module")
def sending(ledger: str, services: LocalServices) -> Iterator[Engine]:
    """Relay and worker on that database."""
    services.start()
    with redis.Redis.from_url(services.broker_url) as client:
        client.flushall()
    engine = connect_engine(ledger, application_name="test")
    with (
        tempfile.TemporaryDirectory(prefix="duehook-receiving-") as folder,
        service(ledger, services.broker_url, Path(folder), **PATIENT) as running,
    ):
        for started in (running.relay(), running.worker("delivery")):
            started.wait_ready()
        yield engine
    engine.dispose()


@pytest.fixture(scope="module", params=PROGRAMS)
def receiving(
    request: pytest.FixtureRequest, sending: Engine, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """A receiver that runs, and that the service knows; at the end nothing is lost and nothing has happened twice."""
    database = f"shop_{next(NUMBERS)}"
    with ExitStack() as stack:
        admin = stack.enter_context(psycopg.connect(postgres.url, autocommit=True))
        admin.execute(f"CREATE DATABASE {database}")
        stack.callback(admin.execute, f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        program = Program(request.param, tmp_path_factory.mktemp("receiver"), postgres.url_of(database))
        wire = Wire(program.port)
        stack.callback(wire.close)
        with sending.begin() as connection:
            wanted = Wanted(wire.url, ["*"], retry_schedule=RETRIES)
            made = endpoints.create(connection, SEALER, database, wanted)
        program.start(STRANGER, made.secret)
        stack.callback(program.kill)
        shop = Shop(sending, SEALER, database, made.endpoint.seq, [made.secret], program, wire, admin)
        stack.callback(shop.close)
        yield shop
        shop.assert_nothing_lost_and_nothing_twice()


@pytest.fixture
def shop(receiving: Shop) -> Iterator[Shop]:
    """The same, healthy before and after each test."""
    yield receiving
    receiving.wire.restore()
    assert receiving.program.running, receiving.program.log.read_text()[-3000:]
