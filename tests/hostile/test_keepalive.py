"""Kept connections: what arrives between two requests is never an answer, and nobody's close costs a delivery."""

import asyncio
import inspect
import threading
from collections import Counter

import pytest

from app.domain.exchange import Answered, Exchange, Unknown, Unreached
from app.sending import guard, response
from app.sending.connection import Connection
from app.sending.idle import IdleConnections
from app.sending.transport import PinnedTransport, request_head
from tests.hostile.cases import CUT_SHORT, MIB, SMALL, UNKNOWN, answered, head
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.sending import LOOPBACK, endpoint, eventually, post
from tests.hostile.server import (
    OK,
    HostileServer,
    Step,
    close,
    drip,
    echo_ids,
    half_close,
    hang,
    pause,
    read_a_little,
    read_request,
    reset,
    rest,
    send,
    serve_well,
    signal,
    wait_until_left,
)

ROUNDS = 100
SERVED = answered(200, excerpt=b"ok")
STRAY = {
    "an answer": send(head(b"500 Not Yours", b"content-length: 0")),
    "an empty line": send(b"\r\n"),
    "one byte": send(b"\0"),
    "half-closed": half_close(),
    "closed": close(),
    "reset": reset(),
}


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
@pytest.mark.parametrize("noticed_by", ["loop", "kernel"])
def test_what_happens_on_an_idle_connection_is_not_the_next_answer(
    stray: Step, noticed_by: str, run: Run, authority: Authority
) -> None:
    released, done = threading.Event(), threading.Event()

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = f"http://127.0.0.1:{server.port}/"
        SERVED.check(await post(transport, url))
        assert transport.idle_connections == 1
        released.set()
        done.wait()  # and the loop with it: what came is only in the kernel
        if noticed_by == "loop":
            await eventually(lambda: not transport.idle_connections, "the loop dropped the connection")
        SERVED.check(await post(transport, url))
        transport.close()

    first = [read_request(), send(OK), pause(released), stray, signal(done), hang()]
    with HostileServer(first, [serve_well()]) as server:
        run(story())
    assert server.connections == 2 and len(server.requests) == 2


@pytest.mark.parametrize("end", [close(), reset(), half_close()], ids=["closed", "reset", "half-closed"])
def test_a_kept_connection_that_closes_after_the_request_is_unknown_and_not_sent_twice(
    end: Step, run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = f"http://127.0.0.1:{server.port}/"
        SERVED.check(await post(transport, url))
        UNKNOWN.check(await post(transport, url))
        SERVED.check(await post(transport, url))
        transport.close()

    with HostileServer([read_request(), send(OK), read_request(), end, hang()], [serve_well()]) as server:
        run(story())
    assert server.connections == 2 and len(server.requests) == 3


def test_a_reset_that_the_first_write_meets_costs_nothing(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the look at the connection and the write; asyncio's write says so, uvloop's does not."""
    released, done = threading.Event(), threading.Event()

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = f"http://127.0.0.1:{server.port}/"
        SERVED.check(await post(transport, url))
        monkeypatch.setattr(Connection, "usable", lambda _: True)
        released.set()
        done.wait()
        SERVED.check(await post(transport, url))
        transport.close()

    with HostileServer([read_request(), send(OK), pause(released), reset(), signal(done)], [serve_well()]) as server:
        asyncio.run(story())
    assert len(server.requests) == 2


def test_the_deadline_of_one_request_is_not_the_next_ones(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = f"http://127.0.0.1:{server.port}/"
        SERVED.check(await post(transport, url, seconds=0.2))
        SERVED.check(await post(transport, url))
        SERVED.check(await post(transport, url, seconds=0.5))
        transport.close()

    slowly = [read_request(), drip(OK, 0.008), serve_well()]
    with HostileServer([read_request(), send(OK), *slowly]) as server:
        run(story())
    assert server.connections == 1


def test_a_connection_is_kept_no_longer_than_its_idle_age(
    run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response, "IDLE_SECONDS", 0.02)
    assert connections_of_two_posts(PinnedTransport(LOOPBACK, ca_bundle=authority.bundle), run) == 2


def test_a_pinned_connection_is_used_no_longer_than_its_resolution(run: Run, authority: Authority) -> None:
    short = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, pinned_seconds=0.02)
    assert connections_of_two_posts(short, run) == 2


def test_a_young_connection_is_used_again(run: Run, authority: Authority) -> None:
    assert connections_of_two_posts(PinnedTransport(LOOPBACK, ca_bundle=authority.bundle), run) == 1


def connections_of_two_posts(transport: PinnedTransport, run: Run) -> int:
    """How many connections two posts take that are 30 ms apart."""

    async def story() -> None:
        url = f"http://127.0.0.1:{server.port}/"
        SERVED.check(await post(transport, url))
        await asyncio.sleep(0.03)
        SERVED.check(await post(transport, url))
        transport.close()

    with HostileServer() as server:
        run(story())
    return server.connections


def test_idle_connections_are_bounded_and_the_oldest_goes(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        transport._idle = IdleConnections(limit=3, limit_per_origin=2)
        urls = [f"http://127.0.0.{n}:{server.port}/" for n in (1, 2)]
        await asyncio.gather(*(post(transport, urls[0]) for _ in range(5)))
        assert transport.idle_connections == 2
        await asyncio.gather(*(post(transport, urls[1]) for _ in range(5)))
        assert transport.idle_connections == 3
        transport.close()
        assert transport.idle_connections == 0

    with HostileServer(host="0.0.0.0") as server:
        run(story())


def test_answers_go_to_the_requests_they_answer(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = endpoint(f"http://127.0.0.1:{server.port}/")

        async def lane(name: str) -> None:
            for number in range(20):
                ident = f"{name}_{number}"
                head_bytes = b"POST / HTTP/1.1\r\nwebhook-id: %s\r\ncontent-length: 14\r\n\r\n" % ident.encode()
                deadline = asyncio.get_running_loop().time() + 5
                answered(200, excerpt=ident.encode()).check(
                    await transport.send(url.origin, head_bytes, SMALL, deadline)
                )

        await asyncio.gather(*(lane(f"lane{n}") for n in range(8)))
        transport.close()

    with HostileServer([echo_ids()]) as server:
        run(story())
    assert server.connections == 8


def test_a_cancelled_send_closes_its_connection(run: Run, authority: Authority) -> None:
    reached, left = threading.Event(), threading.Event()

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = f"http://127.0.0.1:{server.port}/"
        sending = asyncio.create_task(post(transport, url))
        await eventually(reached.is_set, "the request arrived")
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await eventually(left.is_set, "the receiver saw the connection end")
        assert transport.idle_connections == 0
        SERVED.check(await post(transport, url))
        transport.close()

    with HostileServer([read_request(), signal(reached), wait_until_left(left)], [serve_well()]) as server:
        run(story())


def test_a_deadline_that_has_passed_sends_nothing_and_keeps_the_connection(run: Run, authority: Authority) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = f"http://127.0.0.1:{server.port}/"
        assert isinstance(await post(transport, url, seconds=-1), Unreached)
        assert isinstance(await post(transport, url), Answered)
        assert isinstance(await post(transport, url, seconds=-1), Unreached)
        assert transport.idle_connections == 1
        transport.close()

    with HostileServer() as server:
        run(story())
    assert len(server.requests) == 1


def test_a_receiver_that_closes_at_any_moment_costs_no_attempt_and_doubles_none(run: Run, authority: Authority) -> None:
    """Its close comes before, while and after the next request is written, a little later from one to the next."""

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = endpoint(f"http://127.0.0.1:{server.port}/")
        now = asyncio.get_running_loop().time

        async def lane(lane: int) -> None:
            for number in range(ROUNDS):
                ident = f"evt_{lane}_{number}"
                head = request_head(url, [("webhook-id", ident)], len(SMALL))
                results[ident] = await transport.send(url.origin, head, SMALL, now() + 5)
                await asyncio.sleep(number % 7 * 0.0002)

        await asyncio.gather(*(lane(each) for each in range(4)))
        transport.close()

    results: dict[str, Exchange] = {}
    scripts = [[read_request(), send(OK), rest(number % 11 * 0.0002)] for number in range(ROUNDS * 4)]
    with HostileServer(*scripts, [serve_well()]) as server:
        run(story())
    came = Counter(request.split(b"webhook-id: ")[1].split(b"\r\n")[0].decode() for request in server.requests)
    assert set(came.values()) == {1}, "none is sent twice within its attempt"
    for ident, result in results.items():
        assert isinstance(result, Answered | Unknown), result
        assert ident in came or isinstance(result, Unknown), "what was answered has come"
    assert server.connections > ROUNDS < len(came), "it has closed often, and often in time"


def test_a_kept_connection_that_closes_in_the_middle_of_a_request_is_unknown_and_not_sent_twice(
    run: Run, authority: Authority
) -> None:
    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        url = f"http://127.0.0.1:{server.port}/"
        SERVED.check(await post(transport, url))
        CUT_SHORT.check(await post(transport, url, MIB * 16))
        SERVED.check(await post(transport, url))
        transport.close()

    with HostileServer([read_request(), send(OK), read_a_little(), reset()], [serve_well()]) as server:
        run(story())
    assert server.connections == 2 and len(server.requests) == 2


def test_a_pinned_connection_is_used_for_five_minutes_at_most() -> None:
    assert guard.PINNED_SECONDS <= 300
    assert inspect.signature(PinnedTransport).parameters["pinned_seconds"].default == guard.PINNED_SECONDS
