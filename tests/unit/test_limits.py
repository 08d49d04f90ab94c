"""Rates per tenant: what is let through, what a refusal costs, how much is remembered."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.api import limits
from app.api.limits import Rate


class Time:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(limits, "time", made)
    return made


def taken(rate: Rate, tries: int, count: int = 1, tenant: str = "acme") -> int:
    return sum(rate.take(tenant, count) == 0 for _ in range(tries))


def test_a_second_s_worth_is_let_through_at_once_and_then_the_rate(time: Time) -> None:
    rate = Rate(4)
    assert taken(rate, 10) == 4
    for _ in range(20):
        time.now += 0.25
        assert taken(rate, 2) == 1
    time.now += 100
    assert taken(rate, 10) == 4, "what was not used is not saved up"


def test_the_wait_that_is_told_is_long_enough_and_no_longer(time: Time) -> None:
    rate = Rate(4)
    taken(rate, 4)
    time.now += rate.take("acme") - 0.01
    assert rate.take("acme") > 0
    time.now += 0.011
    assert rate.take("acme") == 0


def test_a_refusal_takes_nothing(time: Time) -> None:
    rate = Rate(1)
    taken(rate, 1)
    assert taken(rate, 1000) == 0
    time.now += 1
    assert taken(rate, 2) == 1


def test_less_than_one_a_second_lets_one_through_at_a_time(time: Time) -> None:
    rate = Rate(0.01)
    assert taken(rate, 2) == 1
    assert rate.take("acme") == pytest.approx(100)
    time.now += 100
    assert taken(rate, 2) == 1


def test_a_list_is_taken_when_one_would_be_and_paid_for_after(time: Time) -> None:
    rate = Rate(10)
    assert taken(rate, 1, count=1000) == 1
    assert rate.take("acme", 1000) == rate.take("acme") == pytest.approx(99.1)
    time.now += 100
    assert taken(rate, 3, count=5) == 2, "several that fit together"
    time.now += 0.11
    assert taken(rate, 2, count=1000) == 1, "although something is outstanding"


def test_tenants_are_apart(time: Time) -> None:
    rate = Rate(2)
    assert taken(rate, 9, tenant="acme") == taken(rate, 9, tenant="rival") == 2


def test_memory_is_bounded_and_who_was_heard_of_last_is_remembered(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED", 10)
    rate = Rate(0.001)
    for number in range(100):
        assert taken(rate, 1, tenant=f"tenant-{number}") == 1
        assert taken(rate, 1, tenant="tenant-0") == 0, "it asks all the time"
    assert len(rate._paid_at) == 10
    assert taken(rate, 1, tenant="tenant-99") == 0
    assert taken(rate, 1, tenant="tenant-1") == 1


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless", "time")
def test_threads_that_take_at_once_get_no_more_than_there_is() -> None:
    rate = Rate(1000)
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(lambda _: taken(rate, 1000), range(8))) == 1000
