"""A receiver of a run, as a program: an HTTP server on a socket whose ledger is a file, which survives its kills.

Every request is remembered, with what it was answered; effects go through the receipts of `app.receiver`. It is told
things on standard input, a JSON object a line: `slow`, `fail`, `throttle`, `stall` (seconds; stall: apply, but never
answer). When its input ends, so does it.
"""

import asyncio
import hashlib
import json
import os
import socket
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn

from app.receiver import Event, UnverifiedError, create_table, receive

Message = MutableMapping[str, Any]
# No key on effects: one that happened twice has to show.
TABLES = """
CREATE TABLE IF NOT EXISTS effects (event text NOT NULL, key text, type text, applied_at real NOT NULL);
CREATE TABLE IF NOT EXISTS requests (event text, attempt integer, delivery text, body text NOT NULL,
                                     answer text NOT NULL, came_at real NOT NULL);
"""


class Receiver:
    """An ASGI application that decides everything in one thread."""

    def __init__(self, path: Path, secret: str, slow: float) -> None:
        self._ledger = sqlite3.connect(path, isolation_level=None)
        self._ledger.execute("PRAGMA journal_mode = WAL")
        self._ledger.execute("PRAGMA synchronous = OFF")  # it is killed, its machine is not
        self._ledger.executescript(TABLES)
        create_table(self._ledger)
        self._secret = secret
        self._slow = slow
        self._until: dict[str, float] = {}

    def told(self, line: bytes) -> None:
        """Behave like this for so many seconds."""
        self._until |= {what: time.monotonic() + seconds for what, seconds in json.loads(line).items()}

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Serve one request."""
        came_at = time.time()  # its head is here; nothing of it is seen earlier
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        status, answer = self._decide(headers, body)
        attempt = int(headers.get("duehook-attempt", "0"))
        known = (headers.get("webhook-id"), attempt, headers.get("duehook-delivery-id"))
        digest = hashlib.sha256(body).hexdigest()
        self._ledger.execute("INSERT INTO requests VALUES (?,?,?,?,?,?)", (*known, digest, answer, came_at))
        if self._slow:
            await asyncio.sleep(self._slow)
        if self._is("stall"):
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        extra = [(b"retry-after", b"1")] if status == 429 else []
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *extra]})
        await send({"type": "http.response.body"})

    def _decide(self, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        if self._is("throttle"):
            return 429, "throttled"
        if self._is("fail"):
            return 500, "failed"
        try:
            receipt = receive(self._ledger, headers, body, self._secret, apply)
        except UnverifiedError as error:
            return 401, f"unverified {error}"
        return 200, "duplicate" if receipt.duplicate else "applied"

    def _is(self, what: str) -> bool:
        return time.monotonic() < self._until.get(what, 0.0)


def apply(connection: sqlite3.Connection, event: Event) -> None:
    """The business effect: it counts."""
    connection.execute("INSERT INTO effects VALUES (?,?,?,?)", (event.id, event.key, event.type, time.time()))


async def serve(path: Path, port: int, slow: float) -> None:
    receiver = Receiver(path, os.environ["CHAOS_SECRET"], slow)
    listening = socket.create_server(("127.0.0.1", port), backlog=1024)
    server = uvicorn.Server(
        uvicorn.Config(receiver, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    )
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
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
