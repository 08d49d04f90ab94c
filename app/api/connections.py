"""What the framework leaves open between a request and its connection: HEAD, unread bodies, what is no HTTP."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.problems import NOT_HTTP, ProblemError, respond

DISCARDED_BYTES = 64 * 1024 * 1024
MOST_HEAD_BYTES = 64 * 1024  # and what one read brings; the server's parser has no bound of its own
HEAD_SECONDS = 30.0
BODY_SECONDS = 120.0  # 16 MB, the largest there may be, at 1 Mbit/s; what we don't read meanwhile is not the client's


class HeadLikeGet:
    """Answers HEAD as GET; the server leaves the body out (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        await self._app({**scope, "method": "GET"} if is_head else scope, receive, send)


class Unread:
    """Lets the server discard the rest of a body that is bounded, so that the client gets to read its answer.

    A rest without an end closes the connection: a stranger must not keep it busy for nothing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ended = scope["type"] != "http" or _is_bounded(scope)

        async def receiving() -> Message:
            nonlocal ended
            message = await receive()
            ended = ended or not message.get("more_body", False)
            return message

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start" and not ended:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receiving, sending)


def _is_bounded(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return False
    return int(headers.get(b"content-length", b"0")) <= DISCARDED_BYTES


class Protocol(HttpToolsProtocol):
    """The server's own, which waits for ever, keeps all that it is sent of heads and trailers, and asks for no Host.

    A stranger could so hold connections and memory without having said who he is. What can't be read, or isn't right,
    is answered with a problem too.
    """

    _in_head = _in_body = _got_body = False
    _head_bytes = 0  # of the head, or of reads without a byte of the body since: trailers, and what is around chunks
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._got_body = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head or self._is_idle():  # or empty lines would hold it: the server has just stopped its own clock
            self._wait_for_head()
        if self._in_head or (self._in_body and not self._got_body):
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(f"its {'trailer' if self._in_body else 'head'} has more than {MOST_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        hosts = [value for name, value in self.headers if name == b"host"]
        # RFC 9112, 3.2: of two, a proxy may have gone by the one and we by the other. Raised, it ends the parser.
        if len(hosts) > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            raise ValueError("not one Host")
        self._in_head, self._in_body, self._head_bytes = False, True, 0
        self._end_waiting()
        super().on_headers_complete()
        self._patience = self.loop.call_later(BODY_SECONDS, self._lose_patience_with_body)

    def on_body(self, body: bytes) -> None:
        self._got_body, self._head_bytes = True, 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._end_waiting()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse("")

    def _refuse(self, why: str) -> None:
        """In words where they can be heard: not in the middle of an answer, nor after that to this very request."""
        self._end_waiting()
        if self._in_body and (self.cycle.response_started or self.pipeline):
            self.transport.close()
            return
        sentence = "the request can't be read as HTTP" + (f": {why}" if why else "")
        response = respond(ProblemError(NOT_HTTP, sentence))
        headers = b"".join(b"%b: %b\r\n" % each for each in response.raw_headers)
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\n%bconnection: close\r\n\r\n%b" % (headers, bytes(response.body))
        )
        self.transport.close()

    def _wait_for_head(self) -> None:
        """A moment more does not begin with every byte."""
        if self._patience is None:
            self._patience = self.loop.call_later(HEAD_SECONDS, self._lose_patience)

    def _lose_patience(self) -> None:
        """While an answer is on its way the next head may take as long as it likes."""
        self._patience = None
        if self._is_idle():
            self.transport.close()

    def _lose_patience_with_body(self) -> None:
        self._patience = None
        if self.flow.read_paused:  # it is we who don't read
            self._patience = self.loop.call_later(BODY_SECONDS, self._lose_patience_with_body)
        else:
            self._refuse(f"its body has not ended within {BODY_SECONDS:g} s")

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _end_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
