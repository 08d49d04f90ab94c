"""When an endpoint may be sent to next."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.pacing import (
    CATCH_UP,
    FAILURES,
    LONGEST_PAUSE,
    MANY,
    PAUSE,
    TROUBLES,
    Closed,
    Heard,
    Pace,
    after,
    allowance,
    granted,
    hopeless,
    slots,
)
from app.domain.states import Outcome

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=45)
AHEAD = timedelta(seconds=2)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def later(pace: Pace, number: float) -> Pace:
    return replace(pace, at=pace.at + seconds(number))


def heard(pace: Pace, outcome: Outcome, *, began: float = 0.0, hint: float | None = None, times: int = 1) -> Pace:
    """`began` seconds from now it was sent."""
    one = Heard(outcome, pace.at + seconds(began), None if hint is None else seconds(hint))
    return after(pace, [one] * times)


def test_an_endpoint_without_limit_hint_or_trouble_takes_whatever_there_is() -> None:
    assert allowance(Pace(AT)) == MANY
    assert slots(Pace(AT), 3, AHEAD) == [AT] * 3


def test_a_rate_gives_one_slot_at_a_time_and_never_more_than_it_says_in_any_window() -> None:
    pace, claims = Pace(AT, rate_per_second=10), []
    for _ in range(400):  # looked at every 13 ms, and claimed whatever is allowed
        number = allowance(pace)
        claims += [pace.at] * number
        pace = later(granted(pace, number, LEASE), 0.013)
    assert 50 <= len(claims) <= 54, "5.2 seconds at ten a second"
    for first in claims:
        window = [each for each in claims if first <= each < first + seconds(1)]
        assert len(window) <= 10 * (1 + CATCH_UP.total_seconds()) + 1


def test_a_rate_that_was_idle_saves_nothing_up() -> None:
    pace = granted(Pace(AT, rate_per_second=2), 1, LEASE)
    assert allowance(later(pace, 0.49)) == 0
    assert allowance(later(pace, 0.5)) == 1
    assert allowance(later(pace, 3600)) == 1
    assert allowance(later(granted(Pace(AT, rate_per_second=100), 1, LEASE), 3600)) == 11, "a tenth of a second's worth"


@pytest.mark.parametrize(("rate", "soon"), [(100.0, 0.01), (0.5, 2.0)])
def test_another_rate_counts_at_once_upward_and_downward(rate: float, soon: float) -> None:
    pace = replace(granted(Pace(AT, rate_per_second=0.01), 1, LEASE), rate_per_second=rate)
    assert pace.next_slot == AT + seconds(soon)


def test_slots_are_looks_ahead_an_interval_apart_and_no_further_than_two_seconds() -> None:
    pace = granted(Pace(AT, rate_per_second=4), 1, LEASE)
    assert slots(pace, 100, AHEAD) == [AT + each * seconds(0.25) for each in range(1, 9)]
    assert slots(pace, 3, AHEAD) == [AT + each * seconds(0.25) for each in range(1, 4)]
    assert slots(granted(Pace(AT, rate_per_second=0.1), 1, LEASE), 100, AHEAD) == []


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 1e6, 1e300])
def test_the_strangest_rates_are_paced_and_never_raise(rate: float) -> None:
    pace = granted(Pace(AT, rate_per_second=rate), 1, LEASE)
    assert 0 <= allowance(later(pace, 10)) <= MANY
    slots(later(pace, 1), 200, AHEAD)


def test_what_is_in_flight_over_the_fleet_leaves_the_rest() -> None:
    pace = Pace(AT, max_in_flight=5, in_flight=3)
    assert allowance(pace) == 2
    full = granted(pace, 2, LEASE)
    assert (full.in_flight, allowance(full)) == (5, 0)
    assert AT < full.next_slot <= AT + seconds(0.5), "somebody looks soon"
    assert allowance(replace(pace, max_in_flight=2)) == 0, "lowered below what flies"


def test_ten_troubles_in_a_row_close_an_endpoint_and_nine_with_a_success_between_do_not() -> None:
    nine = heard(Pace(AT), Outcome.UNKNOWN, times=TROUBLES - 1)
    assert nine.closed_until is None
    assert heard(heard(nine, Outcome.DELIVERED), Outcome.UNREACHED, times=TROUBLES - 1).closed_until is None
    closed = heard(nine, Outcome.FAILED)
    assert (closed.closed_why, closed.closed_until) == (Closed.FAILING, AT + PAUSE)
    assert allowance(closed) == 0


def test_a_closed_endpoint_gets_one_probe_and_the_next_when_the_probe_s_lease_is_over() -> None:
    due = later(heard(Pace(AT), Outcome.FAILED, times=TROUBLES), 5)
    assert allowance(due) == 1
    assert slots(due, 100, AHEAD) == [due.at]
    probing = granted(due, 1, LEASE)
    assert (allowance(probing), allowance(later(probing, 44.9)), allowance(later(probing, 45))) == (0, 0, 1)


def test_the_probe_s_success_opens_it_and_its_failure_closes_it_for_twice_as_long() -> None:
    pace = heard(Pace(AT), Outcome.FAILED, times=TROUBLES)
    for pause in (10, 20, 40, 60, 60, 60):
        pace = granted(later(pace, 60), 1, LEASE)
        pace = heard(later(pace, 1), Outcome.UNKNOWN, began=-1)
        assert pace.closed_until == pace.at + seconds(pause)
    assert pace.closed_until == pace.at + LONGEST_PAUSE
    opened = heard(granted(later(pace, 60), 1, LEASE), Outcome.DELIVERED)
    assert allowance(opened) == MANY
    assert (opened.trips, opened.troubles, opened.failures) == (0, 0, 0)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.REDIRECTED, Outcome.REJECTED, Outcome.BLOCKED])
def test_a_receiver_that_answers_at_all_is_not_closed_and_opens_again(outcome: Outcome) -> None:
    assert heard(Pace(AT), outcome, times=100).closed_until is None
    probing = granted(later(heard(Pace(AT), Outcome.FAILED, times=TROUBLES), 5), 1, LEASE)
    assert heard(probing, outcome).closed_until is None


@pytest.mark.parametrize("outcome", [Outcome.DELIVERED, Outcome.REFUSED, Outcome.FAILED])
def test_what_was_sent_before_it_was_closed_decides_nothing(outcome: Outcome) -> None:
    closed = heard(Pace(AT), Outcome.FAILED, times=TROUBLES)
    assert heard(later(closed, 3), outcome, began=-5).closed_until == closed.closed_until


def test_a_hint_closes_the_whole_endpoint_until_then_and_the_longest_counts() -> None:
    hinted = heard(Pace(AT), Outcome.THROTTLED, hint=30)
    assert (hinted.closed_why, hinted.closed_until) == (Closed.RETRY_AFTER, AT + seconds(30))
    longer = heard(later(hinted, 1), Outcome.THROTTLED, began=-2, hint=60)
    assert longer.closed_until == AT + seconds(61)
    assert heard(later(hinted, 1), Outcome.THROTTLED, began=-2, hint=2).closed_until == AT + seconds(30)


def test_the_probe_s_own_hint_counts_though_it_is_shorter_than_the_probe_s_lease() -> None:
    probing = granted(later(heard(Pace(AT), Outcome.THROTTLED, hint=5), 5), 1, LEASE)
    assert heard(probing, Outcome.THROTTLED, hint=3).closed_until == probing.at + seconds(3)


def test_throttled_without_a_hint_is_trouble() -> None:
    assert heard(Pace(AT), Outcome.THROTTLED, times=TROUBLES).closed_why is Closed.FAILING


def test_only_days_and_a_number_of_failures_without_a_success_between_are_hopeless() -> None:
    days = timedelta(days=5)
    pace = heard(Pace(AT), Outcome.REFUSED, times=FAILURES)
    assert not hopeless(pace, days)
    assert hopeless(replace(pace, at=AT + days), days)
    assert not hopeless(replace(heard(Pace(AT), Outcome.REFUSED, times=FAILURES - 1), at=AT + days), days)
    last = heard(replace(pace, at=AT + days), Outcome.DELIVERED)
    assert not hopeless(last, days)
    assert not hopeless(heard(last, Outcome.REFUSED, times=FAILURES), days), "counted anew from there"


def test_outcomes_of_one_flush_count_in_the_order_in_which_they_were_sent() -> None:
    news = [Heard(Outcome.DELIVERED, AT), *(Heard(Outcome.FAILED, AT + seconds(each)) for each in range(1, 11))]
    assert after(Pace(AT + seconds(11)), reversed(news)).closed_why is Closed.FAILING
    assert after(Pace(AT + seconds(12)), [*news, Heard(Outcome.DELIVERED, AT + seconds(11))]).closed_why is None
