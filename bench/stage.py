"""What is measured: the service's own processes on embedded, durable PostgreSQL and Redis, and a sink."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from app.ledger.migrate import migrate
from app.local.errors import LocalServiceError
from app.local.services import LocalServices
from app.local.up import home as homes
from bench.cpu import cpu_seconds
from bench.machine import versions
from bench.receiver import Receiver
from bench.service import Service
from bench.subscribers import Subscription, subscribe

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
LOOK_SECONDS = 0.1


class Stage:
    """Everything runs. `connection` is a producer's, in autocommit; `versions` are those of what takes part."""

    def __init__(
        self, services: LocalServices, service: Service, receiver: Receiver, connection: psycopg.Connection[Any]
    ) -> None:
        self.service = service
        self.receiver = receiver
        self.connection = connection
        self.database_url = services.database_url
        self.broker_url = services.broker_url
        self.versions = versions(connection, services.broker_url)
        assert services.postgres and services.valkey
        self._servers = {"postgres": [services.postgres.pid], "redis": [services.valkey.pid]}

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far by group of processes; this process, which drives them, is not among them.

        Those of the service count from its latest start.
        """
        return cpu_seconds(self._pids())

    def _pids(self) -> Mapping[str, Sequence[int]]:
        pids = self.service.pids
        relay = pids.pop("relay")
        workers = [each for role in pids.values() for each in role]
        return {**self._servers, "relay": relay, "workers": workers, "sink": [self.receiver.pid]}

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
def standing_stage(home: Path, wanted: Sequence[Subscription]) -> Iterator[Stage]:
    """Ready inside the block, gone after it. Nothing of the user's own service or settings takes part."""
    with ExitStack() as stack:
        receiver = stack.enter_context(closing(Receiver(home)))
        services = stack.enter_context(LocalServices(home, postgres_settings=DURABLE))
        migrate(services.database_url)
        homes.tidy(home)
        service = Service(home, services)
        stack.callback(service.stop)
        service.start()
        connection = stack.enter_context(psycopg.connect(services.database_url, autocommit=True))
        subscribe(services.database_url, service.key, receiver, wanted)
        yield Stage(services, service, receiver, connection)
