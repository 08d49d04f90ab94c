"""A child process that sends one claim after the other, and is all that dies of one; see `workers.suspect`."""

import json
import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from uuid import UUID

from app.ledger.deliveries import Claim

# What it has no use for: others' access, its worker's port, the file by which that says that it is ready.
WITHHELD = (
    "DUEHOOK_BROKER_URL",
    "DUEHOOK_FLOWER_LOGIN",
    "DUEHOOK_METRICS_TOKEN",
    "DUEHOOK_METRICS_PORT",
    "DUEHOOK_READY_FILE",
)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
ENDING = 5.0  # seconds that it has to end by itself


class Child:
    """A claim goes in as a line of ids, a byte comes back when its outcome is recorded; another when it is ready.

    It shares nothing but the log. When its parent dies it ends what it has begun, and then finds that nothing comes.
    What is meant to stop its parent, and sent to the whole group, never reaches it, not even while it starts.
    """

    def __init__(self, command: Sequence[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in WITHHELD}
        with _blocked(STOPS):
            self._popen = subprocess.Popen(
                command, env=environment, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._popen.stdin and self._popen.stdout
        self._in, self._out = self._popen.stdin, self._popen.stdout

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def give(self, claim: Claim, claimed_at: float) -> bool:
        """Have it send this; False when it is gone and can't have begun."""
        try:
            self._in.write(written(claim, claimed_at))
        except BrokenPipeError:
            return False
        return True

    def answers(self, patience: float) -> bool:
        """Whether it says within `patience` seconds that it is done; False as soon as it is dead."""
        return bool(wait([self._out.fileno()], patience)) and bool(self._out.read(1))

    def end(self, patience: float = ENDING) -> int:
        """Let it end, or kill it after `patience` seconds; returns its exit code. A repeat is harmless."""
        self._in.close()
        try:
            self._popen.wait(patience)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._out.close()
        return self._popen.wait()

    def kill(self) -> None:
        """End it where it is; who waits for its answer gets none."""
        self._popen.kill()


@contextmanager
def _blocked(signals: Collection[signal.Signals]) -> Iterator[None]:
    """For this thread, and for good in those processes that it starts meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def written(claim: Claim, claimed_at: float) -> bytes:
    """A claim and the monotonic time before it was made, which all processes of a host share, as a line."""
    return json.dumps([claimed_at, claim._asdict()], default=str).encode() + b"\n"


def read(line: bytes) -> tuple[Claim, float]:
    """What `written` was given."""
    claimed_at, fields = json.loads(line)
    return Claim(**{**fields, "token": UUID(fields["token"])}), claimed_at
