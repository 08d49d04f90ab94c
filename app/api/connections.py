"""What the framework leaves open between a request and its connection: HEAD, unread bodies, what is no HTTP."""

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.problems import NOT_HTTP, ProblemError, respond

DISCARDED_BYTES = 64 * 1024 * 1024


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
    """The server's own; but what it can't read is answered with a problem too."""

    def send_400_response(self, msg: str) -> None:
        response = respond(ProblemError(NOT_HTTP, "the request can't be read as HTTP"))
        headers = b"".join(b"%b: %b\r\n" % each for each in response.raw_headers)
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\n%bconnection: close\r\n\r\n%b" % (headers, bytes(response.body))
        )
        self.transport.close()
