"""A network between two processes that a test can break: a TCP proxy on 127.0.0.1, whose mode is set while it runs."""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Any, Self

CHUNK = 65536


class Mode(StrEnum):
    """What becomes of connections and of their bytes."""

    PASS = auto()
    CUT = auto()  # those that are open get a reset; new ones are reset at once
    REFUSE = auto()  # nobody listens; those that are open go on
    SLOW = auto()  # each chunk is delayed
    BLACK_HOLE = auto()  # everybody is accepted, and nothing is forwarded in either direction
    DEAF = auto()  # half-open: what the client says arrives, what the server says does not
    CUT_BEFORE_ANSWER = auto()  # the client's bytes arrive; at the server's first byte both ends are reset


@dataclass(eq=False)
class _Link:
    """One connection: the client's end and the server's."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def reset(self) -> None:
        for writer in (self.client, self.server):
            end = writer.get_extra_info("socket")
            if end is not None and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`target`, or does not."""

    def __init__(self, network: "Network", target: int) -> None:
        self._network = network
        self._target = target
        self._mode = Mode.PASS
        self._delay = 0.0
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self.hits = 0  # connections reset, and bytes or connections delayed or held back
        self.port = 0
        network.run(self._listen())

    def set(self, mode: Mode, *, delay: float = 0.0) -> None:
        """From now on, for the connections that are open too."""
        self._network.run(self._set(mode, delay))

    def cut(self) -> None:
        """Reset every connection that is open; new ones are as the mode says."""
        self._network.run(self._cut())

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _set(self, mode: Mode, delay: float) -> None:
        self._mode, self._delay = mode, delay
        self._changed.set()
        self._changed = asyncio.Event()
        if mode is Mode.CUT:
            await self._cut()
        if mode is Mode.REFUSE and self._server is not None:
            self._server.close()
            self._server = None
        elif mode is not Mode.REFUSE and self._server is None:
            await self._listen()

    async def _cut(self) -> None:
        for link in list(self._links):
            self._reset(link)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode is Mode.CUT:
            self._reset(_Link(writer, writer))
            return
        await self._passable(None)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _Link(writer, writer).reset()
            return
        link = _Link(writer, back)
        self._links.add(link)
        try:
            await asyncio.gather(self._forward(reader, back, None), self._forward(there, writer, link))
        except OSError:
            link.reset()
        finally:
            self._links.discard(link)
            for end in (writer, back):
                end.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: _Link | None) -> None:
        """One direction, to its end; `answers` is the link when it is the server's."""
        while chunk := await reader.read(CHUNK):
            if answers and self._mode is Mode.CUT_BEFORE_ANSWER:
                self._reset(answers)
                return
            if self._mode is Mode.SLOW:
                self.hits += 1
                await asyncio.sleep(self._delay)
            await self._passable(answers)
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def _passable(self, answers: _Link | None) -> None:
        while self._mode is Mode.BLACK_HOLE or (answers and self._mode is Mode.DEAF):
            self.hits += 1
            await self._changed.wait()

    def _reset(self, link: _Link) -> None:
        self.hits += 1
        link.reset()


class Network:
    """The loop of all proxies, in a thread of its own."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # what was cut complains
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def proxy(self, target: int) -> Proxy:
        return Proxy(self, target)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """In the loop, to its end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
