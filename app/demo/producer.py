"""The producer: everything it wants it asks of the HTTP API, as a program of somebody else's would."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_network
from types import TracebackType
from typing import Self

from app.client import AsyncClient, ConflictError, DuehookError, NewEvent, Retries
from app.demo.plan import Hold, Plan, Shipment
from app.demo.tally import Tally
from app.local.errors import LocalServiceError
from app.sending.transport import PinnedTransport

CONNECTIONS = 8
# As long as the demo has patience, and soon again: it is alone with its service.
UNTIL_ANSWERED = Retries(tries=10_000, seconds=600.0, timeout=10.0, first=0.1, longest=1.0)
SHORTEST_SCHEDULE = [1.0, 1.0, 2.0, 2.0] + [3.0] * 30


class RefusedError(LocalServiceError):
    """The API said no to something that it should not refuse."""


class Producer:
    """Asks again until it is answered: ids and keys are its own, so that asking twice is asking once.

    The client goes by the transport that deliveries go by, for it takes a fifth of the time that httpx's own does.
    """

    def __init__(self, api_url: str, api_key: str, tally: Tally) -> None:
        self._tally = tally
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._confirm_turns = asyncio.Semaphore(CONNECTIONS)  # they don't queue behind what may come later
        self._usual = 0.02  # seconds that the answer to a confirm takes
        transport = PinnedTransport((ip_network("127.0.0.0/8"),))
        self._duehook = AsyncClient(api_url, api_key, retries=UNTIL_ANSWERED, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._duehook.aclose()

    async def register(self, url: str, event_types: Sequence[str]) -> str:
        """Make an endpoint; returns its secret."""
        async with _accepted():
            made = await self._duehook.endpoints.create(url, event_types, retry_schedule=SHORTEST_SCHEDULE)
        return str(made.secret)

    async def hold_all(self, plan: Plan, began: float) -> None:
        """Hold and confirm as planned; returns when every confirm is answered."""
        async with asyncio.TaskGroup() as group:
            for hold in plan.holds():
                await _until(began + hold.at)
                group.create_task(self._reserve(hold))

    async def ship_all(self, plan: Plan, began: float) -> None:
        """Post the orders as planned; returns when every post is answered."""
        async with asyncio.TaskGroup() as group:
            for shipment in plan.shipments():
                await _until(began + shipment.at)
                group.create_task(self._ship(shipment))

    async def _reserve(self, hold: Hold) -> None:
        async with _accepted(), self._turns:
            held = await self._duehook.reservations.hold(hold.resource, hold_seconds=hold.seconds, id=hold.id)
        self._tally.held += 1
        if hold.confirm_before is None:
            return
        await asyncio.sleep(held.expires_at.timestamp() - hold.confirm_before - self._usual - time.time())
        began = time.monotonic()
        outcome = self._tally.confirmed if await self._confirm(hold.id) else self._tally.late
        self._usual += (time.monotonic() - began - self._usual) / 10
        outcome.add(hold.id)

    async def _confirm(self, id: str) -> bool:
        """Whether it came before the end."""
        async with _accepted(), self._confirm_turns:
            try:
                await self._duehook.reservations.confirm(id)
            except ConflictError:
                return False
        return True

    async def _ship(self, shipment: Shipment) -> None:
        first, *more = (NewEvent(each["type"], each["data"], key=each["key"]) for each in shipment.orders)
        async with _accepted(), self._turns:
            if more:
                await self._duehook.events.post_many([first, *more])
            else:
                await self._duehook.events.post(first.type, first.data, key=first.key)
        self._tally.shipped += len(shipment.orders)


@asynccontextmanager
async def _accepted() -> AsyncIterator[None]:
    try:
        yield
    except DuehookError as error:
        raise RefusedError(str(error)) from None


async def _until(at: float) -> None:
    if (wait := at - time.monotonic()) > 0:
        await asyncio.sleep(wait)
