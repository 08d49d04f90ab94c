"""The child of a delivery worker that sends what may have killed those that sent it, one claim after the other.

Its input are claims, a line each; it says with a byte when it is ready, and when the outcome of each is recorded.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from app.core.child import read
from app.core.clock import LedgerClock
from app.core.presence import leave_counted
from app.core.suspects import OVER
from app.process import begin_with_ledger
from app.runtime import make_dispatcher

POOL_SIZE = 3  # connections: to prepare, to record, to renew


def main() -> None:
    """Send until there is nothing more: its parent wants no more, or has died."""
    tell = _answering()
    runtime = begin_with_ledger("suspect", pool_size=POOL_SIZE)
    dispatcher = make_dispatcher(runtime, LedgerClock(runtime.engine))
    tell()
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_REAL, runtime.settings.deadline_seconds + OVER)  # its end, parent or none
        claim, claimed_at = read(line)
        dispatcher.send([claim], claimed_at)
        dispatcher.settle()
        signal.setitimer(signal.ITIMER_REAL, 0)
        tell()
    dispatcher.stop()
    leave_counted(runtime.engine, "suspect")
    runtime.close()


def _answering() -> Callable[[], None]:
    """Answers go where standard output went; whatever a library prints goes to the log."""
    told = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell() -> None:
        with suppress(BrokenPipeError):  # the parent has died: no claim will follow
            os.write(told, b".")

    return tell


main()
