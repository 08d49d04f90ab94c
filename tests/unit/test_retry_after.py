from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.retry_after import LONGEST, is_readable, parse_retry_after

NOW = datetime(1994, 11, 6, 8, 49, 7, tzinfo=UTC)
HALF_A_MINUTE = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("5", 5), ("120", 120), ("00030", 30), ("0" * 5000 + "7", 7), ("31622400", 31622400)],
)
def test_seconds_are_digits(text: str, seconds: int) -> None:
    assert parse_retry_after(text, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["31622401", "9" * 9, "9" * 30, "9" * 5000, "9223372036854775807"])
def test_what_is_longer_than_a_year_counts_as_a_year(text: str) -> None:
    assert parse_retry_after(text, NOW) == LONGEST


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun Nov 06 08:49:37 1994",
    ],
)
def test_all_three_dates_of_the_rfc_are_read(text: str) -> None:
    assert parse_retry_after(text, NOW) == HALF_A_MINUTE


def test_fifty_years_are_counted_in_gmt_whatever_zone_now_is_told_in() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC).astimezone(timezone(timedelta(hours=14)))
    assert parse_retry_after("Sunday, 01-Mar-76 12:00:01 GMT", now) == timedelta(0)
    assert parse_retry_after("Sun, 01 Mar 2026 12:00:30 GMT", now) == HALF_A_MINUTE


def test_a_past_date_means_at_once() -> None:
    assert parse_retry_after("Sun, 06 Nov 1994 08:49:00 GMT", NOW) == timedelta(0)


def test_a_date_in_the_far_future_counts_as_a_year() -> None:
    assert parse_retry_after("Fri, 31 Dec 9999 23:59:59 GMT", NOW) == LONGEST


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        # 50 years ahead to the second is still the future, one second more is the past
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "Sunday, 01-Mar-76 12:00:00 GMT", LONGEST),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "Sunday, 01-Mar-76 12:00:01 GMT", timedelta(0)),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "Sunday, 01-Mar-25 12:00:00 GMT", timedelta(0)),
        (datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC), "Friday, 01-Jan-00 00:00:29 GMT", HALF_A_MINUTE),
        (datetime(2024, 2, 29, tzinfo=UTC), "Thursday, 29-Feb-24 00:00:30 GMT", HALF_A_MINUTE),
    ],
)
def test_a_two_digit_year_is_at_most_fifty_years_ahead(now: datetime, text: str, expected: timedelta) -> None:
    assert parse_retry_after(text, now) == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " 10 ",
        "10\n",
        "+5",
        "-5",
        "1_000",
        "1.5",
        "1e3",
        "0x10",
        "５",
        "١",
        "²",
        "5, 100",
        "100,",
        "5;100",
        "inf",
        "nan",
        "soon",
        "10s",
        "1\0",
        "Sun, 06 Nov 1994 08:49:37 -0000",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:60 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "sun, 06 Nov 1994 08:49:37 GMT",
        "06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, ٠٦ Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sunday, 31-Feb-94 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT",
        "Sun Nov  0 08:49:37 1994",
        "1994-11-06T08:49:37Z",
    ],
)
def test_anything_else_is_no_hint(text: str | None) -> None:
    assert parse_retry_after(text, NOW) is None
    assert not is_readable(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_a_standard_library_writes_is_read_to_the_second(date: datetime) -> None:
    date = date.replace(microsecond=0)
    hint = parse_retry_after(format_datetime(date, usegmt=True), NOW)
    assert hint == min(max(date - NOW, timedelta(0)), LONGEST)


near_dates = st.from_regex(
    r"(Sun, |Sunday, |Sun )[0-9 ]{2}[- ]Nov[- ]([0-9]{4}|[0-9]{2}) [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT| [0-9]{4})",
    fullmatch=True,
)


@given(st.text() | near_dates | st.from_regex(r"[0-9]+", fullmatch=True))
@example("Thursday, 29-Feb-00 00:00:00 GMT")
def test_no_text_at_all_raises_or_asks_for_more_than_a_year(text: str) -> None:
    hint = parse_retry_after(text, NOW)
    assert hint is None or timedelta(0) <= hint <= LONGEST
    assert is_readable(text) in (True, False)
