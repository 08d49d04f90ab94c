"""The API on a real socket, in a thread of the test's process, and clients with keys for it."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from sqlalchemy import Engine

from app.api.app import CONNECTIONS
from app.api.server import configure
from app.core import keys
from app.domain.states import KeyScope
from app.runtime import Runtime, open_runtime
from app.settings import load
from tests.contract.documented import check
from tests.logins import as_program

SECRETS_KEY = "a key for tests of at least thirty-two characters"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # httpx would read every certificate of the machine for each client


@dataclass
class Api:
    """A running API and keys for it; `runtime` is the owner's, for what no API may do, `engine` the API's own."""

    url: str
    runtime: Runtime
    port: int
    engine: Engine
    database_url: str

    def key(self, tenant: str = "acme", scope: KeyScope = KeyScope.OPERATOR) -> str:
        """The text of a new key."""
        with self.runtime.engine.begin() as connection:
            return keys.create(connection, tenant, scope)[1]

    def client(self, tenant: str = "acme", scope: KeyScope = KeyScope.OPERATOR) -> httpx.Client:
        """A client with a key of its own; each answer it gets is held against the OpenAPI document."""
        headers = {"Authorization": f"Bearer {self.key(tenant, scope)}"}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=30, verify=NO_TLS, event_hooks={"response": [check]}
        )


@contextmanager
def served(database_url: str, **settings: Any) -> Iterator[Api]:
    """The API of this database on a port of its own."""
    given = {"database_url": database_url, "secrets_key": SECRETS_KEY, "allowed_networks": "127.0.0.0/8", **settings}
    runtime = open_runtime(load(**given), application_name="test", pool_size=CONNECTIONS)
    given["database_url"] = as_program(database_url, "api")
    its_own = open_runtime(load(**given), application_name="test-api", pool_size=CONNECTIONS)
    server = uvicorn.Server(configure(its_own, "127.0.0.1", 0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.002)
            assert thread.is_alive(), "the server did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Api(f"http://127.0.0.1:{port}", runtime, port, its_own.engine, database_url)
    finally:
        server.should_exit = True
        thread.join(10)
        its_own.close()
        runtime.close()


def subscribe(client: httpx.Client, **members: Any) -> str:
    """The id of a new endpoint that wants everything."""
    answer = client.post("/v1/endpoints", json={"url": "http://127.0.0.1:9/", "event_types": ["*"], **members})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def number_of(public_id: str) -> int:
    """The row that a public id names."""
    return int(public_id.split("_")[1], 16)
