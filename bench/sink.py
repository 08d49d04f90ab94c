"""A receiver that answers 200 to everything, as cheaply as asyncio can: it must not be what a benchmark measures.

What is sent to `/slow/…` is answered after ten seconds, what is sent to `/hanging/…` never.
`python -m bench.sink PORT [FILE]` listens on twenty loopback addresses. On SIGUSR1, and when it ends, it writes what
arrived since the last time to FILE, one line per request: `webhook-id`, `duehook-delivery-id` and when its first byte
came (seconds since 1970).
"""

import asyncio
import signal
import socket
import sys
import time
from pathlib import Path
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
SLOW_SECONDS = 10.0
HOSTS = tuple(f"127.0.0.{number}" for number in range(1, 21))
arrivals: list[tuple[bytes, bytes, float]] = []


class Sink(asyncio.Protocol):
    """Reads requests with a content-length, one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._buffer = b""
        self._began = 0.0

    def data_received(self, data: bytes) -> None:
        if not self._buffer:
            self._began = time.time()
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = int(_header(head, b"content-length") or _header(head, b"Content-Length") or 0)
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            arrivals.append((_header(head, b"webhook-id"), _header(head, b"duehook-delivery-id"), self._began))
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        if head.startswith(b"POST /hooks/"):
            self._transport.write(ANSWER)
        elif head.startswith(b"POST /slow/"):
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self._transport.write, ANSWER)


def _header(head: bytes, name: bytes) -> bytes:
    start = head.find(b"\r\n" + name + b": ")
    if start < 0:
        return b""
    start += len(name) + 4
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)]


def write(file: Path | None) -> None:
    """Put what arrived since the last time into `file`; a reader sees all of it or none."""
    if file is not None:
        new = file.with_name(f"{file.name}.new")
        new.write_bytes(b"".join(b"%s %s %.6f\n" % arrival for arrival in arrivals))
        new.rename(file)
    arrivals.clear()


async def serve(port: int, file: Path | None) -> None:
    """Until SIGTERM or SIGINT; prints the port first."""
    loop = asyncio.get_running_loop()
    for listener in _listeners(port):
        await loop.create_server(Sink, sock=listener, backlog=1000)
    print(listener.getsockname()[1], flush=True)
    stopped = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    loop.add_signal_handler(signal.SIGUSR1, write, file)
    await stopped.wait()


def _listeners(port: int) -> list[socket.socket]:
    """One port on every address; with port 0 the first one's choice."""
    listeners: list[socket.socket] = []
    for host in HOSTS:
        listeners.append(socket.create_server((host, port)))
        port = listeners[0].getsockname()[1]
    return listeners


def main(port: int = 0, file: Path | None = None) -> None:
    uvloop.run(serve(port, file))
    write(file)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
