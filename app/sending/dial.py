"""From a host to a connection: vetted addresses, TCP, TLS, in the time that is left.

Whatever fails here fails before the first byte of a request, so the receiver can't have it.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from app.domain.exchange import Blocked, Unreached
from app.domain.urls import Origin
from app.sending.connection import Connection
from app.sending.guard import Guard, Resolution

# What an address that doesn't answer may take from the time of those behind it; a lost SYN is sent again after 1 s.
TURN_SECONDS = 3.0


class Dialer:
    """Makes connections to the addresses that the guard lets pass, and to nothing else.

    Certificates are checked against the system's authorities or those of the file `ca_bundle`, and against the
    name of the URL, not the address. `on_lost` hears of each connection that closed.
    """

    def __init__(self, guard: Guard, ca_bundle: str | None, on_lost: Callable[[Connection], None]) -> None:
        self._guard, self._on_lost = guard, on_lost
        self._tls = ssl.create_default_context(cafile=ca_bundle)
        self._tls.set_alpn_protocols(["http/1.1"])

    async def connect(self, origin: Origin, deadline: float) -> Connection | Unreached | Blocked:
        """A new connection to `origin`, or why there is none by `deadline` (loop time, seconds)."""
        try:
            async with asyncio.timeout_at(deadline):
                resolution = await self._guard.resolve(origin.host)
        except TimeoutError:
            return Unreached("the name was not resolved before the deadline")
        if not isinstance(resolution, Resolution):
            return resolution
        return await self._try_in_order(origin, resolution, deadline)

    async def _try_in_order(self, origin: Origin, resolution: Resolution, deadline: float) -> Connection | Unreached:
        """Each address but the last has only a share of the time that is left."""
        now = asyncio.get_running_loop().time
        failed = Unreached("the deadline passed before connecting")
        for left in range(len(resolution.addresses), 0, -1):
            address, remaining = resolution.addresses[-left], deadline - now()
            if remaining <= 0:
                break
            try:
                async with asyncio.timeout(remaining if left == 1 else min(TURN_SECONDS, remaining / left)):
                    return await self._open(origin, address, resolution.expires_at)
            # ValueError: a name that TLS can't ask for; RuntimeError: what uvloop calls a transport that closed.
            except (OSError, ValueError, RuntimeError) as error:
                failed = Unreached(_explain(error), address)
        self._guard.forget(origin.host)
        return failed

    async def _open(self, origin: Origin, address: str, expires_at: float) -> Connection:
        loop = asyncio.get_running_loop()
        sock = _new_socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            await loop.sock_connect(sock, (address, origin.port))
            if sock.getsockname() == sock.getpeername():  # TCP's simultaneous open, on a port where nobody listens
                raise ConnectionRefusedError("connected to itself")
            secure = origin.scheme == "https"
            _, connection = await loop.create_connection(
                lambda: Connection(origin, address, sock, expires_at, self._on_lost),
                sock=sock,
                ssl=self._tls if secure else None,
                server_hostname=origin.host if secure else None,
            )
        except BaseException:  # a deadline or a cancel too: the socket has no other owner yet
            sock.close()
            raise
        return connection


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
            return f"TLS failed: {error.reason or error}"
        case TimeoutError(errno=None):
            return "no connection in time"
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
    return str(error).lower() or type(error).__name__
