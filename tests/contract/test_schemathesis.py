"""The document against the real API, by somebody who reads nothing else: schemathesis, with all its checks."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from app.core import keys
from app.domain.states import KeyScope
from app.ledger.database import connect_engine
from app.local.postgres import Postgres
from tests.contract.served import SECRETS_KEY
from tests.contract.test_refusals import GOOD
from tests.invariants import assert_invariants
from tests.ledgers import dead, some_events
from tests.service import environment
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
SEED = 4711
HOOKS = {"SCHEMATHESIS_HOOKS": "tests.contract.schemathesis_hooks", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def ledger(postgres: Postgres, template: str) -> Iterator[str]:
    """A database of these tests alone; audited at the end, whatever was thrown at it."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE attacked TEMPLATE {template}")
    yield postgres.url_of("attacked")
    assert_invariants(postgres.url_of("attacked"))


@pytest.fixture(scope="module")
def url(ledger: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API as `duehook api` runs it; it must not log a fault."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("api") / "log"
    settings = environment(database_url=ledger, secrets_key=SECRETS_KEY, api_port=port)
    with log.open("wb") as out:
        running = subprocess.Popen([sys.executable, "-m", "app.api"], env=settings, stdout=out, stderr=out, cwd=ROOT)
    try:
        wait_until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"), what="the API answers", deadline=30)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)
    assert "request_failed" not in log.read_text()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def _key(ledger: str, scope: KeyScope) -> str:
    engine = connect_engine(ledger, application_name="test")
    with engine.begin() as connection:
        key = keys.create(connection, "acme", scope)[1]
    engine.dispose()
    return key


@pytest.fixture(scope="module")
def things(url: str, ledger: str) -> str:
    """The id of one thing of each kind, for paths that need one."""
    headers = {"Authorization": f"Bearer {_key(ledger, KeyScope.OPERATOR)}"}
    engine = connect_engine(ledger, application_name="test")
    with httpx.Client(base_url=f"{url}/v1", headers=headers) as client:
        made = {
            "endpoints": client.post("/endpoints", json=GOOD["endpoint"]).json()["id"],
            "reservations": client.post("/reservations", json=GOOD["reservation"]).json()["id"],
            "jobs": client.post("/dead-letters/redrive", json=GOOD["redrive"]).json()["id"],
        }
        (dead_letter, *_), (waiting,) = dead(engine), some_events(engine)
        event = client.get(f"/deliveries/dlv_{dead_letter:x}").json()["event_id"]
        delivery = client.get("/deliveries", params={"event_id": f"evt_{waiting:x}"}).json()["data"][0]["id"]
    engine.dispose()
    return json.dumps({**made, "dead-letters": f"dlv_{dead_letter:x}", "events": event, "deliveries": delivery})


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scope", "phases", "examples"),
    [
        (KeyScope.OPERATOR, "examples,coverage,fuzzing,stateful", 6),
        (KeyScope.PRODUCER, "fuzzing", 3),
        (None, "fuzzing", 2),
    ],
)
def test_nothing_it_tries_contradicts_the_document(
    url: str, ledger: str, things: str, tmp_path: Path, scope: KeyScope | None, phases: str, examples: int
) -> None:
    key = [] if scope is None else ["-H", f"Authorization: Bearer {_key(ledger, scope)}"]
    bounds = ["--phases", phases, "--max-examples", str(examples), "--seed", str(SEED)]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", *key, *bounds, "--checks", "all"],
        env={**os.environ, **HOOKS, "THINGS": things},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"with the seed {SEED}:\n{done.stdout[-8000:]}{done.stderr[-2000:]}"
