"""Before the first byte: refused, black-holed, slow and wrong addresses, and what they may cost."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from app.domain.exchange import Answered, Phase, Unknown, Unreached
from app.sending import reach
from app.sending.transport import PinnedTransport
from tests.hostile.cases import SHORT
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.sending import LOOPBACK, UNHURRIED, eventually, keeps_deadline, post, post_timed
from tests.hostile.server import HostileServer, wait_until_left

NOBODY = "127.0.0.2"
BLACK_HOLE = "127.0.0.3"


@contextlib.contextmanager
def black_hole(port: int) -> Iterator[None]:
    """Makes connects to BLACK_HOLE hang: a full backlog drops what else comes."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((BLACK_HOLE, port), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield


def sender(authority: Authority, *addresses: str) -> PinnedTransport:
    return PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=lambda _: list(addresses))


def test_a_refused_connection_is_unreached_at_once(run: Run, authority: Authority) -> None:
    async def story() -> None:
        with socket.socket() as unused:
            unused.bind((NOBODY, 0))
            url = f"http://receiver.test:{unused.getsockname()[1]}/"
            result, seconds = await post_timed(sender(authority, NOBODY), url)
        assert result == Unreached(Phase.CONNECT, "connection refused", NOBODY)
        assert seconds < UNHURRIED

    run(story())


def test_a_black_holed_address_is_unreached_at_the_deadline(run: Run, authority: Authority) -> None:
    async def story() -> None:
        url = f"http://receiver.test:{server.port}/"
        transport = sender(authority, BLACK_HOLE)
        result, seconds = await post_timed(transport, url, seconds=SHORT)
        assert result == Unreached(Phase.CONNECT, "no connection in time", BLACK_HOLE)
        assert keeps_deadline(seconds, SHORT)
        assert isinstance(await post(transport, f"http://127.0.0.1:{server.port}/"), Answered)
        transport.close()

    with HostileServer() as server, black_hole(server.port):
        run(story())


def test_the_next_address_is_tried_when_one_does_not_answer(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = sender(authority, BLACK_HOLE, NOBODY, "127.0.0.1")
        result, seconds = await post_timed(transport, f"http://receiver.test:{server.port}/", seconds=0.6)
        assert isinstance(result, Answered) and result.address == "127.0.0.1"
        assert seconds < 0.6
        transport.close()

    with HostileServer() as server, black_hole(server.port):
        run(story())


def test_the_turns_of_dead_addresses_end_with_the_deadline(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = sender(authority, *[BLACK_HOLE] * 5)
        result, seconds = await post_timed(transport, f"http://receiver.test:{server.port}/", seconds=SHORT)
        assert isinstance(result, Unreached) and result.address == BLACK_HOLE
        assert keeps_deadline(seconds, SHORT)

    with HostileServer() as server, black_hole(server.port):
        run(story())


def test_a_receiver_that_never_accepts_may_still_have_the_request(run: Run, authority: Authority) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            result, seconds = await post_timed(sender(authority), url, seconds=SHORT)
        assert isinstance(result, Unknown)
        assert keeps_deadline(seconds, SHORT)

    run(story())


def test_a_receiver_that_accepts_late_is_heard(run: Run, authority: Authority) -> None:
    async def story() -> None:
        with HostileServer(accept_after=released) as server:
            sending = asyncio.create_task(post(sender(authority), f"http://127.0.0.1:{server.port}/"))
            await asyncio.sleep(0.1)
            assert not sending.done()
            released.set()
            assert isinstance(await sending, Answered)
            assert server.connections == len(server.requests) == 1

    released = threading.Event()
    run(story())


def test_an_ipv6_literal_is_connected_to(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = sender(authority)
        result = await post(transport, f"http://[::1]:{server.port}/")
        assert isinstance(result, Answered) and result.address == "::1"
        transport.close()

    with HostileServer(host="::1") as server:
        run(story())
    assert f"host: [::1]:{server.port}\r\n".encode() in server.requests[0]


def test_a_connection_to_itself_is_refused(run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP connects a socket to its own port when the kernel happens to choose the one that is dialled."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    def bound(family: int) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.bind(("127.0.0.1", port))
        return sock

    async def story() -> None:
        result = await post(sender(authority), f"http://127.0.0.1:{port}/")
        assert result == Unreached(Phase.CONNECT, "connected to itself", "127.0.0.1")

    monkeypatch.setattr(reach, "_new_socket", bound)
    run(story())


@pytest.mark.parametrize("stuck_in", ["TCP", "TLS"])
def test_cancelled_and_late_connects_leave_no_socket_behind(stuck_in: str, run: Run, authority: Authority) -> None:
    async def story() -> None:
        url = f"https://receiver.test:{server.port}/"
        transport = sender(authority, BLACK_HOLE if stuck_in == "TCP" else "127.0.0.1")
        before = open_sockets()
        sending = [asyncio.create_task(post(transport, url)) for _ in range(5)]
        await eventually(lambda: len(open_sockets() - before) >= 5, "all are connecting")
        await eventually(lambda: stuck_in == "TCP" or server.connections == 5, "all are shaking hands")
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await post(transport, url, seconds=0.01)
        await eventually(lambda: open_sockets() <= before, "their sockets are closed")
        transport.close()

    with HostileServer([wait_until_left(threading.Event())]) as server, black_hole(server.port):
        run(story())


def open_sockets() -> set[str]:
    """The sockets this process has open, on either side, each by its own name."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
    return {name for name in found if name.startswith("socket:")}
