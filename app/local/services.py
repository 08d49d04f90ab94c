"""PostgreSQL and Redis for one home: those the caller names, or embedded ones."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from app.local.lock import HomeLock
from app.local.postgres import Postgres
from app.local.reach import check_broker, check_database
from app.local.valkey import Valkey


class LocalServices:
    """Locks the home, starts what no URL was given for, and stops it at the end.

    `postgres` and `valkey` are None where a URL was given. Entering raises LocalServiceError, and leaves
    nothing running, when something can't be started or reached.
    """

    def __init__(
        self,
        home: Path,
        *,
        database_url: str | None = None,
        broker_url: str | None = None,
        postgres_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.postgres = None if database_url else Postgres(home, settings=postgres_settings)
        self.valkey = None if broker_url else Valkey(home)
        self._given_database_url = database_url
        self._given_broker_url = broker_url
        self._undo = ExitStack()

    @property
    def database_url(self) -> str:
        """The given one, or the embedded server's once it was launched."""
        return self.postgres.url if self.postgres else self._given_database_url or ""

    @property
    def broker_url(self) -> str:
        """The given one, or the embedded server's once it was launched."""
        return self.valkey.url if self.valkey else self._given_broker_url or ""

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.enter_context(HomeLock(self.home))
            self._check_given()
            for server in self._servers():
                undo.callback(server.stop)
            self.start()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def start(self) -> None:
        """Starts what does not run, side by side; a repeat restarts what died, if it can under its URL."""
        servers = self._servers()
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_until_ready()

    def _servers(self) -> list[Valkey | Postgres]:
        # Valkey first: it reads its file while a first PostgreSQL is still being made.
        return [server for server in (self.valkey, self.postgres) if server is not None]

    def _check_given(self) -> None:
        if self._given_database_url:
            check_database(self._given_database_url)
        if self._given_broker_url:
            check_broker(self._given_broker_url)
