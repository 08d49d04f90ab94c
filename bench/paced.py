"""Something done again and again beside what is measured."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Paced:
    """Calls `act(n)` in a thread of its own, `rate` times a second or as often as it can, inside the block.

    What it raises ends it, and comes up at the end of the block.
    """

    def __init__(self, rate: float, act: Callable[[int], None]) -> None:
        self._rate = rate
        self._act = act
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def check(self) -> None:
        """Raise what has ended it, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        try:
            while not self._stopped.wait(max(0.0, began + number / self._rate - time.monotonic())):
                self._act(number)
                number += 1
        except Exception as error:  # noqa: BLE001 - raised where the block ends
            self._error = error
