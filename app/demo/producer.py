"""The producer: everything it wants it asks of the HTTP API, as a program of somebody else's would."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from ipaddress import ip_network
from types import TracebackType
from typing import Any, Self

import httpx

from app.demo.plan import Hold, Plan, Shipment
from app.demo.tally import Tally
from app.local.errors import LocalServiceError
from app.sending.transport import PinnedTransport

CONNECTIONS = 8
PAUSES = (0.05, 1.0)  # seconds between tries
SHORTEST_SCHEDULE = [1.0, 1.0, 2.0, 2.0] + [3.0] * 30


class RefusedError(LocalServiceError):
    """The API said no to something that it should not refuse."""


class Producer:
    """Asks again until it is answered: ids and keys are its own, so that asking twice is asking once.

    httpx on the transport that deliveries go by, for it takes a fifth of the time that httpx's own does.
    """

    def __init__(self, api_url: str, api_key: str, tally: Tally) -> None:
        self._tally = tally
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._confirm_turns = asyncio.Semaphore(CONNECTIONS)  # they don't queue behind what may come later
        self._usual = 0.02  # seconds that the answer to a confirm takes
        self._client = httpx.AsyncClient(
            base_url=api_url,
            headers={"authorization": f"Bearer {api_key}"},
            transport=PinnedTransport((ip_network("127.0.0.0/8"),)),
            timeout=10.0,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def register(self, url: str, event_types: Sequence[str]) -> str:
        """Make an endpoint; returns its secret."""
        wanted = {"url": url, "event_types": list(event_types), "retry_schedule": SHORTEST_SCHEDULE}
        made = _accepted(await self._client.post("/v1/endpoints", json=wanted))
        return str(made["secret"])

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
        wanted = {"id": hold.id, "resource": hold.resource, "hold_seconds": hold.seconds}
        held = _accepted(await self._ask("/v1/reservations", wanted))
        self._tally.held += 1
        if hold.confirm_before is None:
            return
        expires_at = datetime.fromisoformat(held["expires_at"]).timestamp()
        await asyncio.sleep(expires_at - hold.confirm_before - self._usual - time.time())
        began = time.monotonic()
        answer = await self._ask(f"/v1/reservations/{hold.id}/confirm", turns=self._confirm_turns)
        self._usual += (time.monotonic() - began - self._usual) / 10
        if answer.status_code == HTTPStatus.CONFLICT:
            self._tally.late.add(hold.id)
        else:
            _accepted(answer)
            self._tally.confirmed.add(hold.id)

    async def _ship(self, shipment: Shipment) -> None:
        orders = list(shipment.orders)
        _accepted(await self._ask("/v1/events", orders if len(orders) > 1 else orders[0]))
        self._tally.shipped += len(orders)

    async def _ask(self, path: str, body: Any = None, turns: asyncio.Semaphore | None = None) -> httpx.Response:
        """Ask until there is an answer that is one."""
        pause = PAUSES[0]
        while True:
            try:
                async with turns or self._turns:
                    answer = await self._client.post(path, json=body)
                if answer.status_code < 500 and answer.status_code != HTTPStatus.TOO_MANY_REQUESTS:
                    return answer
            except httpx.TransportError:
                pass
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSES[1])


def _accepted(answer: httpx.Response) -> Any:
    if not answer.is_success:
        raise RefusedError(f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text}")
    return answer.json()


async def _until(at: float) -> None:
    if (wait := at - time.monotonic()) > 0:
        await asyncio.sleep(wait)
