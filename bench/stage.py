"""What is measured: the service's own processes on embedded, durable PostgreSQL and Redis, and a sink."""

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from app.ledger.migrate import migrate
from app.local.errors import LocalServiceError
from app.local.services import LocalServices
from app.local.up import home as homes
from app.local.up.child import Child
from app.local.up.drain import drain
from app.local.up.readiness import wait_until_ready
from app.local.up.roles import STAGES, Role, command_of, cores
from app.settings import PREFIX
from bench.cpu import cpu_seconds
from bench.machine import versions
from bench.receiver import Receiver
from bench.subscribers import subscribe

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
LOOK_SECONDS = 0.1


class Stage:
    """Everything runs. `connection` is a producer's, in autocommit; `versions` are those of what takes part."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        receiver: Receiver,
        versions: Mapping[str, str],
        pids: Mapping[str, Sequence[int]],
    ) -> None:
        self.connection = connection
        self.receiver = receiver
        self.versions = versions
        self._pids = pids

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far by group of processes; this process, which drives them, is not among them."""
        return cpu_seconds(self._pids)

    def now(self) -> float:
        """The ledger's clock, in seconds since 1970."""
        return float(self.connection.execute("SELECT extract(epoch FROM duehook.now())::float8").fetchall()[0][0])

    def settle(self, patience: float) -> None:
        """Return once nothing is open in the ledger; raises LocalServiceError when that takes too long."""
        until = time.monotonic() + patience
        while self.connection.execute("SELECT FROM duehook.outbox LIMIT 1").rowcount:
            if time.monotonic() > until:
                left = self.connection.execute("SELECT count(*) FROM duehook.outbox").fetchall()[0][0]
                raise LocalServiceError(f"Not done after {patience:g} s: {left} things are open still.")
            time.sleep(LOOK_SECONDS)


@contextmanager
def standing_stage(home: Path, *, endpoints: int) -> Iterator[Stage]:
    """Ready inside the block, gone after it. Nothing of the user's own service or settings takes part."""
    with ExitStack() as stack:
        receiver = stack.enter_context(closing(Receiver(home)))
        services = stack.enter_context(LocalServices(home, postgres_settings=DURABLE))
        migrate(services.database_url)
        homes.tidy(home)
        key = secrets.token_hex(32)
        children = _children(home, _environment(home, services, key))
        stack.callback(drain, children, STAGES, say=print, hurried=lambda: False)
        _start(children, home)
        connection = stack.enter_context(psycopg.connect(services.database_url, autocommit=True))
        subscribe(services.database_url, key, receiver, endpoints)
        pids = _pids(services, receiver, children)
        yield Stage(connection, receiver, versions(connection, services.broker_url), pids)


def _roles() -> list[Role]:
    return [
        Role("relay", command_of("relay")),
        Role("worker-expiry", command_of("worker", "expiry"), patience=30),
        Role("worker-delivery", command_of("worker", "delivery"), patience=30, count=cores()),
    ]


def _children(home: Path, environment: Mapping[str, str]) -> list[Child]:
    return [Child(role, place, home=home, environment=environment) for role in _roles() for place in range(role.count)]


def _start(children: Sequence[Child], home: Path) -> None:
    with chdir(home):  # where no .env of somebody else's is
        for child in children:
            child.start()
    wait_until_ready(children, {}, stopped=lambda: False)


def _environment(home: Path, services: LocalServices, key: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "PG"))}
    return {
        **ours,
        "DUEHOOK_HOME": str(home),
        "DUEHOOK_DATABASE_URL": services.database_url,
        "DUEHOOK_BROKER_URL": services.broker_url,
        "DUEHOOK_SECRETS_KEY": key,
        "DUEHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    }


def _pids(services: LocalServices, receiver: Receiver, children: Sequence[Child]) -> dict[str, list[int]]:
    assert services.postgres and services.valkey
    return {
        "postgres": [services.postgres.pid],
        "redis": [services.valkey.pid],
        "relay": [child.pid for child in children if child.role == "relay"],
        "workers": [child.pid for child in children if child.role != "relay"],
        "sink": [receiver.pid],
    }
