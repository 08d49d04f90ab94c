"""The delivery engine: one event loop in a thread of its own that sends what it is given and tells what came back.

It has a bounded number of places, over all and for each endpoint. A place is taken when a send is started and free
again when its outcome is recorded, so that neither slow receivers nor a slow database can pile anything up here.
"""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import uvloop

from app import metrics
from app.domain.exchange import Exchange
from app.domain.urls import Origin
from app.sending.transport import PinnedTransport

T = TypeVar("T")
GLANCE = 0.02  # seconds that are worth waiting for more places at once
PACE = 0.5  # seconds that an endpoint's pace is taken over


@dataclass(frozen=True, slots=True)
class Send(Generic[T]):
    """A request ready to go; `subject` is the caller's own, `endpoint` is whose place it takes."""

    subject: T
    endpoint: int
    origin: Origin
    head: bytes = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """What came of it; times are by `time.monotonic()`, for a machine's clock may be set in between."""

    send: Send[T]
    exchange: Exchange
    started: float
    ended: float


class Places:
    """Who may send how much at once; thread-safe.

    An endpoint may have its limit, but never more than half of what it would leave free (a dynamic threshold, after
    Choudhury and Hahne, 1998): however many of them are slow, there are places for the others.
    """

    def __init__(self, total: int, each: int) -> None:
        self.total = total
        self.each = each
        self._limits: dict[int, int] = {}
        self._used: Counter[int] = Counter()
        self._ended: dict[int, deque[tuple[float, int]]] = {}  # when and how many, of endpoints that use some
        self._began: dict[int, float] = {}  # since when they do
        self._since: dict[int, float] = {}  # when the last ended, or the first of them began
        self._hurried = False
        self._changed = threading.Condition()
        metrics.PLACES.inc(total)

    def limit(self, endpoint: int, limit: int | None) -> None:
        """An endpoint's own limit; None for the common one."""
        with self._changed:
            if limit is None:
                self._limits.pop(endpoint, None)
            else:
                self._limits[endpoint] = limit

    def take(self, endpoints: Sequence[int]) -> None:
        metrics.SENDING.inc(len(endpoints))
        with self._changed:
            self._used.update(endpoints)
            now = time.monotonic()
            for endpoint in set(endpoints):
                self._began.setdefault(endpoint, now)
                self._since.setdefault(endpoint, now)

    def give(self, endpoints: Sequence[int]) -> None:
        metrics.SENDING.dec(len(endpoints))
        with self._changed:
            now = time.monotonic()
            for endpoint, number in Counter(endpoints).items():
                self._used[endpoint] -= number
                if self._used[endpoint] <= 0:
                    for kept in (self._used, self._ended, self._began, self._since):
                        kept.pop(endpoint, None)
                else:
                    self._since[endpoint] = now
                    self._ended.setdefault(endpoint, deque()).append((now, number))
            self._changed.notify_all()

    @property
    def used(self) -> int:
        return self._used.total()

    def free(self, wanted: int, patience: float) -> int:
        """How many places are free; waits a glance until it is `wanted`, or half of all, and `patience` for one."""
        enough = min(wanted, max(1, self.total // 2))
        until = time.monotonic() + patience
        with self._changed:
            self._changed.wait_for(lambda: self._hurried or self.total - self.used >= enough, min(GLANCE, patience))
            self._changed.wait_for(lambda: self._hurried or self.total > self.used, max(0.0, until - time.monotonic()))
            return max(0, self.total - self.used)

    def hurry(self) -> None:
        """From now on nobody waits for a free place, also who waits already."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def call(self) -> None:
        """Have who waits for a change look again: somebody else may want the places that are free."""
        with self._changed:
            self._changed.notify_all()

    def wait_for_change(self, patience: float) -> None:
        """Wait until places were given back or somebody calls, but not longer than `patience` seconds."""
        with self._changed:
            if not self._hurried:
                self._changed.wait(patience)

    def shares(self) -> tuple[int, Mapping[int, int]]:
        """How many an endpoint may take now, and those that it is another number for."""
        with self._changed:
            free = self.total - self.used
            known = self._used.keys() | self._limits.keys()
            return self._share(self.each, 0, free), {
                each: self._share(self._limit(each), self._used[each], free) for each in known
            }

    @staticmethod
    def _share(limit: int, used: int, free: int) -> int:
        return max(0, min(limit - used, (free - used + 1) // 2))

    def share(self, endpoint: int) -> int:
        """How many this endpoint may take now."""
        with self._changed:
            return self._share(self._limit(endpoint), self._used[endpoint], self.total - self.used)

    def limit_of(self, endpoint: int) -> int:
        """How many this endpoint may have in the air, if nobody else has any."""
        with self._changed:
            return self._limit(endpoint)

    def _limit(self, endpoint: int) -> int:
        return self._limits.get(endpoint, self.each)

    def soon(self, endpoint: int, seconds: float) -> int:
        """How many places an endpoint will give back in so many seconds, by its pace just now.

        One that has nothing in the air, or has begun a moment ago, has shown no pace yet: it gets the chance to.
        """
        with self._changed:
            if self._hurried:
                return 0
            if pace := self._pace(endpoint):
                return int(pace * seconds)
            now = time.monotonic()
            return self._limit(endpoint) if now - self._since.get(endpoint, now) < seconds else 0

    def quick(self, endpoint: int, seconds: float) -> bool:
        """Whether an endpoint gives back all that it may have within so many seconds, by its pace just now.

        Answers that come all at once after a long time are no such pace: `PACE` is longer than `seconds`.
        """
        with self._changed:
            return not self._hurried and self._pace(endpoint) * seconds >= self._limit(endpoint)

    def _pace(self, endpoint: int) -> float:
        """Sends that ended in a second, over the last `PACE` seconds or since it began."""
        ended, now = self._ended.get(endpoint, deque()), time.monotonic()
        while ended and ended[0][0] < now - PACE:
            ended.popleft()
        if not ended:
            return 0.0
        return sum(number for _, number in ended) / max(GLANCE, min(PACE, now - self._began[endpoint]))

    def drain(self, patience: float) -> bool:
        """Wait until none is used; whether that came true within `patience` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.used, patience)


class Engine(Generic[T]):
    """Sends; `told` is called in the loop's thread with each `Sent` and must be quick and never raise."""

    def __init__(
        self, make_transport: Callable[[], PinnedTransport], told: Callable[[Sent[T]], None], *, deadline: float
    ) -> None:
        self._make_transport = make_transport
        self._told = told
        self._deadline = deadline
        self._loop = uvloop.new_event_loop()
        self._ready = threading.Event()
        self._sends: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()
        self._ready.wait()

    def start(self, sends: Sequence[Send[T]]) -> None:
        """Send these now; returns at once."""
        self._loop.call_soon_threadsafe(self._start, sends)

    def stop(self) -> None:
        """Cut what is in the air and end the loop; a repeat does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._transport = self._loop.run_until_complete(self._open())
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._close())
            self._loop.close()

    async def _open(self) -> PinnedTransport:
        return self._make_transport()

    async def _close(self) -> None:
        for task in self._sends:
            task.cancel()
        await asyncio.gather(*self._sends, return_exceptions=True)
        await self._transport.aclose()

    def _start(self, sends: Sequence[Send[T]]) -> None:
        for send in sends:
            task = self._loop.create_task(self._send(send))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)

    async def _send(self, send: Send[T]) -> None:
        started = time.monotonic()
        deadline = self._loop.time() + self._deadline
        exchange = await self._transport.send(send.origin, send.head, send.body, deadline)
        self._told(Sent(send, exchange, started, time.monotonic()))
