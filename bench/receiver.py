"""The sink as a process, and what it received."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.local import leash
from app.local.errors import LocalServiceError
from bench import sink

PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: of which event and delivery, and when its first byte came (seconds since 1970)."""

    event: str
    delivery: str
    at: float


@dataclass(frozen=True, slots=True)
class Received:
    """When the first request of each event came (seconds since 1970), and whether each came exactly once."""

    first: dict[str, float]
    lost: int
    repeated: int


class Receiver:
    """Runs the sink, which ends with this process at the latest; twenty hosts, one port."""

    def __init__(self, home: Path) -> None:
        self._file = home / "arrivals"
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(int(signal.SIGKILL))]
        self._popen = subprocess.Popen(
            [*leashed, sys.executable, "-P", sink.__file__, "0", str(self._file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._popen.stdout
        said = self._popen.stdout.readline()
        if not said:
            raise LocalServiceError("The sink did not start.")
        self._port = int(said)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._popen.pid

    def url(self, number: int, manner: str = "hooks") -> str:
        """The URL of one of its hooks, as it is to answer; numbers that follow each other are on different hosts."""
        return f"http://{sink.HOSTS[number % len(sink.HOSTS)]}:{self._port}/{manner}/{number}"

    def received(self, wanted: Collection[str]) -> Received:
        """What came since the last call, as far as it is one of these events."""
        first: dict[str, float] = {}
        requests = 0
        for each in self.arrivals():
            if each.event in wanted:
                first.setdefault(each.event, each.at)
                requests += 1
        return Received(first, lost=len(wanted) - len(first), repeated=requests - len(first))

    def arrivals(self) -> Iterator[Arrival]:
        """Everything that came since the last call, in order."""
        for line in self._take().splitlines():
            event, delivery, at = line.split(" ")
            yield Arrival(event, delivery, float(at))

    def close(self) -> None:
        """End it; a repeat does nothing."""
        self._popen.kill()
        self._popen.wait()

    def _take(self) -> str:
        self._file.unlink(missing_ok=True)
        self._popen.send_signal(signal.SIGUSR1)
        until = time.monotonic() + PATIENCE
        while not self._file.exists():
            if time.monotonic() > until:
                raise LocalServiceError(f"The sink did not say within {PATIENCE:g} s what it received.")
            time.sleep(0.01)
        return self._file.read_text(encoding="ascii")
