"""How the hostile tests send."""

import asyncio
from collections.abc import Callable

import pytest

from app.domain.addresses import parse_networks
from app.domain.exchange import Exchange
from app.domain.urls import EndpointUrl, parse_url
from app.sending.transport import PinnedTransport, request_head
from tests.hostile.cases import DEADLINE, SMALL, Case, answered
from tests.hostile.server import HostileServer

LOOPBACK = parse_networks(["127.0.0.0/8", "::1/128"])
UNHURRIED = 2.0  # seconds by which whatever needs no deadline is over, however busy the machine


def endpoint(url: str) -> EndpointUrl:
    """The parsed URL, which must be acceptable."""
    parsed = parse_url(url)
    assert isinstance(parsed, EndpointUrl), parsed
    return parsed


async def post(transport: PinnedTransport, url: str, body: bytes = SMALL, seconds: float = DEADLINE) -> Exchange:
    """Sends a POST with `seconds` until its deadline."""
    parsed = endpoint(url)
    head = request_head(parsed, [("webhook-id", "evt_1")], len(body))
    return await transport.send(parsed.origin, head, body, asyncio.get_running_loop().time() + seconds)


async def post_timed(
    transport: PinnedTransport, url: str, body: bytes = SMALL, seconds: float = DEADLINE
) -> tuple[Exchange, float]:
    """Sends a POST; its result, and the seconds it took."""
    started = asyncio.get_running_loop().time()
    result = await post(transport, url, body, seconds)
    return result, asyncio.get_running_loop().time() - started


def keeps_deadline(seconds: float, deadline: float) -> bool:
    """Whether what the deadline had to end ended at the deadline."""
    return deadline * 0.9 <= seconds <= deadline * 1.1 + 0.15


async def hold_to(case: Case, transport: PinnedTransport, url: str, server: HostileServer) -> None:
    """Sends as the case says, checks what came of it and how long it took, then sends again to be served well."""
    result, seconds = await post_timed(transport, url, case.body, case.deadline)
    case.expected.check(result)
    assert keeps_deadline(seconds, case.deadline) if case.waits else seconds < UNHURRIED, seconds
    await eventually(lambda: case.kept is not False or not transport.idle_connections, "the connection is gone")
    answered(200, excerpt=b"ok").check(await post(transport, url))
    assert case.kept is None or server.connections == (1 if case.kept else 2)
    transport.close()


async def eventually(predicate: Callable[[], object], what: str, deadline: float = UNHURRIED) -> None:
    """Lets the loop turn until the predicate is true; fails, naming `what`, when it never is."""
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline
    while not predicate():
        if loop.time() > until:
            pytest.fail(f"waited in vain until {what}")
        await asyncio.sleep(0.001)
