"""Everything hostile at once in one engine, and a receiver beside it that must not notice."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from app.domain.exchange import Answered
from app.sending.engine import Engine, Send, Sent
from app.sending.transport import PinnedTransport, request_head
from tests.hostile.cases import PLAIN, SMALL, Case
from tests.hostile.certificates import Authority
from tests.hostile.sending import LOOPBACK, endpoint
from tests.hostile.server import HostileServer, serve_well
from tests.waiting import wait_until

DEADLINE = 3.0
GRACE = 1.0  # for a machine that is busy with two hundred threads of the receivers' side
WAVE = 10
HANGING = 50
HEALTHY = "healthy"

Told = dict[tuple[str, int], Sent[tuple[str, int]]]


@pytest.fixture
def told() -> Told:
    return {}


@pytest.fixture
def engine(authority: Authority, told: Told) -> Iterator[Engine[tuple[str, int]]]:
    """One engine, whose resolver hangs; what it tells is in `told`."""
    released = threading.Event()

    def hang(_: str) -> list[str]:
        released.wait()
        return []

    made: Engine[tuple[str, int]] = Engine(
        lambda: PinnedTransport(LOOPBACK, ca_bundle=authority.bundle, lookup=hang),
        lambda sent: told.update({sent.send.subject: sent}),
        deadline=DEADLINE,
    )
    yield made
    released.set()
    made.stop()


def to(url: str, name: str, number: int = 0, body: bytes = SMALL) -> Send[tuple[str, int]]:
    parsed = endpoint(url)
    head = request_head(parsed, [("webhook-id", f"evt_{number}")], len(body))
    return Send((name, number), 1, parsed.origin, head, body)


def seconds(sent: Sent[tuple[str, int]]) -> float:
    return sent.ended - sent.started


def test_hostile_receivers_do_not_harm_the_others(engine: Engine[tuple[str, int]], told: Told) -> None:
    with ExitStack() as stack:
        cases = {case.name: case for case in PLAIN}
        assert len(cases) == len(PLAIN) >= 100, "each has a name of its own, and they are many"
        servers = {name: stack.enter_context(HostileServer(case.script)) for name, case in cases.items()}
        healthy = stack.enter_context(HostileServer([serve_well()]))
        engine.start([to(f"http://127.0.0.1:{s.port}/", name, body=cases[name].body) for name, s in servers.items()])
        engine.start([to(f"http://never-resolved.zone-{number}.test/", "lost", number) for number in range(HANGING)])
        waves = 0
        while waves < 20 or not all((name, 0) in told for name in cases):
            numbers = range(waves * WAVE, (waves + 1) * WAVE)
            engine.start([to(f"http://127.0.0.1:{healthy.port}/", HEALTHY, each) for each in numbers])
            waves += 1
            wait_until(partial(_served, told, waves * WAVE), deadline=DEADLINE * 2, what="the healthy one is served")
        wait_until(lambda: len(told) == len(cases) + HANGING + waves * WAVE, what="all have ended")
        _check(told, cases)
        assert len(healthy.requests) == waves * WAVE, "each once"


def _served(told: Told, count: int) -> bool:
    return sum(name == HEALTHY for name, _ in list(told)) == count


def _check(told: Told, cases: dict[str, Case]) -> None:
    for (name, _), sent in told.items():
        if name == HEALTHY:
            assert isinstance(sent.exchange, Answered) and sent.exchange.status == 200, sent.exchange
        elif name in cases:
            assert isinstance(sent.exchange, cases[name].expected.kinds), (name, sent.exchange)
        assert seconds(sent) <= DEADLINE * 1.1 + 0.15 + GRACE, (name, seconds(sent))
    took = sorted(seconds(sent) for (name, _), sent in told.items() if name == HEALTHY)
    assert took[len(took) * 95 // 100] < GRACE, took
