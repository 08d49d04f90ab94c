"""Stops processes for a while: a program that continues them when its input ends, so also when its starter is killed.

A stopped worker that nobody continues would look alive for ever: no supervisor sees that it does nothing.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def paused(pids: Sequence[int]) -> Iterator[None]:
    """Stopped by SIGSTOP inside the block, continued after it, whatever happens."""
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, *map(str, pids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a terminal's Ctrl-C is not for it
    )
    try:
        assert keeper.stdin and keeper.stdout
        keeper.stdout.readline()
        yield
    finally:
        keeper.communicate()


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def keep(pids: Sequence[int]) -> None:
    """Stop them, say so, and continue them at the end of the input."""
    try:
        _send(pids, signal.SIGSTOP)
        print("stopped", flush=True)
        sys.stdin.read()
    finally:
        _send(pids, signal.SIGCONT)


if __name__ == "__main__":
    keep([int(pid) for pid in sys.argv[1:]])
