"""A program of a peer as a process: it can be held, and ends with everything it has started."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import ClassVar

from app.local import leash
from app.local.errors import LocalServiceError

PATIENCE = 60.0


class Program:
    """Runs in a session of its own, which is killed when this process dies; it writes to `log`."""

    talks: ClassVar[bool] = False  # by its standard input and output

    def __init__(self, command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(int(signal.SIGKILL))]
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [*leashed, *map(str, command)],
                cwd=log.parent,
                env=environment,
                stdin=subprocess.PIPE if self.talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self.talks else errors,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._popen.pid

    def hold(self) -> None:
        """It and its children stand still until `release`."""
        os.killpg(self.pid, signal.SIGSTOP)

    def release(self) -> None:
        """They go on, unless they have ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def end(self, *, patience: float = 3.0) -> None:
        """Ask it to end, then kill what is left of its group; a repeat does nothing."""
        if self._popen.poll() is None:
            self._popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def finish(self) -> None:
        """Wait until it has ended by itself; raises LocalServiceError when it fails or takes too long."""
        try:
            failed = self._popen.wait(PATIENCE) != 0
        except subprocess.TimeoutExpired:
            failed = True
        self.end()
        if failed:
            raise self.failure("failed")

    def check(self) -> None:
        """Raises LocalServiceError when it has ended."""
        if self._popen.poll() is not None:
            raise self.failure("ended")

    def failure(self, what: str) -> LocalServiceError:
        """With the last that it said."""
        lines = self._log.read_text(errors="replace").splitlines()[-8:]
        return LocalServiceError(f"{self._log.stem} {what}; the end of what it said:\n" + "\n".join(lines))


class Producer(Program):
    """A program that says `ready`, and hands in what it is told by a line, and then says `done`."""

    talks = True

    def wait_until_ready(self) -> None:
        """Raises LocalServiceError when it says anything else or nothing."""
        self._wait_for("ready")

    def produce(self, prefix: str, number: int) -> None:
        """So many jobs, whose ids are the prefix and a number from 0 on; raises LocalServiceError when it can't."""
        assert self._popen.stdin
        with suppress(BrokenPipeError):  # it has ended, which the answer shows
            self._popen.stdin.write(f"{prefix} {number}\n".encode())
            self._popen.stdin.flush()
        self._wait_for("done")

    def _wait_for(self, word: str) -> None:
        assert self._popen.stdout
        with DefaultSelector() as selector:
            selector.register(self._popen.stdout, EVENT_READ)
            if not selector.select(PATIENCE) or self._popen.stdout.readline().decode().strip() != word:
                raise self.failure(f"did not say {word!r}")
