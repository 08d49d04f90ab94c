"""The receivers that we show to people, as processes: the examples, and what is extracted from docs/receivers.md."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.waiting import wait_until

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "receivers.md"
Command = Callable[[Path, int], Sequence[str | Path]]
_SNIPPET = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets() -> dict[str, str]:
    """The programs of the page, by the names that they give themselves."""
    return dict(_SNIPPET.findall(PAGE.read_text()))


def _uvicorn(folder: Path, module: str, port: int) -> list[str | Path]:
    return [sys.executable, "-m", "uvicorn", "--app-dir", folder, f"{module}:api", "--port", str(port)]


def _flask(folder: Path, port: int) -> list[str | Path]:
    return [sys.executable, "-m", "flask", "--app", folder / "flask_hooks.py", "run", "--port", str(port)]


def _django(folder: Path, port: int) -> list[str | Path]:
    return [sys.executable, folder / "django_hooks.py", "runserver", "--noreload", str(port)]


def _node(_folder: Path, _port: int) -> list[str | Path]:
    return [node(), EXAMPLES / "node-receiver" / "src" / "server.js"]


def node() -> str:
    """Node.js; skips the test where it or the example's packages are missing."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node.js is not installed")
    if not (EXAMPLES / "node-receiver" / "node_modules").exists():
        pytest.skip("npm's packages are not installed: `make examples` does")
    return found


PROGRAMS: dict[str, Command] = {
    "FastAPI": lambda folder, port: _uvicorn(folder, "fastapi_hooks", port),
    "Flask": _flask,
    "Django": _django,
    "python-receiver": lambda _, port: _uvicorn(EXAMPLES / "python-receiver", "receiver", port),
    "node-receiver": _node,
}


class Program:
    """A receiver's process on a port of its own; it can be killed and started again, with other secrets."""

    def __init__(self, name: str, folder: Path, database_url: str) -> None:
        self.name = name
        self.port = _free_port()
        self.log = folder / "log"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DUEHOOK_", "PG"))},
            "PYTHONPATH": str(ROOT),
            "DATABASE_URL": database_url,
            "PORT": str(self.port),
        }
        for file, text in snippets().items():
            (folder / file).write_text(text)
        self._command = PROGRAMS[name](folder, self.port)

    def start(self, *secrets: str) -> None:
        """Returns when it listens."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env={**self.environment, "WEBHOOK_SECRETS": " ".join(secrets)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._listens, deadline=30, what=f"{self.name} listens")

    def kill(self) -> None:
        """At once, by SIGKILL; a repeat does nothing."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def _listens(self) -> bool:
        assert self.running, self.log.read_text()[-3000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
