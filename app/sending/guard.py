"""Which addresses a host may be reached at: looked up once, vetted all, used for a while.

The address that was vetted is the address that is connected to. Asking again between check and connect is
DNS rebinding: the first answer public, the second 169.254.169.254.
"""

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar
from weakref import WeakValueDictionary

from app.domain.addresses import Networks, why_refused
from app.domain.exchange import Blocked, Phase, Unreached
from app.domain.urls import literal_address

PINNED_SECONDS = 300.0
# A lookup can't be interrupted, takes a thread, and the system's resolver gives up only after tens of seconds. So
# that names whose servers don't answer starve each other and not the rest, all names of one zone together get a few
# of the threads, and a zone that was slow gets its next one from the few threads of the slow ones.
QUICK_THREADS = 16
SLOW_THREADS = 4
THREADS_PER_ZONE = 4
SLOW_SECONDS = 1.0
REMEMBERED_NAMES = 4096

_V = TypeVar("_V")
Lookup: TypeAlias = Callable[[str], list[str]]


def system_lookup(host: str) -> list[str]:
    """All addresses of a name in the system's order of preference (RFC 6724); OSError when it has none."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class Resolution:
    """Vetted addresses, to be tried in order, and the loop time in seconds after which none may be used."""

    addresses: tuple[str, ...]
    expires_at: float


Vetted: TypeAlias = Resolution | Blocked | Unreached
Asked: TypeAlias = tuple[list[str] | Unreached, float]


class Guard:
    """Resolves hosts for one event loop and refuses those with an address that is not allowed.

    `lookup` runs in a thread and may block. A name has one lookup under way at most, which everybody who asks
    meanwhile shares, and which outlives those who give up.
    """

    def __init__(
        self,
        allowed_networks: Networks = (),
        *,
        lookup: Lookup = system_lookup,
        pinned_seconds: float = PINNED_SECONDS,
    ) -> None:
        self._allowed, self._lookup, self._pinned_seconds = allowed_networks, lookup, pinned_seconds
        self._quick = ThreadPoolExecutor(QUICK_THREADS, "resolve")
        self._slow = ThreadPoolExecutor(SLOW_THREADS, "resolve-slow")
        self._slow_zones: OrderedDict[str, float] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way: dict[str, asyncio.Task[Vetted]] = {}
        self._pinned: OrderedDict[str, Resolution] = OrderedDict()

    async def resolve(self, host: str) -> Vetted:
        """The addresses to connect to for `host`: a pinned answer, the literal itself, or a fresh lookup.

        It has no deadline of its own; cancelling it leaves the lookup to those who still wait.
        """
        now = asyncio.get_running_loop().time()
        pinned = self._pinned.get(host)
        if pinned and now < pinned.expires_at:
            return pinned
        if literal_address(host):
            return self._vet(host, [host], literal=True)
        return await asyncio.shield(self._shared_lookup(host))

    def forget(self, host: str) -> None:
        """Drops the pinned answer: nothing at its addresses could be reached, perhaps the name has moved."""
        self._pinned.pop(host, None)

    def close(self) -> None:
        """Starts no further lookup; one that runs can't be stopped and ends in its thread."""
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)

    async def end(self) -> None:
        """Closes, and gives up the lookups under way, also for those who wait for them; their threads end by
        themselves."""
        self.close()
        under_way = list(self._under_way.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _shared_lookup(self, host: str) -> asyncio.Task[Vetted]:
        task = self._under_way.get(host)
        if task is None:
            task = self._under_way[host] = asyncio.create_task(self._look_up(host))
            task.add_done_callback(lambda _: self._under_way.pop(host, None))
        return task

    async def _look_up(self, host: str) -> Vetted:
        zone = ".".join(host.split(".")[-2:])
        turn = self._turns.setdefault(zone, asyncio.Semaphore(THREADS_PER_ZONE))
        async with turn:
            found, seconds = await self._ask_in_thread(zone, host)
        self._slow_zones.pop(zone, None)
        if seconds > SLOW_SECONDS:
            _remember(self._slow_zones, zone, seconds)
        return found if isinstance(found, Unreached) else self._vet(host, found, literal=False)

    async def _ask_in_thread(self, zone: str, host: str) -> Asked:
        pool = self._slow if zone in self._slow_zones else self._quick
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, self._ask, host)
        except RuntimeError:  # the pool is shut down
            return Unreached(Phase.RESOLVE, "the resolver is closed"), 0.0

    def _ask(self, host: str) -> Asked:
        """Runs in a thread: what the lookup found, and the seconds it took without the wait for the thread."""
        started = time.monotonic()
        found: list[str] | Unreached
        try:
            found = self._lookup(host)
        except Exception as error:  # noqa: BLE001 - gaierror, UnicodeError of IDNA, and whatever a given lookup raises
            reason = getattr(error, "strerror", None) or error
            found = Unreached(Phase.RESOLVE, f"the name could not be resolved: {reason}")
        return found, time.monotonic() - started

    def _vet(self, host: str, addresses: list[str], *, literal: bool) -> Vetted:
        """One refused address refuses the name: who mixes public and private ones means to swap them."""
        for address in addresses:
            if reason := why_refused(address, self._allowed):
                return Blocked(reason, literal, address)
        if not addresses:
            return Unreached(Phase.RESOLVE, "the name has no addresses")
        expires_at = asyncio.get_running_loop().time() + self._pinned_seconds
        resolution = Resolution(tuple(addresses), expires_at)
        _remember(self._pinned, host, resolution)
        return resolution


def _remember(names: OrderedDict[str, _V], host: str, value: _V) -> None:
    names[host] = value
    names.move_to_end(host)
    if len(names) > REMEMBERED_NAMES:
        names.popitem(last=False)
