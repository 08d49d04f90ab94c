"""Tenants take turns: how long one waits for an answer depends little on how much another asks."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Protocol, TypeAlias, TypeVar

from fastapi.routing import APIRoute

T = TypeVar("T")
Turn: TypeAlias = "tuple[asyncio.Future[None], int]"  # and what it weighs
LONG_BYTES = 64 * 1024  # of a body that takes long to read


class Turns:
    """The threads on which requests are answered, and who gets the next that is free.

    Tenants that wait are served in turn, one request each, and none holds more than a quarter of the threads: first
    come, first served would make everybody wait behind whatever one tenant has posted at once, and behind its locks.
    A long request counts as all of that but one: two lists of a thousand that are read at once leave a short request
    little of the interpreter. Belongs to one event loop.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "answer")
        self._share = max(1, threads // 4)
        self._free = threads
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[Turn]] = OrderedDict()

    async def run(self, tenant: str, work: Callable[[], T], *, is_long: bool = False) -> T:
        """What `work` returns, once it was this request's turn."""
        weight = max(1, self._share - 1) if is_long else 1
        await self._wait(tenant, weight)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._give_back(tenant, weight)

    async def _wait(self, tenant: str, weight: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        # In line even when there is room: a long request must not be passed by all the short ones of its tenant.
        self._waiting.setdefault(tenant, deque()).append((turn, weight))
        self._hand_on()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # given, and nobody is left to use it
                self._give_back(tenant, weight)
            raise

    def _fits(self, tenant: str, weight: int) -> bool:
        return self._held[tenant] + weight <= self._share

    def _take(self, tenant: str, weight: int) -> None:
        self._free -= 1
        self._held[tenant] += weight

    def _give_back(self, tenant: str, weight: int) -> None:
        self._free += 1
        self._held[tenant] -= weight
        if not self._held[tenant]:
            del self._held[tenant]
        self._hand_on()

    def _hand_on(self) -> None:
        """As many turns as there is room for, each to the tenant whose last one is longest ago."""
        while self._free and self._hand_one_on():
            pass

    def _hand_one_on(self) -> bool:
        """To whoever has waited since its last turn for longest and may hold as much more; whether there was one."""
        for tenant, turns in list(self._waiting.items()):
            while turns and turns[0][0].done():
                turns.popleft()  # cancelled
            if not turns:
                del self._waiting[tenant]
            elif self._fits(tenant, turns[0][1]):
                turn, weight = turns.popleft()
                self._waiting.move_to_end(tenant)
                self._take(tenant, weight)
                turn.set_result(None)
                return True
        return False


class Caller(Protocol):
    """Whose turn it is, and at what."""

    @property
    def tenant(self) -> str: ...
    @property
    def turns(self) -> Turns: ...


class InTurn(APIRoute):
    """A route whose endpoint has a `call`, and is answered when it is the turn of the tenant who calls."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, in_turn(endpoint), **options)


def in_turn(endpoint: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """`endpoint`, answered on a thread when it is its turn. Its body has been read by then: nobody waits for that."""

    @wraps(endpoint)
    async def waiting(**given: Any) -> T:
        caller: Caller = given["call"]
        is_long = len(given.get("body", b"")) > LONG_BYTES
        return await caller.turns.run(caller.tenant, partial(endpoint, **given), is_long=is_long)

    return waiting
