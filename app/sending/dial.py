"""From a host to a connection: vetted addresses, TCP or the egress proxy, TLS, in the time that is left.

Whatever fails here fails before the first byte of a request, so the receiver can't have it.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from app.domain.exchange import Blocked, Phase, Unreached
from app.domain.urls import Origin
from app.sending.connection import Connection
from app.sending.guard import Guard, Resolution
from app.sending.reach import UnreachedError, connect_tcp, turns, within
from app.sending.tunnel import Tunnel


class Dialer:
    """Makes connections to the addresses that the guard lets pass, and to nothing else.

    Certificates are checked by `tls`, and against the name of the URL, not the address. With a `tunnel` all
    connections are made through it. `on_lost` hears of each connection that closed.
    """

    def __init__(
        self, guard: Guard, tls: ssl.SSLContext, tunnel: Tunnel | None, on_lost: Callable[[Connection], None]
    ) -> None:
        self._guard, self._tls, self._tunnel, self._on_lost = guard, tls, tunnel, on_lost

    async def connect(self, origin: Origin, deadline: float) -> Connection | Unreached | Blocked:
        """A new connection to `origin`, or why there is none by `deadline` (loop time, seconds)."""
        try:
            async with asyncio.timeout_at(deadline):
                resolution = await self._guard.resolve(origin.host)
        except TimeoutError:
            return Unreached(Phase.RESOLVE, "the name was not resolved before the deadline")
        if not isinstance(resolution, Resolution):
            return resolution
        return await self._try_in_order(origin, resolution, deadline)

    async def _try_in_order(self, origin: Origin, resolution: Resolution, deadline: float) -> Connection | Unreached:
        failed = Unreached(Phase.CONNECT, "the deadline passed before connecting")
        for address, until in turns(resolution.addresses, deadline):
            try:
                return await self._open(origin, address, resolution.expires_at, until)
            except UnreachedError as error:
                failed = Unreached(error.phase, error.why, address)
        self._guard.forget(origin.host)
        return failed

    async def _open(self, origin: Origin, address: str, expires_at: float, until: float) -> Connection:
        sock = await self._reach(address, origin.port, until)
        phase = Phase.TLS if origin.scheme == "https" else Phase.CONNECT
        try:
            async with within(phase, until, "the handshake did not end in time"):
                return await self._connection(origin, address, sock, expires_at, until)
        except BaseException:  # a cancel too: the socket has no other owner yet
            sock.close()
            raise

    async def _reach(self, address: str, port: int, until: float) -> socket.socket:
        if self._tunnel:
            return await self._tunnel.open(address, port, until)
        async with within(Phase.CONNECT, until, "no connection in time"):
            return await connect_tcp(address, port)

    async def _connection(
        self, origin: Origin, address: str, sock: socket.socket, expires_at: float, until: float
    ) -> Connection:
        loop, secure = asyncio.get_running_loop(), origin.scheme == "https"
        _, connection = await loop.create_connection(
            lambda: Connection(origin, address, sock, expires_at, self._on_lost),
            sock=sock,
            ssl=self._tls if secure else None,
            server_hostname=origin.host if secure else None,
            ssl_handshake_timeout=until - loop.time() + 1 if secure else None,  # ours comes first
        )
        return connection
