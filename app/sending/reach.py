"""From an address to a TCP connection, in a bounded time, and what to say when there is none."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from app.domain.exchange import Phase

# What an address that doesn't answer may take from the time of those behind it; a lost SYN is sent again after 1 s.
TURN_SECONDS = 3.0

_NOT_TLS = "the receiver does not speak TLS on this port"
_TOO_OLD = "the receiver speaks no version of TLS from 1.2 on"
_TLS_WORDS = {
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "HTTP_REQUEST": _NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "UNSUPPORTED_PROTOCOL": _TOO_OLD,
    "TLSV1_ALERT_PROTOCOL_VERSION": _TOO_OLD,
    "UNEXPECTED_EOF_WHILE_READING": "the receiver ended the handshake",
}


class UnreachedError(Exception):
    """There is no connection: in which phase it failed, and why, in words for the endpoint's owner."""

    def __init__(self, phase: Phase, why: str) -> None:
        super().__init__(why)
        self.phase, self.why = phase, why


@asynccontextmanager
async def within(phase: Phase, until: float, late: str, blame: str = "") -> AsyncIterator[None]:
    """Turns whatever fails in it into `UnreachedError`: with `late` at the loop time `until`, else with the reason."""
    try:
        async with asyncio.timeout_at(until) as limit:
            yield
    # ValueError: a name that TLS can't ask for; RuntimeError: what uvloop calls a transport that closed.
    except (OSError, ValueError, RuntimeError) as error:
        raise UnreachedError(phase, blame + (late if limit.expired() else _explain(error))) from None


def turns(addresses: Sequence[str], deadline: float) -> Iterator[tuple[str, float]]:
    """Each address with the loop time until which it may be tried: all but the last have a share of what is left."""
    now = asyncio.get_running_loop().time
    for left in range(len(addresses), 0, -1):
        remaining = deadline - now()
        if remaining <= 0:
            return
        yield addresses[-left], deadline if left == 1 else now() + min(TURN_SECONDS, remaining / left)


async def connect_tcp(address: str, port: int) -> socket.socket:
    """A connected socket; OSError when there is none."""
    sock = _new_socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
        if sock.getsockname() == sock.getpeername():  # TCP's simultaneous open, on a port where nobody listens
            raise ConnectionRefusedError("connected to itself")
    except BaseException:  # a deadline or a cancel too: the socket has no other owner yet
        sock.close()
        raise
    return sock


def _new_socket(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


def _explain(error: Exception) -> str:
    """What kept us from connecting, for the endpoint's owner."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"certificate refused: {error.verify_message}"
        case ssl.SSLError():
            return _TLS_WORDS.get(error.reason or "", f"TLS failed: {error.reason or error}")
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
    return str(error).lower() or type(error).__name__
