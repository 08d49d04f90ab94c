"""The receivers as whoever runs them has them: processes that are started, told things, read and ended."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from app.demo.ledger import Reader
from app.local.errors import LocalServiceError

GOODBYE_SECONDS = 10.0
PROGRAM = (sys.executable, "-P", "-m", "app.demo.receiver")


class ReceiverProcess:
    """One of them, listening; `ledger` reads what it has written."""

    def __init__(self, name: str, home: Path, program: Sequence[str] = PROGRAM) -> None:
        self.name = name
        self._path = home / f"{name}.sqlite"
        self._log = home / "logs" / f"{name}.log"
        self._log.parent.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*program, self._path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a terminal's Ctrl-C is for whoever started it, who then ends it in order
            )

    def wait_until_listening(self) -> None:
        """Read the port that it says; raises LocalServiceError when it ends instead."""
        assert self._process.stdout
        port = self._process.stdout.readline().decode().strip()
        if not port:
            raise LocalServiceError(f"The receiver {self.name} did not start; see {self._log}.")
        self.url = f"http://127.0.0.1:{port}/duehook"
        self.ledger = Reader(self._path)

    def tell(self, **what: Any) -> None:
        """Change how it behaves (see its program)."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End of input: it ends. A repeat does nothing."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        if hasattr(self, "ledger"):
            self.ledger.close()


@contextmanager
def receivers(
    names: Iterable[str], home: Path, program: Sequence[str] = PROGRAM
) -> Iterator[dict[str, ReceiverProcess]]:
    """Started side by side; all are listening inside the block, none runs after it."""
    with ExitStack() as stack:
        running = {}
        for name in names:
            running[name] = ReceiverProcess(name, home, program)
            stack.callback(running[name].stop)
        for receiver in running.values():
            receiver.wait_until_listening()
        yield running
