"""Ids that wait in this process for a place at their endpoint, or for the slot that it gave them.

They are no claims: their rows say what to do about them if this process dies.
"""

import heapq
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiter:
    """A due delivery: `slot` by the ledger's clock, `until` by the monotonic one; `parked` if it is so anyway."""

    delivery: int
    endpoint: int
    slot: float
    until: float
    parked: bool = False


class Waiting:
    """Who waits, by endpoint, in the order of their slots; thread-safe."""

    def __init__(self) -> None:
        self._queues: dict[int, list[tuple[float, int, Waiter]]] = {}
        self._known: set[int] = set()
        self._more: dict[int, float] = {}  # endpoints for which more could wait here, and until when
        self._changed = threading.Condition()
        self._closed = False

    def add(self, waiters: Iterable[Waiter]) -> None:
        """Those that wait already keep the place that they have."""
        with self._changed:
            for each in waiters:
                if each.delivery not in self._known and not self._closed:
                    self._known.add(each.delivery)
                    heapq.heappush(self._queues.setdefault(each.endpoint, []), (each.slot, each.delivery, each))
            self._changed.notify()

    def wait(self) -> bool:
        """Wait until there is somebody, or could be; false when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._known or self._more)
            return not self._closed

    def expect(self, endpoints: Iterable[int], more: Iterable[int], until: float) -> None:
        """Of these endpoints those have `more` to wait here than was found a place, until somebody looks anew."""
        with self._changed:
            for each in endpoints:
                self._more.pop(each, None)
            self._more |= dict.fromkeys(more, until)
            self._changed.notify()

    def short(self, enough: Callable[[int], int]) -> list[int]:
        """The endpoints that have more, and for which fewer wait here than is `enough`."""
        with self._changed:
            now = time.monotonic()
            self._more = {each: until for each, until in self._more.items() if until > now}
            return [each for each in self._more if len(self._queues.get(each, ())) < enough(each)]

    def next_slot(self, now: float, most: float) -> float:
        """Seconds until the next slot comes, at most `most`; those whose slot has come wait for a place."""
        with self._changed:
            slots = [queue[0][0] - now for queue in self._queues.values()]
            return min([most, *(each for each in slots if each > 0)])

    def number(self, endpoint: int) -> int:
        """How many wait for an endpoint."""
        with self._changed:
            return len(self._queues.get(endpoint, ()))

    def take(self, now: float, share: Callable[[int], int], most: int) -> list[Waiter]:
        """Those whose slot has come and whose endpoint has a place for them, `most` in all."""
        taken: list[Waiter] = []
        with self._changed:
            for endpoint, queue in list(self._queues.items()):
                free = min(share(endpoint), most - len(taken)) if queue[0][0] <= now else 0
                while free > 0 and queue and queue[0][0] <= now:
                    taken.append(heapq.heappop(queue)[2])
                    free -= 1
                if not queue:
                    del self._queues[endpoint]
            self._known.difference_update(each.delivery for each in taken)
        return taken

    def take_late(self) -> list[Waiter]:
        """Those that have waited long enough."""
        with self._changed:
            now = time.monotonic()
            return self._take([each for _, _, each in self._all() if each.until <= now])

    def close(self) -> list[Waiter]:
        """Everybody; nobody waits any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            return self._take([each for _, _, each in self._all()])

    def _all(self) -> Iterable[tuple[float, int, Waiter]]:
        return [entry for queue in self._queues.values() for entry in queue]

    def _take(self, waiters: list[Waiter]) -> list[Waiter]:
        for each in waiters:
            self._queues[each.endpoint].remove((each.slot, each.delivery, each))
            self._known.discard(each.delivery)
            if not self._queues[each.endpoint]:
                del self._queues[each.endpoint]
        for endpoint in {each.endpoint for each in waiters} & self._queues.keys():
            heapq.heapify(self._queues[endpoint])
        return waiters
