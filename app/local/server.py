"""What a local PostgreSQL and a local Valkey have in common: start, answer, stop, die."""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from app.local.access import kept_password, kept_port
from app.local.child import Child
from app.local.errors import LocalServiceError
from app.local.remains import wait_for_remains


class Server(ABC):
    """A server run as a child of this one; its files, port and password stay in `home` between runs.

    The caller holds the home's lock, and calls from one thread at a time (any thread will do).
    """

    title: ClassVar[str]
    slug: ClassVar[str]
    # Signals to stop it with, gentlest first, and the seconds it gets to obey each.
    endings: ClassVar[Sequence[tuple[signal.Signals, float]]]

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.folder = self.home / self.slug
        self.log = self.home / "logs" / f"{self.slug}.log"
        self.port = 0
        self._child: Child | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it, password included; good after `launch`."""

    @abstractmethod
    def _prepare(self) -> Path:
        """Makes the files it needs and returns the program to run."""

    @abstractmethod
    def _arguments(self) -> Sequence[str | Path]:
        """What the program is told, once `port` is known."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it does real work for a client already."""

    @property
    def running(self) -> bool:
        """Whether the child lives, ready or not."""
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        """Of the child; raises LocalServiceError when none runs."""
        if self._child is None or not self._child.running:
            raise LocalServiceError(f"{self.title} in {self.home} does not run.")
        return self._child.pid

    @property
    def password(self) -> str:
        """What clients must say; random, made on first use."""
        return kept_password(self.home / f"{self.slug}.password")

    def start(self, *, deadline: float = 60.0) -> None:
        """Starts it and returns once it answers; a repeat changes nothing, after its death it runs again.

        Raises LocalServiceError with the log's last lines when it dies or is not ready by the deadline.
        """
        self.launch()
        self.wait_until_ready(deadline=deadline)

    def launch(self) -> None:
        """Starts it without waiting for its first answer, so that two can start side by side."""
        if self.running:
            return
        try:
            self._launch()
        except OSError as error:
            raise LocalServiceError(
                f"{self.title} can't be started in {self.home} ({error}): free the disk, "
                "give the folder to the user who runs duehook, or set DUEHOOK_HOME to another folder."
            ) from error

    def wait_until_ready(self, *, deadline: float = 60.0) -> None:
        """Returns once it answers; see `start` for what it raises."""
        until = time.monotonic() + deadline
        while not self._answers():
            if not self.running:
                raise self._failure("ended while starting")
            if time.monotonic() > until:
                failure = self._failure(f"gave no answer within {deadline:g} s")
                self.stop()
                raise failure
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends it cleanly, or by force once its patience is used up; a repeat does nothing."""
        if self._child is None or any(self._child.end(ending, patience=s) for ending, s in self.endings):
            return
        raise self._failure(f"(pid {self._child.pid}) survives SIGKILL, so look at the disk it waits for")

    def kill(self) -> None:
        """Ends it as a crash would: SIGKILL, nothing flushed, nothing tidied; a repeat does nothing."""
        if self._child is not None:
            self._child.end(signal.SIGKILL, patience=30.0)

    def _launch(self) -> None:
        self.log.parent.mkdir(exist_ok=True)
        wait_for_remains(self.folder, title=self.title)
        program = self._prepare()
        self.port = kept_port(self.home / f"{self.slug}.port")
        command = [program, *self._arguments()]
        self._child = Child(command, folder=self.folder, log=self.log, ending=self.endings[0][0])

    def _failure(self, what: str) -> LocalServiceError:
        said = self._child.last_words() if self._child else "it was never started"
        return LocalServiceError(f"{self.title} {what}; the end of {self.log}:\n{said}")
