"""The real processes of the service, started by a test against its own database and broker."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.logins import as_program
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
KEY = "a key of the tests with 32 characters or more"
QUICK = {  # small values are legal: what takes a minute in production takes a second here
    "DUEHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "DUEHOOK_DEADLINE_SECONDS": "2",
    "DUEHOOK_LEASE_SECONDS": "3",
    "DUEHOOK_PUBLISH_LEASE_SECONDS": "2",
    "DUEHOOK_HORIZON_SECONDS": "2",
    "DUEHOOK_SWEEP_SECONDS": "1",
    "DUEHOOK_VISIBILITY_TIMEOUT_SECONDS": "20",
}
PROGRAMS = {"outbox_relay": "relay", "workers": "worker", "app.api": "api"}
PATIENT = {"DUEHOOK_DEADLINE_SECONDS": "20", "DUEHOOK_LEASE_SECONDS": "30"}  # for who must not give up under load


class Process:
    """One process; its output is kept in a file."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.ready_file = folder / f"{name}.ready"
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", *command],
                env={**environment, "DUEHOOK_READY_FILE": str(self.ready_file)},
                stdout=output,
                stderr=output,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    def wait_ready(self) -> "Process":
        wait_until(lambda: self.ready_file.exists() or not self.running, deadline=30, what=f"{self.name} is ready")
        assert self.running, f"{self.name} ended: {self.log.read_text()[-2000:]}"
        return self

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, to the whole of it."""
        os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(10)

    def stop(self, deadline: float = 30.0) -> int:
        """SIGTERM; returns the exit code."""
        self.send(signal.SIGTERM)
        return self._popen.wait(deadline)


class Service:
    """Starts processes that share a database and a broker."""

    def __init__(self, database_url: str, broker_url: str, folder: Path, **settings: str) -> None:
        self.folder = folder
        self._database_url = database_url
        self._count = 0
        self._processes: list[Process] = []
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DUEHOOK_")}
        self.environment = {
            **inherited,
            **QUICK,
            "DUEHOOK_DATABASE_URL": database_url,
            "DUEHOOK_BROKER_URL": broker_url,
            "DUEHOOK_SECRETS_KEY": KEY,
            **settings,
        }

    def start(self, *command: str, **its_own: str) -> Process:
        """A process that is not ready yet, e.g. `workers worker delivery`; some settings may be its own."""
        self._count += 1
        name = f"{'-'.join(command).replace('workers-worker', 'worker')}-{self._count}"
        process = Process(name, list(command), self._environment_of(command[0], its_own), self.folder)
        self._processes.append(process)
        return process

    def _environment_of(self, package: str, its_own: Mapping[str, str]) -> dict[str, str]:
        """Each program has a login of its own, unless a test has changed the URL."""
        environment, program = {**self.environment, **its_own}, PROGRAMS.get(package)
        if program is None or self.environment["DUEHOOK_DATABASE_URL"] != self._database_url:
            return environment
        return {**environment, "DUEHOOK_DATABASE_URL": as_program(environment["DUEHOOK_DATABASE_URL"], program)}

    def relay(self) -> Process:
        return self.start("outbox_relay")

    def worker(self, *lanes: str) -> Process:
        return self.start("workers", "worker", *lanes)

    def scan(self) -> Process:
        return self.start("workers", "scan")

    def close(self) -> None:
        for process in self._processes:
            if process.running:
                process.kill()


@contextmanager
def service(database_url: str, broker_url: str, folder: Path, **settings: str) -> Iterator[Service]:
    """Everything that was started is gone at the end."""
    running = Service(database_url, broker_url, folder, **settings)
    try:
        yield running
    finally:
        running.close()
