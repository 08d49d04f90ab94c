"""The delivery engine: one event loop in a thread of its own that sends what it is given and tells what came back.

It has a bounded number of places, over all and for each endpoint. A place is taken when a send is started and free
again when its outcome is recorded, so that neither slow receivers nor a slow database can pile anything up here.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import uvloop

from app.domain.exchange import Exchange
from app.domain.urls import Origin
from app.sending.transport import PinnedTransport

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send(Generic[T]):
    """A request ready to go; `subject` is the caller's own, `endpoint` is whose place it takes."""

    subject: T
    endpoint: int
    origin: Origin
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """What came of it; times are by `time.monotonic()`, for a machine's clock may be set in between."""

    send: Send[T]
    exchange: Exchange
    started: float
    ended: float


class Places:
    """Who may send how much at once; thread-safe."""

    def __init__(self, total: int, each: int) -> None:
        self.total = total
        self.each = each
        self._limits: dict[int, int] = {}
        self._used: Counter[int] = Counter()
        self._hurried = False
        self._changed = threading.Condition()

    def limit(self, endpoint: int, limit: int | None) -> None:
        """An endpoint's own limit; None for the common one."""
        with self._changed:
            if limit is None:
                self._limits.pop(endpoint, None)
            else:
                self._limits[endpoint] = limit

    def take(self, endpoints: Sequence[int]) -> None:
        with self._changed:
            self._used.update(endpoints)

    def give(self, endpoints: Sequence[int]) -> None:
        with self._changed:
            self._used.subtract(endpoints)
            for endpoint in set(endpoints):
                if self._used[endpoint] <= 0:
                    del self._used[endpoint]
            self._changed.notify_all()

    @property
    def used(self) -> int:
        return self._used.total()

    def free(self, wanted: int, patience: float) -> int:
        """How many places are free; waits up to `patience` seconds until it is `wanted`, or half of all."""
        enough = min(wanted, max(1, self.total // 2))
        with self._changed:
            self._changed.wait_for(lambda: self._hurried or self.total - self.used >= enough, patience)
            return max(0, self.total - self.used)

    def hurry(self) -> None:
        """From now on nobody waits for a free place, also who waits already."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def free_of(self) -> Mapping[int, int]:
        """The free places of endpoints where they are not the common limit."""
        with self._changed:
            known = self._used.keys() | self._limits.keys()
            return {each: max(0, self._limits.get(each, self.each) - self._used[each]) for each in known}

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
