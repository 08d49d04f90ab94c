from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.domain.backoff import FULL, SHORT, wait

jitters = st.floats(0, 1, exclude_max=True)


def test_the_schedules_are_those_of_the_contract() -> None:
    minute, hour = 60, 3600
    assert list(FULL) == [5, minute, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 24 * hour]
    assert list(SHORT) == [5 * minute, hour, 6 * hour, 24 * hour]


@given(st.integers(0, 10**7), jitters)
def test_jitter_adds_up_to_a_fifth_and_takes_nothing_away(seconds: int, jitter: float) -> None:
    assert timedelta(seconds=seconds) <= wait(seconds, jitter) <= timedelta(seconds=seconds * 1.2)


def test_without_jitter_the_step_is_as_documented() -> None:
    assert wait(5, 0.0) == timedelta(seconds=5)
    assert wait(100, 0.5) == timedelta(seconds=110)
