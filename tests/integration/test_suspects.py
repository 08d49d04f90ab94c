"""Suspects in the hands of real child processes, which alone die of them."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy import Engine as Database
from sqlalchemy.event import listens_for, remove
from sqlalchemy.exc import OperationalError

from app import settings as settings_of
from app.core import deliveries as core
from app.core.child import STOPS, Child
from app.core.clock import LedgerClock
from app.core.deliveries import Room
from app.core.dispatch import Dispatcher
from app.core.slots import take_slot
from app.core.suspects import CHILDREN, OVER, Suspects
from app.domain.wakeups import Answer
from app.ledger.deliveries import Claim
from app.runtime import CHILD, make_dispatcher, open_runtime
from tests.conftest import Connect
from tests.killing import kill_peer, peer
from tests.ledgers import TERMS, deliveries_of, rows, some_events
from tests.processes import KEY
from tests.receivers import Answer as Reply
from tests.receivers import Received, Receiver
from tests.recording import slow_recording
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
Dispatching = Callable[..., Dispatcher]
SECRETS = (KEY, "the broker's password")


@pytest.fixture
def dispatching(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatching]:
    """Makes dispatchers of the settings it is given, which their children find in the environment."""
    with ExitStack() as opened:

        def make(**settings: object) -> Dispatcher:
            wanted = {"database_url": database_url, "secrets_key": KEY, "allowed_networks": "127.0.0.0/8", **settings}
            for name, value in wanted.items():
                monkeypatch.setenv(f"DUEHOOK_{name.upper()}", str(value))
            runtime = open_runtime(settings_of.load(), application_name="test", pool_size=6)
            opened.callback(runtime.close)
            made = make_dispatcher(runtime, LedgerClock(runtime.engine))
            opened.callback(made.stop)
            return made

        yield make


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def some_suspects(engine: Engine, count: int) -> list[int]:
    """Two claims of each were abandoned, due now."""
    ids = [deliveries_of(engine, event)[0] for event in some_events(engine, count)]
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE duehook.deliveries SET abandoned = 2")
    return ids


def states(engine: Engine) -> Counter[str]:
    return Counter(rows(engine, "SELECT status || ' ' || attempt || ' ' || abandoned FROM duehook.deliveries"))


def by_peer(receiver: Receiver) -> dict[int, int]:
    """How many requests each process sends, from now on."""
    peers: Counter[int] = Counter()

    def note(received: Received) -> Reply:
        peers[peer(received.connection)] += 1
        return Reply()

    receiver.answer = note
    return peers


def ended(pid: int) -> bool:
    """It has, and nobody waits to be told."""
    return not Path(f"/proc/{pid}").exists()


def test_what_is_meant_to_stop_its_worker_never_reaches_a_child_not_even_while_it_starts() -> None:
    child = Child([sys.executable, "-c", "import os, sys; os.write(1, b'.'); sys.stdin.read()"])
    for each in STOPS:
        os.kill(child._popen.pid, each)
    assert child.answers(20)
    for each in STOPS:
        os.kill(child._popen.pid, each)
    assert child.end() == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(STOPS), "its parent is stopped by them as ever"


def test_suspects_are_sent_by_two_children_at_most_and_everything_else_by_the_worker_itself(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    dispatcher, peers = dispatching(), by_peer(receiver)
    ids = some_suspects(engine, 40)
    others = [deliveries_of(engine, event)[0] for event in some_events(engine, 10)]
    answers = dispatcher.deliver([*ids, *others]).answers
    assert {answers[each] for each in ids} == {Answer.SUSPECT}
    assert {answers[each] for each in others} == {Answer.TAKEN}
    wait_until(lambda: states(engine) == {"delivered 1 0": 50}, deadline=60)
    children = peers.keys() - {os.getpid()}
    assert peers[os.getpid()] == 10
    assert 1 <= len(children) <= CHILDREN
    assert set(receiver.events.values()) == {1}
    dispatcher.stop()
    assert all(ended(child) for child in children)


def test_only_the_child_dies_of_a_suspect_and_its_claim_ends_at_once(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    dispatcher, killed = dispatching(), list[int]()

    def kill(received: Received) -> Reply:
        killed.append(kill_peer(received.connection))
        return Reply()

    receiver.answer = kill
    began = time.monotonic()
    dispatcher.deliver(some_suspects(engine, 1))
    wait_until(lambda: states(engine) == {"scheduled 1 3": 1}, deadline=40)
    assert time.monotonic() - began < 40, "the lease takes 45 s"
    assert len(killed) == 1 and killed != [os.getpid()]
    assert rows(engine, "SELECT outcome FROM duehook.attempts") == ["abandoned"]

    receiver.answer = lambda _: Reply()
    wait_until(lambda: rows(engine, "SELECT next_attempt_at <= now() FROM duehook.deliveries") == [True])
    dispatcher.deliver(rows(engine, "SELECT id FROM duehook.deliveries"))
    wait_until(lambda: states(engine) == {"delivered 2 0": 1}, deadline=40)


def test_a_child_that_answers_nothing_is_killed_after_its_time(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    dispatcher, frozen = dispatching(deadline_seconds=1, lease_seconds=30), list[int]()

    def freeze(received: Received) -> Reply:
        frozen.append(peer(received.connection))
        os.kill(frozen[0], signal.SIGSTOP)
        return Reply()

    receiver.answer = freeze
    dispatcher.deliver(some_suspects(engine, 1))
    wait_until(lambda: frozen, deadline=40)
    began = time.monotonic()
    wait_until(lambda: states(engine) == {"scheduled 1 3": 1}, deadline=25)
    assert time.monotonic() - began > 1 + OVER - 2
    assert ended(frozen[0])


def test_a_child_whose_parent_died_does_not_outlive_its_time_whatever_keeps_it_from_recording(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, connect: Connect
) -> None:
    receiver.register(engine)
    dispatching(deadline_seconds=1, lease_seconds=30)
    (delivery,) = some_suspects(engine, 1)
    child = Child(CHILD)
    assert child.answers(40)
    room = Room(total=0, each=1, suspects=1)
    (claim,) = core.claim(engine, [delivery], TERMS, room).claims
    with slow_recording(connect):
        assert child.give(claim, time.monotonic())
        assert not child.answers(1 + OVER + 5)
        assert child.end(5) == -signal.SIGALRM
    assert states(engine) == {"leased 1 2": 1}


def test_a_lease_that_is_hardly_longer_than_the_deadline_is_enough_for_a_child_that_has_to_start_first(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    dispatcher = dispatching(deadline_seconds=1, lease_seconds=1.65)

    def nearly(_: object) -> Reply:
        time.sleep(0.9)
        return Reply()

    receiver.answer = nearly
    dispatcher.deliver(some_suspects(engine, 4))
    wait_until(lambda: states(engine) == {"delivered 1 0": 4}, deadline=40)
    assert set(receiver.events.values()) == {1}


def test_a_child_that_nobody_needs_any_more_ends_and_another_comes_when_needed(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.suspects.IDLE", 0.2)
    receiver.register(engine)
    dispatcher, peers = dispatching(), by_peer(receiver)
    dispatcher.deliver(some_suspects(engine, 1))
    wait_until(lambda: states(engine) == {"delivered 1 0": 1}, deadline=40)
    (first,) = peers
    wait_until(lambda: ended(first))
    (event,) = some_events(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE duehook.deliveries SET abandoned = 2 WHERE status = 'scheduled'")
    dispatcher.deliver(deliveries_of(engine, event))
    wait_until(lambda: states(engine) == {"delivered 1 0": 2}, deadline=40)
    assert len(peers) == 2


def test_one_that_takes_its_time_holds_up_no_other(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    hold = threading.Event()
    receiver.answer = lambda _: Reply(hold=hold) if len(receiver.received) == 1 else Reply()
    dispatcher = dispatching()
    first, other = some_suspects(engine, 2)
    dispatcher.deliver([first])
    wait_until(lambda: receiver.received, deadline=40)
    dispatcher.deliver([other])
    wait_until(lambda: states(engine) == {"delivered 1 0": 1, "leased 1 2": 1}, deadline=12)
    hold.set()
    wait_until(lambda: states(engine) == {"delivered 1 0": 2})


def test_no_suspect_is_claimed_while_outcomes_wait_for_a_database_that_was_away(
    engine: Engine, database_url: str, dispatching: Dispatching, receiver: Receiver
) -> None:
    """It may be one of them, whose lease has ended meanwhile."""
    receiver.register(engine)
    dispatcher = dispatching()
    refused: list[str] = []

    @listens_for(Database, "before_cursor_execute")
    def refuse(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "deliveries.record " in statement:
            refused.append(statement)
            raise OperationalError(statement, {}, psycopg.OperationalError("the connection is lost"))

    try:
        (suspect,) = some_suspects(engine, 1)
        (event,) = some_events(engine)
        dispatcher.deliver(deliveries_of(engine, event))
        wait_until(lambda: len(refused) >= 2)
        dispatcher._suspects.add([suspect])
        _until_it_holds_nothing(dispatcher._suspects)
        dispatcher._suspects.stop(10)
        assert states(engine) == {"leased 1 0": 1, "scheduled 0 2": 1}
    finally:
        remove(Database, "before_cursor_execute", refuse)
    wait_until(lambda: states(engine) == {"delivered 1 0": 1, "scheduled 0 2": 1})


def test_a_worker_that_stops_waits_for_what_its_child_has_in_the_air(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    arrived, hold = threading.Event(), threading.Event()

    def stall(_: object) -> Reply:
        arrived.set()
        return Reply(hold=hold)

    receiver.answer = stall
    dispatcher = dispatching()
    dispatcher.deliver(some_suspects(engine, 3))
    assert arrived.wait(40)
    stopping = threading.Thread(target=dispatcher.stop)
    stopping.start()
    wait_until(lambda: len(receiver.received) >= 1)
    hold.set()
    stopping.join(20)
    assert not stopping.is_alive()
    found = states(engine)
    assert found["delivered 1 0"] == len(receiver.received)
    assert found["scheduled 0 2"] == 3 - len(receiver.received), "and the rest is as it was"


def test_a_worker_that_is_cut_short_leaves_no_child_behind(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    arrived, hold, pids = threading.Event(), threading.Event(), list[int]()

    def stall(received: Received) -> Reply:
        pids.append(peer(received.connection))
        arrived.set()
        return Reply(hold=hold)

    receiver.answer = stall
    dispatcher = dispatching()
    dispatcher.deliver(some_suspects(engine, 1))
    assert arrived.wait(40)
    began = time.monotonic()
    dispatcher.stop(lambda: True)
    assert time.monotonic() - began < 5
    assert ended(pids[0])
    hold.set()


def test_a_child_knows_what_it_needs_and_shows_none_of_it(
    engine: Engine, dispatching: Dispatching, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.register(engine)
    ready = tmp_path / "ready"
    dispatcher = dispatching(
        broker_url="redis://:the broker's password@127.0.0.1:9/0",
        flower_login="someone:the broker's password",
        metrics_token="the broker's password",
        ready_file=ready,
    )
    seen: list[str] = []

    def look(received: Received) -> Reply:
        process = Path(f"/proc/{peer(received.connection)}")
        seen.extend((process / each).read_text() for each in ("cmdline", "environ"))
        return Reply()

    receiver.answer = look
    dispatcher.deliver(some_suspects(engine, 1))
    wait_until(lambda: states(engine) == {"delivered 1 0": 1}, deadline=40)
    command, environment = seen
    assert not any(each in command for each in SECRETS)
    assert KEY in environment
    assert "the broker's password" not in environment
    assert not ready.exists()


def test_no_claim_is_made_for_children_that_don_t_start(engine: Engine) -> None:
    asked: list[int] = []

    def claim(delivery: int) -> tuple[Claim, float] | None:
        asked.append(delivery)
        return None

    for command in ([sys.executable, "-c", "raise SystemExit(1)"], ["/nowhere/at/all"]):
        suspects = Suspects(engine, command, claim, lambda _: None, deadline=1)
        suspects.add([1, 2, 3])
        _until_it_holds_nothing(suspects)
        suspects.stop(0)
    assert asked == []


def _until_it_holds_nothing(suspects: Suspects) -> None:
    wait_until(lambda: not suspects._ids)


def test_a_slot_belongs_to_one_of_all_processes_until_it_is_closed() -> None:
    name = str(uuid4())
    held: list[Any] = [take_slot(name, 2), take_slot(name, 2)]
    assert all(held)
    assert take_slot(name, 2) is None
    other = take_slot(name + "/", 2)
    assert other is not None
    other.close()
    held[0].close()
    again = take_slot(name, 2)
    assert again is not None
    for each in (held[1], again):
        each.close()


def test_two_workers_of_a_host_have_two_children_together(
    engine: Engine, dispatching: Dispatching, receiver: Receiver
) -> None:
    receiver.register(engine)
    first, second, peers = dispatching(), dispatching(), by_peer(receiver)
    note = receiver.answer

    def wait_for_both(received: Received) -> Reply:
        reply = note(received)
        wait_until(lambda: len(peers) >= CHILDREN, deadline=12)
        return reply

    receiver.answer = wait_for_both
    ids = some_suspects(engine, 60)
    first.deliver(ids[:30])
    wait_until(lambda: len(peers) == CHILDREN, deadline=40)
    second.deliver(ids[30:])
    _until_it_holds_nothing(second._suspects)
    wait_until(lambda: states(engine) == {"delivered 1 0": 30, "scheduled 0 2": 30})
    first.deliver(ids[30:])
    wait_until(lambda: states(engine) == {"delivered 1 0": 60})
    assert len(peers) == CHILDREN
    assert set(receiver.events.values()) == {1}
