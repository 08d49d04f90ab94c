"""However much a receiver sends, what the sender holds of it stays small."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.sending.transport import PinnedTransport
from tests.hostile.cases import BOMB, INFORMATIONAL, SIZE, Case, answered, head, reply
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.proxying import proxy_at, read_connect
from tests.hostile.sending import LOOPBACK, post
from tests.hostile.server import HostileServer, Step, forever, send, start_tls

NAME = "receiver.test"
# One read of an event loop is 256 KiB at most, and there are copies of it; what is to be seen is a thousand times that.
FEW = 2 << 20
TIMES = 3
GZIPPED = head(b"200 OK", b"content-encoding: gzip", b"content-length: 1000000000")
GREEDY = [
    *SIZE,
    *(case for case in INFORMATIONAL if not case.waits and "for ever" in case.name),
    reply("gzip bombs for ever", GZIPPED, answered(200, excerpt=BOMB[:1024]), forever(BOMB)),
]


@contextmanager
def small() -> Iterator[None]:
    """Fails when what Python has allocated in it was ever more than `FEW` bytes at once."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        yield
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < FEW, peak


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("case", GREEDY, ids=lambda case: case.name)
def test_a_receiver_that_sends_without_end_costs_little_memory(
    case: Case, scheme: str, run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=lambda _: ["127.0.0.1"])
        with small():
            for _ in range(TIMES):
                case.expected.check(await post(transport, f"{scheme}://{NAME}:{server.port}/"))
        transport.close()

    opening: list[Step] = [start_tls(authority.server_context(NAME))] if scheme == "https" else []
    with HostileServer([*opening, *case.script]) as server:
        run(story())
    assert server.connections == TIMES


def test_a_proxy_that_sends_without_end_costs_little_memory(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, proxy=proxy_at(proxy))
        with small():
            for _ in range(TIMES):
                await post(transport, "http://127.0.0.1:1/")
        transport.close()

    with HostileServer([read_connect(), send(b"HTTP/1.1 200 OK\r\n"), forever(b"x: y\r\n" * 99_999)]) as proxy:
        run(story())
    assert proxy.connections == TIMES
