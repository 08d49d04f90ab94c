"""The timer that holds ids until they are due."""

import threading
import time
from collections.abc import Iterator

import pytest

from app.core.timer import Timer
from tests.waiting import wait_until


class Hand:
    """A clock that the test moves, and what the timer did by then."""

    def __init__(self) -> None:
        self.now = 100.0
        self.acts: list[list[int]] = []

    def act(self, ids: list[int]) -> None:
        self.acts.append(ids)

    def move(self, timer: Timer, to: float) -> None:
        self.now = to
        timer.add([])
        with timer._changed:
            timer._changed.notify()


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def timer(hand: Hand) -> Iterator[Timer]:
    made = Timer(hand.act, lambda: hand.now, most=3, name="test")
    yield made
    made.stop()


def test_what_is_due_together_is_acted_on_together_and_never_early(hand: Hand, timer: Timer) -> None:
    timer.add([(110.0, 2), (110.0, 1), (111.0, 3)])
    hand.move(timer, 109.99)
    assert hand.acts == []
    hand.move(timer, 110.01)
    wait_until(lambda: hand.acts == [[1, 2]])
    hand.move(timer, 112)
    wait_until(lambda: hand.acts == [[1, 2], [3]])


def test_an_earlier_id_does_not_wait_for_a_later_one(hand: Hand, timer: Timer) -> None:
    timer.add([(200.0, 1)])
    timer.add([(90.0, 2)])
    wait_until(lambda: hand.acts == [[2]])


def test_one_act_takes_a_bounded_number(hand: Hand, timer: Timer) -> None:
    timer.add((90.0, each) for each in range(7))
    wait_until(lambda: sum(len(ids) for ids in hand.acts) == 7)
    assert max(len(ids) for ids in hand.acts) == 3


def test_stopping_returns_what_was_not_due(hand: Hand) -> None:
    timer = Timer(hand.act, lambda: hand.now, most=3, name="test")
    timer.add([(200.0, 1), (300.0, 2)])
    assert sorted(timer.stop()) == [1, 2]


def test_stopping_waits_for_the_act_in_progress() -> None:
    began, go, ended = threading.Event(), threading.Event(), threading.Event()

    def act(_ids: list[int]) -> None:
        began.set()
        go.wait(10)
        ended.set()

    timer = Timer(act, lambda: 100.0, most=3, name="test")
    timer.add([(90.0, 1)])
    assert began.wait(10)
    threading.Timer(0.05, go.set).start()
    timer.stop()
    assert ended.is_set()


def test_several_threads_act_at_once_on_what_is_due_together() -> None:
    both = threading.Barrier(2, timeout=10)
    met: list[int] = []

    def act(ids: list[int]) -> None:
        both.wait()
        met.extend(ids)

    timer = Timer(act, time.monotonic, most=1, name="test", threads=2)
    timer.add((time.monotonic(), each) for each in (1, 2))
    wait_until(lambda: sorted(met) == [1, 2])
    assert timer.stop() == []
