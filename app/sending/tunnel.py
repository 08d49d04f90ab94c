"""Through an egress proxy to a vetted address: CONNECT, and then the connection is as if it were direct.

The proxy is asked for an address, never for a name: a name it would look up itself, and the answer might be another
one than what was vetted. Its own address is the operator's choice and is not vetted.
"""

import asyncio
import re
import socket
from ipaddress import ip_network

from app.domain.exchange import Phase
from app.domain.proxies import Proxy
from app.sending.guard import Guard, Lookup, Resolution
from app.sending.reach import UnreachedError, connect_tcp, turns, within

HEAD_LIMIT = 8192  # bytes of the proxy's answer
UNREADABLE = "the egress proxy's answer can't be read"
ANYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))

_HTTP_1 = b"HTTP/1."
_STATUS = re.compile(rb"HTTP/1\.[0-9] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


class Tunnel:
    """Opens connections through one proxy, for one event loop; `lookup` finds the proxy's own addresses."""

    def __init__(self, proxy: Proxy, lookup: Lookup) -> None:
        self._proxy = proxy
        self._guard = Guard(ANYWHERE, lookup=lookup)

    async def open(self, address: str, port: int, until: float) -> socket.socket:
        """A connected socket whose other end is `address`; `UnreachedError` when there is none by `until`.

        A proxy that says that it didn't get through, or goes on trying, is taken to speak of the receiver
        (`Phase.CONNECT`); everything else is trouble with the proxy (`Phase.PROXY`).
        """
        sock = await self._connect(until)
        try:
            async with within(Phase.CONNECT, until, "no connection through the egress proxy in time"):
                head = await _ask(sock, self._request(address, port))
            _judge(head)
        except BaseException:  # a cancel too: the socket has no other owner yet
            sock.close()
            raise
        return sock

    def close(self) -> None:
        """Starts no further lookup."""
        self._guard.close()

    async def end(self) -> None:
        """Closes, and gives up the lookups under way."""
        await self._guard.end()

    async def _connect(self, until: float) -> socket.socket:
        """A connection to the proxy itself."""
        blame, late = "the egress proxy can't be reached: ", "no connection in time"
        async with within(Phase.PROXY, until, late, blame):
            resolution = await self._guard.resolve(self._proxy.host)
        if not isinstance(resolution, Resolution):
            raise UnreachedError(Phase.PROXY, blame + resolution.why)
        failed = UnreachedError(Phase.PROXY, blame + late)
        for address, turn in turns(resolution.addresses, until):
            try:
                async with within(Phase.PROXY, turn, late, blame):
                    return await connect_tcp(address, self._proxy.port)
            except UnreachedError as error:
                failed = error
        self._guard.forget(self._proxy.host)
        raise failed

    def _request(self, address: str, port: int) -> bytes:
        place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        login = self._proxy.authorization
        lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}"]
        lines += [f"proxy-authorization: {login}"] if login else []
        return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _ask(sock: socket.socket, request: bytes) -> bytes:
    """The proxy's answer up to its empty line, and what came in the same piece."""
    loop, got = asyncio.get_running_loop(), b""
    try:
        await loop.sock_sendall(sock, request)
        while not _END_OF_HEAD.search(got):
            data = await loop.sock_recv(sock, HEAD_LIMIT)
            got += data
            if not data:
                raise ConnectionError
            if got[: len(_HTTP_1)] != _HTTP_1[: len(got)] or len(got) > HEAD_LIMIT:
                raise UnreachedError(Phase.PROXY, UNREADABLE)
    except OSError:
        raise UnreachedError(Phase.PROXY, "the egress proxy ended the connection before it answered") from None
    return got


def _judge(head: bytes) -> None:
    """Returns if the tunnel stands. Never quotes the proxy, which might repeat its credentials."""
    found, end = _STATUS.match(head), _END_OF_HEAD.search(head)
    if not found or not end:
        raise UnreachedError(Phase.PROXY, UNREADABLE)
    status = int(found[1])
    if status // 100 == 5:
        raise UnreachedError(Phase.CONNECT, f"the egress proxy did not get through: it answered {status}")
    if status == 407:
        raise UnreachedError(Phase.PROXY, "the egress proxy wants other credentials: it answered 407")
    if status // 100 != 2:
        raise UnreachedError(Phase.PROXY, f"the egress proxy refused: it answered {status}")
    if end.end() != len(head):  # whoever said it, no request is there yet that it could be the answer to
        raise UnreachedError(Phase.CONNECT, "bytes came before the request was sent")
