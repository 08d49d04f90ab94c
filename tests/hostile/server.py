"""A receiver that misbehaves by script: real sockets, one thread per connection, one step after another.

    with HostileServer([read_request(), send(b"HTTP/1.1 200 OK\\r\\n"), reset()]) as server: ...

The first connection follows the first script, the second the second, and all later ones the last, which is a
well-behaved receiver unless told otherwise. A script that ends closes its connection; steps that wait end with
the server, or when the sender goes away.
"""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeAlias

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """One connection as its script sees it."""

    def __init__(self, sock: socket.socket, server: "HostileServer") -> None:
        self.sock, self.server = sock, server
        self.unread = bytearray()

    def receive(self, at_most: int = 65536) -> None:
        """Adds what comes next to `unread`; ConnectionError when the sender went away."""
        data = self.sock.recv(at_most)
        if not data:
            raise ConnectionError("the sender went away")
        self.unread += data

    def read_request(self) -> bytes:
        """One whole request, as long as its content-length says."""
        while (end_of_head := self.unread.find(b"\r\n\r\n")) < 0:
            self.receive()
        head = bytes(self.unread[:end_of_head]).lower()
        end = end_of_head + 4 + int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(self.unread) < end:
            self.receive()
        request = bytes(self.unread[:end])
        del self.unread[:end]
        return request


Step: TypeAlias = Callable[[Peer], object]
Script: TypeAlias = Sequence[Step]


def read_request() -> Step:
    """Reads one request and notes it in `server.requests`."""
    return lambda peer: peer.server.requests.append(peer.read_request())


def read_a_little() -> Step:
    """Reads the beginning of a request and leaves the rest."""
    return lambda peer: peer.receive(512)


def read_what_is_there() -> Step:
    """Reads until nothing more comes for a moment: the sender's buffers are empty, and it doesn't write."""

    def step(peer: Peer) -> None:
        peer.sock.settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            while True:
                peer.receive()
        peer.sock.settimeout(None)

    return step


def send(data: bytes) -> Step:
    """Sends the bytes at once."""
    return lambda peer: peer.sock.sendall(data)


def drip(data: bytes, every: float = 0.02) -> Step:
    """Sends byte after byte, one each `every` seconds."""

    def step(peer: Peer) -> None:
        for byte in data:
            peer.sock.sendall(bytes([byte]))
            peer.server.stopping.wait(every)

    return step


def forever(data: bytes, every: float = 0.0) -> Step:
    """Sends the same bytes again and again until the sender goes away."""

    def step(peer: Peer) -> None:
        while not peer.server.stopping.wait(every):
            peer.sock.sendall(data)

    return step


def rest(seconds: float) -> Step:
    """Does nothing for a while."""
    return lambda peer: peer.server.stopping.wait(seconds)


def hang() -> Step:
    """Does nothing until the server ends."""
    return lambda peer: peer.server.stopping.wait()


def pause(released: threading.Event) -> Step:
    """Waits for the test; the server's end counts as its release."""

    def step(peer: Peer) -> None:
        peer.server.pauses.append(released)
        released.wait()

    return step


def signal(reached: threading.Event) -> Step:
    """Tells the test that the script got here."""
    return lambda _: reached.set()


def wait_until_left(left: threading.Event) -> Step:
    """Reads until the sender closes or resets, and tells the test."""

    def step(peer: Peer) -> None:
        try:
            while True:
                peer.receive()
        finally:
            left.set()

    return step


def half_close() -> Step:
    """Says that nothing more will come, and goes on reading."""
    return lambda peer: peer.sock.shutdown(socket.SHUT_WR)


def close() -> Step:
    """Closes, for a script that has more to do."""
    return lambda peer: peer.sock.close()


def reset() -> Step:
    """Closes with RST instead of FIN."""

    def step(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sock.close()

    return step


def start_tls(context: ssl.SSLContext) -> Step:
    """Speaks TLS from here on."""

    def step(peer: Peer) -> None:
        peer.sock = context.wrap_socket(peer.sock, server_side=True)

    return step


def cut_tls() -> Step:
    """Goes back to plain TCP without a close_notify, which is what an attacker who cuts a connection can do."""

    def step(peer: Peer) -> None:
        peer.sock = socket.socket(fileno=peer.sock.detach())

    return step


def serve_well() -> Step:
    """Reads requests and answers each with 200, as long as they come."""

    def step(peer: Peer) -> None:
        while True:
            read_request()(peer)
            send(OK)(peer)

    return step


def echo_ids() -> Step:
    """Answers each request with its own webhook-id."""

    def step(peer: Peer) -> None:
        while True:
            ident = peer.read_request().split(b"webhook-id: ")[1].split(b"\r\n")[0]
            peer.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(ident), ident))

    return step


class HostileServer:
    """Listens on a port of its own; `connections` counts what it accepted, `requests` holds what was read.

    It accepts at once, or when `accept_after` is set.
    """

    def __init__(
        self, *scripts: Script, host: str = "127.0.0.1", port: int = 0, accept_after: threading.Event | None = None
    ) -> None:
        self.pauses: list[threading.Event] = [accept_after] if accept_after else []
        self._accept_after = accept_after
        self.scripts = scripts or ([serve_well()],)
        self.requests: list[bytes] = []
        self.stopping = threading.Event()
        self.connections = 0
        self._peers: list[Peer] = []
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        for released in self.pauses:
            released.set()
        for sock in [self._listener, *(peer.sock for peer in self._peers)]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive(), "a script doesn't end"
        self._listener.close()

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        if self._accept_after:
            self._accept_after.wait()
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                sock, _ = self._listener.accept()
                peer = Peer(sock, self)
                script = self.scripts[min(self.connections, len(self.scripts) - 1)]
                self.connections += 1
                self._peers.append(peer)
                self._start(self._run, peer, script)

    def _run(self, peer: Peer, script: Script) -> None:
        with contextlib.suppress(OSError):  # the sender went away, or TLS failed: both are what is tested
            for step in script:
                step(peer)
        with contextlib.suppress(OSError):
            peer.sock.close()
