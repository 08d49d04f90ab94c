"""One connection to a receiver: writes a prepared request, waits for what decides, and knows whether it may
be used again.

An `asyncio.Protocol`, without streams or tasks: at thousands of sends per second those cost more than the
send itself.
"""

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable
from typing import cast

from app.domain.exchange import Phase, Unknown
from app.domain.urls import Origin
from app.sending.response import Reply, ResponseReader

CHUNK = 64 * 1024  # of a large body given to the loop at once: what a receiver that doesn't read costs in memory
# How long a body may take once the head has decided. It is read for the excerpt and to keep the connection; a
# new connection costs milliseconds, while a dripping body would hold a slot that others wait for.
BODY_SECONDS = 1.0


class Connection(asyncio.Protocol):
    """A connection to one vetted address, for one exchange at a time.

    `expires_at` is the loop time after which the address must be vetted anew; `on_lost` hears that it closed.
    """

    def __init__(
        self,
        origin: Origin,
        address: str,
        sock: socket.socket,
        expires_at: float,
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self.origin, self.address = origin, address
        self._sock, self._expires_at, self._on_lost = sock, expires_at, on_lost
        self._usable_until = self._wake_by = expires_at
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reader = ResponseReader()
        self._waiter: asyncio.Future[Reply | Unknown] | None = None
        self._unsent: memoryview | None = None
        self._paused = self._in_body = False

    def usable(self) -> bool:
        """Whether a request may be written: open, young enough, and nothing there to read.

        Asks the kernel, for half a microsecond: the loop hasn't seen a close or stray bytes that came since
        its last turn, and a request written into a closed connection is "unknown".
        """
        return (
            not self._transport.is_closing() and self._loop.time() < self._usable_until and not self._readable.poll(0)
        )

    async def exchange(self, head: bytes, body: bytes, deadline: float, keep: int) -> Reply | Unknown | None:
        """Sends one request and returns what decided; None if the connection closed before its first byte.

        `deadline` is in loop time; of the response's body `keep` bytes are kept. Cancelling closes it.
        """
        waiter: asyncio.Future[Reply | Unknown] = self._loop.create_future()
        self._waiter = waiter
        self._reader.start(keep)
        self._in_body = False
        self._wake_at(deadline)
        if not self._write(head, body):
            self.abort()
            return None
        try:
            return await waiter
        except asyncio.CancelledError:
            self.abort()
            raise

    def is_closed(self) -> bool:
        """Whether it is closed or about to be."""
        return self._transport.is_closing()

    def abort(self) -> None:
        """Closes now; what is unsent is dropped."""
        self._unsent = None
        if self._timer:
            self._timer.cancel()
        self._transport.abort()

    def _write(self, head: bytes, body: bytes) -> bool:
        self._transport.write(head + body[:CHUNK])
        if self._transport.is_closing():  # the first `send` of this request failed: the kernel took nothing
            return False
        if len(body) > CHUNK:
            self._unsent = memoryview(body)[CHUNK:]
            self._write_more()
        return True

    def _write_more(self) -> None:
        while self._unsent and not self._paused and not self._transport.is_closing():
            chunk, self._unsent = self._unsent[:CHUNK], self._unsent[CHUNK:]
            self._transport.write(chunk)

    def _busy(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _finish(self) -> None:
        """Ends the exchange; the connection lives on if the receiver keeps it and took the whole request."""
        keep_seconds = self._reader.keep_seconds
        if keep_seconds <= 0 or self._unsent or self._transport.get_write_buffer_size():
            self._end("")
            return
        self._usable_until = self._wake_by = min(self._expires_at, self._loop.time() + keep_seconds)
        self._settle("")

    def _end(self, trouble: str) -> None:
        """Ends the exchange, if one is under way, with what has come so far, and the connection with it."""
        self._settle(trouble)
        self.abort()

    def _settle(self, trouble: str) -> None:
        if self._waiter is None or self._waiter.done():
            return
        reader = self._reader
        if reader.status is None:
            self._waiter.set_result(Unknown(self._phase(), trouble, self.address))
        else:
            self._waiter.set_result(Reply(reader.status, reader.headers, reader.body, self.address))

    def _phase(self) -> Phase:
        """Whether some of the request is still here, as far as the loop can tell."""
        writing = self._unsent or self._paused or self._transport.get_write_buffer_size()
        return Phase.REQUEST if writing else Phase.ANSWER

    def _wake_at(self, when: float) -> None:
        """Sets the time at which what goes on has gone on for too long.

        The timer moves only when it would be late; an early one looks again (a timer per request would be a
        tenth of the request's cost).
        """
        self._wake_by = when
        if self._timer and self._timer.when() > when:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._loop.time() < self._wake_by:
            self._wake_at(self._wake_by)
        else:
            self._end("no complete response head before the deadline")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        if not self._busy():
            self.abort()  # bytes that nobody asked for must never be read as the next answer
            return
        trouble = self._reader.feed(data)
        if trouble:
            self._end(trouble)
        elif self._reader.complete:
            self._finish()
        elif self._reader.status is not None and not self._in_body:
            self._in_body = True
            self._wake_at(min(self._wake_by, self._loop.time() + BODY_SECONDS))

    def eof_received(self) -> None:
        self._end("connection closed before a complete response head")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._busy() and exc is not None and self.origin.scheme == "http":
            self._read_what_is_left()
        self._end("connection lost before a complete response head")
        self._on_lost(self)

    def _read_what_is_left(self) -> None:
        """Reads what the receiver said before it reset the connection: a failed write ends the transport even
        when an answer lies in the socket unread, and an early answer counts."""
        with contextlib.suppress(OSError):  # nothing there, or already closed by the loop
            while self._busy() and (data := self._sock.recv(CHUNK)):
                self.data_received(data)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write_more()
