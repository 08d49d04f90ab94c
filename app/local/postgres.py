"""An embedded PostgreSQL: durable, on 127.0.0.1 only, gone with its owner."""

import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from app.local.binaries import find_postgres
from app.local.child import environment, leashed
from app.local.errors import LocalServiceError
from app.local.privilege import make_folder
from app.local.server import Server

DATABASE = "duehook"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a home's path may be longer than a socket's is allowed to be
    "timezone": "GMT",
    "log_timezone": "GMT",
    "max_connections": "200",
    # A refused statement's text and row hold payloads; the client that sent it is told, the log need not be.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    # Outbox and deliveries change several times per row: their dead index heads must go within seconds.
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_vacuum_cost_limit": "2000",
}


class Postgres(Server):
    """PostgreSQL with its files in `home / "postgres"`; `settings` go on top of ours as `-c name=value`."""

    title = "PostgreSQL"
    slug = "postgres"
    # Fast shutdown, then immediate (the next start recovers), then by force.
    endings = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(home)
        self.settings = {**SETTINGS, **(settings or {})}

    @property
    def url(self) -> str:
        """Of the database the service uses."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Of any database on this server."""
        return f"postgresql://{DATABASE}:{self.password}@127.0.0.1:{self.port}/{database}"

    def wait_until_ready(self, *, deadline: float = 60.0) -> None:
        """Returns once it answers and the service's database exists; see `start` for what it raises."""
        super().wait_until_ready(deadline=deadline)
        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url_of("postgres"), connect_timeout=5) as connection:
                return connection.execute("SELECT 1").fetchone() is not None
        except psycopg.OperationalError:
            return False

    def _prepare(self) -> Path:
        version = self.folder / "PG_VERSION"
        made_by = int(version.read_text()) if version.exists() else None
        programs = find_postgres(made_by)
        if made_by is None:
            self._make_cluster(programs / "initdb")
        # Nobody works on these files now (`launch` made sure), so a pid left by a crash means nothing.
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        return programs / "postgres"

    def _arguments(self) -> Sequence[str | Path]:
        settings = {**self.settings, "port": str(self.port)}
        return ["-D", self.folder, *(f"--{name}={value}" for name, value in settings.items())]

    def _make_cluster(self, initdb: Path) -> None:
        """Makes it next to its place and moves it there whole: an interrupted first start leaves no half."""
        new = self.home / "postgres.new"
        shutil.rmtree(new, ignore_errors=True)
        make_folder(new)
        options = ["--auth=scram-sha-256", "--pwfile=/dev/stdin", "--encoding=UTF8", "--locale=C.UTF-8"]
        command: list[str | Path] = [initdb, "-D", new, "-U", DATABASE, *options]
        made = subprocess.run(
            leashed(command, folder=new, ending=signal.SIGTERM),
            input=self.password,
            capture_output=True,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        if made.returncode != 0:
            raise LocalServiceError(f"initdb failed in {self.home}: {made.stderr.strip()}")
        new.rename(self.folder)
