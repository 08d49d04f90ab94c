"""The sender against receivers that break the rules, one case after another."""

import asyncio
import threading

import pytest

from app.sending import connection
from app.sending.transport import PinnedTransport
from tests.hostile.cases import MIB, PLAIN, Case, answered, head
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.sending import LOOPBACK, UNHURRIED, eventually, hold_to, post, post_timed
from tests.hostile.server import (
    HostileServer,
    hang,
    pause,
    read_a_little,
    read_request,
    read_what_is_there,
    reset,
    send,
    serve_well,
    signal,
)


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_a_hostile_receiver_costs_its_deadline_and_nobody_else_anything(
    case: Case, run: Run, authority: Authority
) -> None:
    with HostileServer(case.script, [serve_well()]) as server:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        run(hold_to(case, transport, f"http://127.0.0.1:{server.port}/hook", server))


def test_an_early_answer_is_read_even_when_the_next_write_fails_first(run: Run, authority: Authority) -> None:
    """The receiver rejects and resets after the loop saw the socket writable, and before it writes."""
    reached, read_on, writable, reject, rejected = (threading.Event() for _ in range(5))

    def stay_away() -> None:
        reject.set()
        rejected.wait()

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        sending = asyncio.create_task(post(transport, f"http://127.0.0.1:{server.port}/", MIB * 32))
        await eventually(reached.is_set, "the request arrives")
        await asyncio.sleep(0.05)  # until the socket's buffers are full; if they are not, the case is an easier one
        read_on.set()
        writable.wait()
        asyncio.get_running_loop().call_soon(stay_away)
        answered(413).check(await sending)
        transport.close()

    script = [read_a_little(), signal(reached), pause(read_on), read_what_is_there(), signal(writable)]
    rejects = [pause(reject), send(head(b"413 Too Large", b"content-length: 0")), reset(), signal(rejected)]
    with HostileServer([*script, *rejects]) as server:
        run(story())


def test_a_receiver_that_does_not_read_costs_little_memory(
    run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[connection.Connection] = []
    pause_writing = connection.Connection.pause_writing

    def note(self: connection.Connection) -> None:
        paused.append(self)
        pause_writing(self)

    monkeypatch.setattr(connection.Connection, "pause_writing", note)

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        sending = asyncio.create_task(post(transport, f"http://127.0.0.1:{server.port}/", MIB * 32))
        await eventually(lambda: paused, "the receiver's buffers are full")
        assert paused[0]._transport.get_write_buffer_size() <= 2 * connection.CHUNK
        sending.cancel()
        transport.close()

    with HostileServer([hang()]) as server:
        run(story())


def test_a_dripping_body_holds_its_slot_for_a_bounded_time(
    run: Run, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.1)

    async def story() -> None:
        transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
        result, seconds = await post_timed(transport, f"http://127.0.0.1:{server.port}/")
        answered(200, excerpt=b"abc").check(result)
        assert 0.09 <= seconds < UNHURRIED
        transport.close()

    script = [read_request(), send(head(b"200 OK", b"content-length: 999") + b"abc"), hang()]
    with HostileServer(script) as server:
        run(story())
