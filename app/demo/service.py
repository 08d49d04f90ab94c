"""A whole service as its users start it, `duehook up` in a home of its own: for the demo and for `duehook eval`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from app.local import connection, leash
from app.local.connection import Connection
from app.local.errors import LocalServiceError
from app.settings import PREFIX

# Short, so that every fault heals within the demo. `0` is a free port.
SETTINGS = {
    "DUEHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "DUEHOOK_API_PORT": "0",
    "DUEHOOK_FLOWER_PORT": "0",
    "DUEHOOK_DEADLINE_SECONDS": "2",
    "DUEHOOK_LEASE_SECONDS": "5",
    "DUEHOOK_PUBLISH_LEASE_SECONDS": "5",
    "DUEHOOK_HORIZON_SECONDS": "2",
    "DUEHOOK_SWEEP_SECONDS": "5",
}
READY_SECONDS = 120.0
PATIENCE = (40.0, 10.0)  # seconds for a drain, then for a hurried one


class Service:
    """A running `duehook up` with these settings and no others."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self._log = home / "up.log"
        # Whoever started it takes it along when killed.
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(int(signal.SIGTERM))]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*leashed, sys.executable, "-P", "-m", "app.cli.main", "up"],
                cwd=home,  # where no .env of somebody else's is
                env=_environment(home, settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def connection(self) -> Connection:
        """The way in and the processes, as they are now."""
        found = connection.read(self.home)
        if found is None:
            raise LocalServiceError(f"The service has stopped: {self._last_words()}")
        return found

    def wait_until_ready(self) -> None:
        """Returns once it says so; raises LocalServiceError with its last words when it doesn't."""
        until = time.monotonic() + READY_SECONDS
        while connection.read(self.home) is None:
            if self._process.poll() is not None or time.monotonic() > until:
                raise LocalServiceError(f"The service did not start: {self._last_words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Drain; hurry when that takes long; a repeat does nothing."""
        for patience in PATIENCE:
            if self._process.poll() is not None:
                return
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        if self._process.poll() is None:
            self._process.kill()  # its children are on leashes and go with it
            self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() or ["it said nothing"]
        return lines[-1].removeprefix("duehook: ")


@contextmanager
def running_service(home: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[Service]:
    """Ready inside the block, stopped after it."""
    service = Service(home, settings)
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.stop()


def _environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the user's own service: this one's Redis is emptied, and his must never be."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "PG"))}
    return {**ours, **settings, "DUEHOOK_HOME": str(home)}
