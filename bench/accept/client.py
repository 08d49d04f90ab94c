"""A client that costs next to nothing: prepared requests over kept connections, and how long each answer took."""

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

ACCEPTED = b"HTTP/1.1 202"
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """The API's address, and a key for it."""

    port: int
    key: str

    def post(self, body: str) -> bytes:
        """A request that posts events, whole."""
        return (
            f"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}"
        ).encode()


def as_fast_as_it_answers(target: Target, body: str, *, connections: int, seconds: float) -> list[float]:
    """The next request when the last was answered, over so many connections; seconds that each answer took."""
    until = time.monotonic() + seconds

    def work(stream: socket.socket) -> list[float]:
        request = target.post(body)
        took: list[float] = []
        while (began := time.monotonic()) < until:
            _answered(stream, request)
            took.append(time.monotonic() - began)
        return took

    return _together([(target, work)] * connections)


def at_their_times(targets: Sequence[Target], body: str, *, rate: float, seconds: float) -> list[float]:
    """So many requests a second, from each target in turn, whatever the answers; seconds from its time to its answer.

    Time in which a target's last answer is still waited for counts: it would be somebody's wait as well.
    """
    begin = time.monotonic() + 0.1

    def worker(place: int) -> Callable[[socket.socket], list[float]]:
        def work(stream: socket.socket) -> list[float]:
            request = targets[place].post(body)
            took: list[float] = []
            for number in count(place, len(targets)):
                at = begin + number / rate
                if at > begin + seconds:
                    return took
                time.sleep(max(0.0, at - time.monotonic()))
                _answered(stream, request)
                took.append(time.monotonic() - at)
            raise AssertionError("unreachable")

        return work

    return _together([(target, worker(place)) for place, target in enumerate(targets)])


def _together(works: Sequence[tuple[Target, Callable[[socket.socket], list[float]]]]) -> list[float]:
    def connected(each: tuple[Target, Callable[[socket.socket], list[float]]]) -> list[float]:
        target, work = each
        with socket.create_connection(("127.0.0.1", target.port), timeout=PATIENCE) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return work(stream)

    with ThreadPoolExecutor(len(works)) as pool:
        return [took for each in pool.map(connected, works) for took in each]


def _answered(stream: socket.socket, request: bytes) -> None:
    stream.sendall(request)
    head, _, body = _read_head(stream).partition(b"\r\n\r\n")
    if not head.startswith(ACCEPTED):
        raise RuntimeError(f"the API answered {head.splitlines()[0].decode(errors='replace')}")
    left = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) - len(body)
    while left > 0:
        left -= len(stream.recv(min(left, 1 << 20)) or _gone())


def _read_head(stream: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += stream.recv(1 << 16) or _gone()
    return got


def _gone() -> bytes:
    raise ConnectionError("the API closed the connection in the middle of an answer")
