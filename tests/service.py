"""A whole service for tests: `duehook up` as a process of its own, in a home of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from json import loads
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

DUEHOOK = [sys.executable, "-P", "-m", "app.cli.main"]
PATIENCE = 60.0


def environment(**settings: object) -> dict[str, str]:
    """Of a command: these settings (without their prefix) and none of the developer's own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DUEHOOK_", "PG"))}
    return inherited | {f"DUEHOOK_{name.upper()}": str(value) for name, value in settings.items()}


def duehook(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; whatever it was, it must not answer with a traceback."""
    done = subprocess.run(
        [*DUEHOOK, *arguments],
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


class Up:
    """A running `duehook up`, printing its connection as JSON or as people like it."""

    def __init__(self, home: Path, *, json: bool = True, **settings: object) -> None:
        self.home = home
        self._out = home.parent / f"{home.name}.out"
        with self._out.open("ab") as out:
            self.process = subprocess.Popen(
                [*DUEHOOK, "up", *(["--json"] if json else [])],
                env=environment(**{"home": home, "api_port": 0, "flower_port": 0, **settings}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def connection(self) -> dict[str, Any]:
        """What `connection.json` says now."""
        found: dict[str, Any] = loads((self.home / "connection.json").read_text())
        return found

    @property
    def pids(self) -> dict[str, list[int]]:
        """Of the processes, by role."""
        found: dict[str, list[int]] = self.connection["pids"]
        return found

    def said(self) -> str:
        """Everything it has printed."""
        return self._out.read_text()

    def wait_until_ready(self) -> "Up":
        """Until it has written its way in."""

        def is_ready() -> bool:
            assert self.process.poll() is None, self.said()
            return (self.home / "connection.json").exists()

        wait_until(is_ready, deadline=PATIENCE, what="duehook up was ready")
        return self

    def end(self, ending: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, wait for its end, and return its exit code."""
        self.process.send_signal(ending)
        return self.process.wait(PATIENCE)


@contextmanager
def running(home: Path, *, json: bool = True, **settings: object) -> Iterator[Up]:
    """Ready at the start; at the end nothing is left, whatever has happened in between."""
    up = Up(home, json=json, **settings)
    try:
        yield up.wait_until_ready()
    finally:
        if up.process.poll() is None:
            up.end()
        up.process.kill()
    assert "Traceback" not in up.said(), up.said()


def left_of(home: Path) -> list[str]:
    """The living processes that were started for this home, or work in it."""
    return [line for entry in Path("/proc").iterdir() if entry.name.isdigit() for line in _line(entry, str(home))]


def _line(entry: Path, home: str) -> Iterator[str]:
    try:
        if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        environ = (entry / "environ").read_bytes().decode(errors="replace")
        folder = str((entry / "cwd").readlink())
    except OSError:  # it has ended meanwhile
        return
    if f"DUEHOOK_HOME={home}\0" in environ or home in command or folder.startswith(home):
        yield f"{entry.name} {command}"
