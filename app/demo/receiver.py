"""A receiver of the demo, run as a program: an HTTP server on a socket, with a ledger in a file.

It is told things on standard input, a JSON object a line: `{"secret": …}`, `{"throttle": seconds, "retry_after": n}`
(answer 429 for so long), `{"stall": n}` (apply the next n events and never answer). When its input ends, so does it:
it never outlives whoever started it.
"""

import asyncio
import json
import socket
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn

from app.demo.ledger import apply, log_request, open_ledger
from app.receiver import UnverifiedError, receive

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Receiver:
    """An ASGI application. Everything it decides it decides in one thread, a few hundred times a second."""

    def __init__(self, ledger: sqlite3.Connection) -> None:
        self._ledger = ledger
        self._secret: str | list[str] = ""
        self._throttled_until = 0.0
        self._retry_after = 1
        self._stalls = 0

    def told(self, line: bytes) -> None:
        """Do as a line of the input says."""
        told = json.loads(line)
        self._secret = told.get("secret", self._secret)
        self._retry_after = told.get("retry_after", self._retry_after)
        self._stalls += told.get("stall", 0)
        if "throttle" in told:
            self._throttled_until = time.monotonic() + told["throttle"]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = await _body(receive)
        status, answer = self._answer(scope, headers, body)
        if not await self._goes_on(answer, receive):
            return
        extra = [(b"retry-after", str(self._retry_after).encode())] if status == 429 else []
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *extra]})
        await send({"type": "http.response.body"})

    async def _goes_on(self, answer: str, receive: Receive) -> bool:
        """Whether it is to be told to the sender after all; it may be kept back before."""
        if answer == "stalled":
            await _hung_up(receive)
        return answer != "stalled"

    def _answer(self, scope: Message, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        status, answer = self._decide(scope, headers, body)
        attempt = headers.get("duehook-attempt", "")
        log_request(self._ledger, headers.get("webhook-id"), int(attempt) if attempt.isdecimal() else None, answer)
        return status, answer

    def _decide(self, scope: Message, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        if time.monotonic() < self._throttled_until:
            return 429, "throttled"
        try:
            receipt = receive(self._ledger, headers, body, self._secret, apply)
        except UnverifiedError:
            return 401, "unverified"
        except sqlite3.Error as error:  # neither effect nor receipt: it comes again
            print(error, file=sys.stderr)
            return 500, "failed"
        return 200, "duplicate" if receipt.duplicate else self._said()

    def _said(self) -> str:
        """Of an effect that has just happened."""
        if self._stalls > 0:
            self._stalls -= 1
            return "stalled"
        return "applied"


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def serve(path: Path, kind: type[Receiver] = Receiver) -> None:
    """Say the port on standard output, then serve until the input ends."""
    receiver = kind(open_ledger(path))
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        receiver, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    listens = asyncio.create_task(_listen(receiver, server))
    await server.serve(sockets=[listening])
    listens.cancel()


async def _listen(receiver: Receiver, server: uvicorn.Server) -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        receiver.told(line)
    server.should_exit = True


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
