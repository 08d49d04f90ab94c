"""Signals that end a run: it is unwound, so that everything it started is stopped and removed on the way out."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Every one of them raises KeyboardInterrupt, so that everything is stopped and removed on the way out."""
    heeded = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]  # `nohup` means it
    before = {each: signal.signal(each, signal.default_int_handler) for each in heeded}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def ignore_signals() -> None:
    """While everything is being stopped: it takes seconds, and half of it would be worse."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
