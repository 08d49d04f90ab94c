"""What is measured: the API's own process on embedded, durable PostgreSQL, with nobody delivering meanwhile."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path

import psycopg

from app.core import keys
from app.domain.states import KeyScope
from app.ledger import endpoints
from app.ledger.database import connect_engine
from app.ledger.migrate import migrate
from app.local.access import free_port
from app.local.services import LocalServices
from app.local.up import home as homes
from app.local.up.child import Child
from app.local.up.readiness import wait_until_ready
from app.local.up.roles import Role, command_of
from bench.accept.client import Target
from bench.cpu import cpu_seconds
from bench.machine import versions
from bench.service import environment_of
from bench.stage import DURABLE

FLOODER = "flood"


class Stage:
    """The API answers. `quiet` are the tenants that behave, `flooder` is the one that does not."""

    def __init__(
        self, pids: Mapping[str, Sequence[int]], quiet: Sequence[Target], flooder: Target, versions: Mapping[str, str]
    ) -> None:
        self.quiet = quiet
        self.flooder = flooder
        self.versions = versions
        self._pids = pids

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of the API and of PostgreSQL; this process, which posts, is not among them."""
        return cpu_seconds(self._pids)


@contextmanager
def standing_stage(home: Path, tenants: int, each: int) -> Iterator[Stage]:
    """Ready inside the block, gone after it; so many tenants beside the flooder, each with so many endpoints."""
    with ExitStack() as stack:
        services = stack.enter_context(LocalServices(home, postgres_settings=DURABLE))
        migrate(services.database_url)
        homes.tidy(home)
        port = free_port()
        environment = {**environment_of(home, services, secrets.token_hex(32)), "DUEHOOK_API_PORT": str(port)}
        api = Child(Role("api", command_of("api")), 0, home=home, environment=environment)
        stack.callback(api.kill)
        with chdir(home):  # where no .env of somebody else's is
            api.start()
        wait_until_ready([api], {"api": f"http://127.0.0.1:{port}/readyz"}, stopped=lambda: False)
        flooder, *quiet = _tenants(
            services.database_url, [FLOODER, *(f"quiet-{place}" for place in range(tenants))], each
        )
        with psycopg.connect(services.database_url) as connection:
            taking_part = versions(connection, services.broker_url)
        assert services.postgres
        pids = {"api": [api.pid], "postgres": [services.postgres.pid]}
        yield Stage(pids, [Target(port, key) for key in quiet], Target(port, flooder), taking_part)


def _tenants(database_url: str, names: Sequence[str], each: int) -> list[str]:
    """A producer's key of each; their endpoints want every event."""
    engine = connect_engine(database_url, application_name="duehook bench", pool_size=1)
    try:
        with engine.begin() as connection:
            for name in names:
                for place in range(each):
                    endpoints.insert(connection, name, url=f"http://127.0.0.1:9/{place}", event_types=["*"])
            return [keys.create(connection, name, KeyScope.PRODUCER)[1] for name in names]
    finally:
        engine.dispose()
