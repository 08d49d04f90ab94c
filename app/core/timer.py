"""Ids that are due in a moment, held until then and handed on together."""

import heapq
import threading
from collections.abc import Callable, Iterable

from app.core.threads import start_vital

GATHER = 0.002  # seconds after the first is due: what falls due meanwhile goes in the same statement
MARGIN = 0.0005  # seconds that this process's idea of the ledger's clock may be ahead of it


class Timer:
    """Calls `act(ids)` in a thread of its own, or in several, when they are due, all that are due by then together.

    It holds ids and no claims: when the process dies their outbox rows come up again. An id that is given twice is
    acted on once for each time; the ledger finds the second gone.
    """

    def __init__(
        self, act: Callable[[list[int]], None], now: Callable[[], float], *, most: int, name: str, threads: int = 1
    ) -> None:
        self._act = act
        self._now = now
        self._most = most
        self._heap: list[tuple[float, int]] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [start_vital(name, self._run) for _ in range(threads)]

    def add(self, due: Iterable[tuple[float, int]]) -> None:
        """Hold (due, id) pairs; due in seconds by the clock this timer was given."""
        with self._changed:
            first = self._heap[0] if self._heap else None
            for item in due:
                heapq.heappush(self._heap, item)
            if self._heap and self._heap[0] != first:
                self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._heap)

    def drop(self) -> list[int]:
        """Hold nothing any more; returns the ids that were held."""
        with self._changed:
            ids = [each for _, each in self._heap]
            self._heap.clear()
            return ids

    def stop(self) -> list[int]:
        """Stop, wait for the act in progress, and return the ids that were not due yet."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        return self.drop()

    def _run(self) -> None:
        while (ids := self._wait()) is not None:
            self._act(ids)

    def _wait(self) -> list[int] | None:
        """The ids that are due, as soon as there is one; None when stopped."""
        with self._changed:
            while not self._stopping:
                wait = self._heap[0][0] + GATHER - self._now() if self._heap else None
                if wait is not None and wait <= 0:
                    return self._due()
                self._changed.wait(wait)
            return None

    def _due(self) -> list[int]:
        until = self._now() - MARGIN
        ids: list[int] = []
        while self._heap and self._heap[0][0] <= until and len(ids) < self._most:
            ids.append(heapq.heappop(self._heap)[1])
        return ids
