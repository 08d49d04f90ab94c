"""How the supervisor hears that it should stop."""

import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Counts the requests to stop: the first drains, the second hurries.

    A plain counter that is looked at between short sleeps: a lock taken in a signal handler could be held already by
    the code that the signal interrupted.
    """

    def __init__(self) -> None:
        self.requests = 0

    def requested(self) -> bool:
        """Whether it should end."""
        return self.requests > 0

    def hurried(self) -> bool:
        """Whether it should end at once."""
        return self.requests > 1

    def listen(self) -> None:
        """From now on signals are counted."""
        _on_signals(self._request)

    def _request(self, *_: object) -> None:
        self.requests += 1


def interrupt_on_signals() -> None:
    """Until somebody listens, every such signal raises KeyboardInterrupt: whatever is half started unwinds."""
    _on_signals(signal.default_int_handler)


def _on_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    for each in SIGNALS:
        if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN:  # `nohup` means it
            signal.signal(each, handler)
