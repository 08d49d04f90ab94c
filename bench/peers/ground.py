"""The servers and the sink, the same for everybody; what one leaves behind is gone before the next one's turn."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import redis

from app.local.errors import LocalServiceError
from app.local.services import LocalServices
from bench.cpu import cpu_seconds
from bench.machine import versions
from bench.peers.contestant import Ground
from bench.receiver import Receiver
from bench.stage import DURABLE

DATABASE = "duehook"  # made anew for each turn: whose it is doesn't matter
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Site:
    """PostgreSQL, Redis and the sink run."""

    home: Path
    services: LocalServices
    receiver: Receiver

    def cpu(self) -> Mapping[str, float]:
        """CPU seconds so far of each of them."""
        assert self.services.postgres and self.services.valkey
        postgres, valkey = self.services.postgres.pid, self.services.valkey.pid
        return cpu_seconds({"postgres": [postgres], "redis": [valkey], "sink": [self.receiver.pid]})

    def cleared(self, endpoints: int) -> Ground:
        """A new database, an empty Redis, nothing left to write or to vacuum."""
        assert self.services.postgres
        with psycopg.connect(self.services.postgres.url_of("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {DATABASE}")
            connection.execute("CHECKPOINT")
        with redis.Redis.from_url(self.services.broker_url) as client:
            _empty(client)
        return Ground(self.home, self.services, self.services.database_url, self.receiver, endpoints)

    def versions(self) -> dict[str, str]:
        """Of the servers, and of what the product stands on."""
        with (
            psycopg.connect(self.services.database_url) as connection,
            redis.Redis.from_url(self.services.broker_url, decode_responses=True) as client,
        ):
            settings: Any = client.config_get("append*")
            durable = ", ".join(f"{name} {settings[name]}" for name in ("appendonly", "appendfsync"))
            found = versions(connection, self.services.broker_url)
            return {**found, "redis": f"{found['redis']} ({durable})"}


@contextmanager
def standing_site(home: Path) -> Iterator[Site]:
    """Up inside the block, gone after it."""
    with ExitStack() as stack:
        receiver = stack.enter_context(closing(Receiver(home)))
        services = stack.enter_context(LocalServices(home, postgres_settings=DURABLE))
        yield Site(home, services, receiver)


def _empty(client: "redis.Redis") -> None:
    """Rewrites the append-only file too: it would happen in somebody's turn otherwise."""
    client.flushall()
    client.bgrewriteaof()
    until = time.monotonic() + PATIENCE
    while _rewrites(client):
        if time.monotonic() > until:
            raise LocalServiceError(f"Redis did not rewrite its file within {PATIENCE:g} s.")
        time.sleep(0.02)


def _rewrites(client: "redis.Redis") -> bool:
    info: Any = client.info("persistence")
    return bool(info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])
