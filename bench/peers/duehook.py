"""duehook itself, as `duehook bench` runs it."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version

import psycopg

from app.ledger.migrate import migrate
from app.local.up import home as homes
from bench.cpu import cpu_seconds
from bench.peers.contestant import Contestant, Ground
from bench.service import Service
from bench.subscribers import Subscription, orders, subscribe
from bench.throughput import insert_events


class RunningDuehook:
    """Relay and workers; this process hands in, in one transaction, so nobody needs to be held."""

    def __init__(self, service: Service, connection: psycopg.Connection, wanted: Sequence[Subscription]) -> None:
        self._service = service
        self._connection = connection
        self._wanted = wanted
        self._producing = 0.0

    def cpu(self) -> Mapping[str, float]:
        """See Running."""
        pids = self._service.pids
        relay = pids.pop("relay")
        workers = [each for role in pids.values() for each in role]
        return {"producer": self._producing, **cpu_seconds({"relay": relay, "workers": workers})}

    def hold(self) -> None:
        """See Running."""

    def release(self) -> None:
        """See Running."""

    def enqueue(self, number: int) -> Collection[str]:
        """See Running."""
        began = time.process_time()
        with self._connection.transaction():
            ids = insert_events(self._connection, number, self._wanted)
        self._producing += time.process_time() - began
        return set(ids)


class Duehook(Contestant):
    """A relay, a worker for expiries, and one for deliveries on each core."""

    name = "duehook"
    title = "duehook"

    @property
    def lacking(self) -> str:
        """See Contestant."""
        return ""

    def versions(self) -> Mapping[str, str]:
        """See Contestant."""
        return {"duehook": version("duehook")}

    @contextmanager
    def running(self, ground: Ground) -> Iterator[RunningDuehook]:
        """See Contestant."""
        migrate(ground.database_url)
        homes.tidy(ground.home)
        wanted = orders(ground.endpoints)
        with ExitStack() as stack:
            service = Service(ground.home, ground.services)
            stack.callback(service.kill)
            service.start()
            connection = stack.enter_context(psycopg.connect(ground.database_url, autocommit=True))
            subscribe(ground.database_url, service.key, ground.receiver, wanted)
            yield RunningDuehook(service, connection, wanted)
