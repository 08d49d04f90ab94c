"""Who may send how much at once, and what is known of how soon there will be room."""

import threading

import pytest

from app.sending import engine
from app.sending.engine import Places
from tests.waiting import wait_until


class Time:
    """The monotonic clock, in the test's hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(engine, "time", made)
    return made


def share(places: Places, endpoint: int) -> int:
    each, of = places.shares()
    return of.get(endpoint, each)


def test_one_endpoint_may_have_its_limit_of_an_idle_engine() -> None:
    places = Places(200, 50)
    assert share(places, 1) == 50
    places.limit(1, 7)
    assert share(places, 1) == 7
    places.take([1] * 5)
    assert share(places, 1) == 2


def test_however_many_endpoints_fill_up_there_is_a_place_for_the_next() -> None:
    places = Places(200, 50)
    for endpoint in range(7):
        while taken := share(places, endpoint):
            places.take([endpoint] * taken)
    assert places.used < 200
    assert share(places, 99) >= 1


def test_an_endpoint_that_has_more_than_is_left_takes_no_more_until_it_has_not() -> None:
    places = Places(200, 200)
    places.take([1] * 150)
    assert share(places, 1) == 0
    assert share(places, 2) == 25
    places.give([1] * 80)
    assert share(places, 1) == 30


def test_a_single_place_is_anybody_s() -> None:
    places = Places(1, 1)
    assert share(places, 1) == 1
    places.take([1])
    assert (share(places, 1), share(places, 2)) == (0, 0)


def test_the_pace_of_an_endpoint_says_how_soon_it_has_room(time: Time) -> None:
    places = Places(200, 50)
    places.take([1] * 50)
    time.now += 0.1
    places.give([1] * 20)
    time.now += 0.1
    places.give([1] * 20)
    assert places.soon(1, 0.25) == pytest.approx(50, abs=1), "40 in the 0.2 s since it began"
    time.now += 0.45
    assert places.soon(1, 0.25) == 10, "only what ended within the last half second counts"


def test_an_endpoint_that_has_just_begun_gets_the_chance_to_show_its_pace(time: Time) -> None:
    places = Places(200, 50)
    assert places.soon(1, 0.25) == 50
    places.take([1] * 50)
    assert places.soon(1, 0.25) == 50
    time.now += 0.3
    assert places.soon(1, 0.25) == 0


def test_an_endpoint_is_quick_when_all_its_places_come_back_in_a_moment(time: Time) -> None:
    places = Places(200, 50)
    places.take([1] * 50)
    assert not places.quick(1, 0.25), "nothing is known of it"
    time.now += 0.2
    places.give([1] * 41)
    assert places.quick(1, 0.25), "51 in that time"
    assert not places.quick(1, 0.24), "49"


def test_answers_that_come_at_once_after_a_long_time_make_no_endpoint_quick(time: Time) -> None:
    places = Places(200, 50)
    places.take([1] * 51)
    time.now += 10
    places.give([1] * 50)
    assert not places.quick(1, 0.25)


def test_an_endpoint_that_hangs_shows_no_pace(time: Time) -> None:
    places = Places(200, 50)
    places.take([1] * 50)
    time.now += 7
    assert places.soon(1, 0.25) == 0


def test_an_endpoint_with_a_limit_of_its_own_begins_with_as_many(time: Time) -> None:
    places = Places(200, 50)
    places.limit(1, 3)
    assert (places.share(1), places.soon(1, 2)) == (3, 3)
    places.take([1] * 2)
    assert places.share(1) == 1


def test_one_free_place_is_enough_when_no_more_come_in_a_glance() -> None:
    places = Places(10, 10)
    places.take([1] * 9)
    assert places.free(10, patience=5) == 1


def test_who_waits_for_a_place_gets_the_first_that_comes_free() -> None:
    places = Places(2, 2)
    places.take([1, 2])
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(places.free(2, patience=10)))
    waiting.start()
    places.give([1])
    waiting.join(5)
    assert found and found[0] >= 1


def test_nobody_waits_when_the_end_is_near() -> None:
    places = Places(1, 1)
    places.take([1])
    ended = threading.Event()

    def wait() -> None:
        places.free(1, patience=60)
        places.wait_for_change(60)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    places.hurry()
    wait_until(ended.is_set)
    assert places.soon(1, 10) == 0
    assert not places.quick(1, 10)
