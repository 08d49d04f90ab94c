"""Sends one request to one receiver, and says what came of it.

`PinnedTransport.send` is the engine's hot path: prepared bytes in, an `Exchange` out, one deadline round all of
it. As an httpx transport (`handle_async_request`) the same sender serves everything that likes httpx.
Deliberately absent: the environment's proxies, netrc, redirects, cookies, content decoding, chunked requests, `Expect`.
"""

import asyncio
from collections.abc import Iterable

import httpx

from app.domain.addresses import Networks
from app.domain.exchange import Answered, Blocked, Exchange, Phase, Unknown, Unreached
from app.domain.proxies import Proxy
from app.domain.urls import EndpointUrl, Origin, Unacceptable, parse_url
from app.sending.connection import Connection
from app.sending.dial import Dialer
from app.sending.guard import PINNED_SECONDS, Guard, Lookup, system_lookup
from app.sending.idle import IdleConnections
from app.sending.response import RESPONSE_LIMIT, Reply
from app.sending.tls import client_context
from app.sending.tunnel import Tunnel

EXCERPT_BYTES = 1024
LOCATION_CHARACTERS = 2048
DEFAULT_SECONDS = 15.0

_SET_BY_US = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect", b"connection", b"keep-alive"))
_UNTRUE_ONCE_READ = frozenset((b"content-length", b"content-encoding", b"transfer-encoding"))


def begin_head(url: EndpointUrl, headers: Iterable[tuple[str, str]], method: str = "POST") -> bytes:
    """The request line and the headers that all requests to a URL share, for `end_head`; ValueError as there."""
    return _lines([f"{method} {url.target.decode('ascii')} HTTP/1.1", f"host: {url.authority}", *_fields(headers)])


def end_head(begun: bytes, headers: Iterable[tuple[str, str]], content_length: int) -> bytes:
    """With a request's own headers, ready for `send`; ValueError for what would break the framing."""
    return begun + _lines([*_fields(headers), f"content-length: {content_length}", ""])


def request_head(
    url: EndpointUrl, headers: Iterable[tuple[str, str]], content_length: int, method: str = "POST"
) -> bytes:
    """Both in one."""
    return end_head(begin_head(url, (), method), headers, content_length)


def _fields(headers: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {value}" for name, value in headers]


def _lines(lines: list[str]) -> bytes:
    text = "\r\n".join([*lines, ""]).encode("latin-1")
    if text.count(b"\n") != len(lines) or text.count(b"\r") != len(lines) or b"\0" in text:
        raise ValueError("a header holds a line end or NUL")
    return text


class PinnedTransport(httpx.AsyncBaseTransport):
    """Keeps connections to vetted addresses for one event loop; `close` (or `aclose`) when done.

    `allowed_networks` may be sent to although not public; `ca_bundle` is a file of certificates to trust beside
    the system's; `proxy` is what all connections go through; `lookup` replaces the system's resolver.
    `default_seconds` is the deadline of an httpx request that brings no read timeout.
    """

    def __init__(
        self,
        allowed_networks: Networks = (),
        *,
        ca_bundle: str | None = None,
        proxy: Proxy | None = None,
        lookup: Lookup = system_lookup,
        pinned_seconds: float = PINNED_SECONDS,
        default_seconds: float = DEFAULT_SECONDS,
    ) -> None:
        self._guard = Guard(allowed_networks, lookup=lookup, pinned_seconds=pinned_seconds)
        self._idle = IdleConnections()
        self._tunnel = Tunnel(proxy, lookup) if proxy else None
        self._dialer = Dialer(self._guard, client_context(ca_bundle), self._tunnel, on_lost=self._idle.forget)
        self._default_seconds = default_seconds

    async def send(self, origin: Origin, head: bytes, body: bytes, deadline: float) -> Exchange:
        """Sends a request and says what came of it; `deadline` (loop time, seconds) covers DNS to the end.

        Raises nothing but CancelledError, which closes the connection.
        """
        result = await self._exchange(origin, head, body, deadline, EXCERPT_BYTES)
        if not isinstance(result, Reply):
            return result
        location, retry_after = result.header(b"location"), result.header(b"retry-after")
        return Answered(
            result.status,
            result.address,
            result.body,
            location[0][:LOCATION_CHARACTERS] if location else None,
            ", ".join(retry_after) if retry_after else None,  # cut, it might say something else
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Serves httpx: the read timeout is the deadline of the whole, the body is capped, nothing is decoded.

        ConnectError when the receiver can't have the request (or may not), ReadError when it may have it.
        """
        url = parse_url(str(request.url.copy_with(fragment=None)))
        if isinstance(url, Unacceptable) or request.method in ("HEAD", "CONNECT"):
            raise httpx.UnsupportedProtocol(
                url.sentence if isinstance(url, Unacceptable) else f"{request.method} is not sent from here"
            )
        body = await request.aread()
        own = [
            (k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw if k.lower() not in _SET_BY_US
        ]
        seconds = request.extensions.get("timeout", {}).get("read") or self._default_seconds
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            head = request_head(url, own, len(body), request.method)
        except ValueError as error:
            raise httpx.LocalProtocolError(str(error)) from None
        return _as_response(await self._exchange(url.origin, head, body, deadline, RESPONSE_LIMIT))

    @property
    def idle_connections(self) -> int:
        """How many connections wait for their next request."""
        return len(self._idle)

    def close(self) -> None:
        """Closes idle connections and starts no further lookup; requests in the air go on."""
        self._idle.close()
        self._guard.close()
        if self._tunnel:
            self._tunnel.close()

    async def aclose(self) -> None:
        """Closes, and leaves nothing behind in the loop: for who has nothing in the air any more."""
        self.close()
        await self._guard.end()
        if self._tunnel:
            await self._tunnel.end()

    async def _exchange(
        self, origin: Origin, head: bytes, body: bytes, deadline: float, keep: int
    ) -> Reply | Unreached | Unknown | Blocked:
        """Kept connections that turn out closed before a byte was written are replaced, a new one is not."""
        now = asyncio.get_running_loop().time
        while now() < deadline:
            reused = self._idle.take(origin)
            connection = reused or await self._dialer.connect(origin, deadline)
            if not isinstance(connection, Connection):
                return connection
            result = await connection.exchange(head, body, deadline, keep)
            if not connection.is_closed():
                self._idle.put(connection)
            if result is not None:
                return result
            if reused is None:
                return Unreached(Phase.CONNECT, "closed before the request was sent", connection.address)
        return Unreached(Phase.CONNECT, "the deadline passed before the request was sent")


def _as_response(result: Reply | Unreached | Unknown | Blocked) -> httpx.Response:
    match result:
        case Reply(status, headers, body):
            kept = [(name, value) for name, value in headers if name.lower() not in _UNTRUE_ONCE_READ]
            return httpx.Response(status, headers=kept, content=body)
        case Unknown():
            raise httpx.ReadError(result.error)
        case Unreached() | Blocked():
            raise httpx.ConnectError(result.error)
