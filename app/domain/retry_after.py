"""`Retry-After`, read strictly (RFC 9110, sections 10.2.3 and 5.6.7): it comes from a stranger.

`int()` and the date parsers of the standard library take far more than the RFC allows, and raise on some of it.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

# What a receiver can ask for at most, far above any bound an operator sets and far below where dates overflow.
LONGEST: Final = timedelta(days=366)

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH: Final = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME: Final = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DAY_NAME: Final = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_DAY_NAME_LONG: Final = "(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_YEAR: Final = "(?P<year>[0-9]{4})"

_seconds: Final = re.compile("[0-9]+")
_dates: Final = (
    re.compile(f"{_DAY_NAME}, (?P<day>[0-9]{{2}}) {_MONTH} {_YEAR} {_TIME} GMT"),  # IMF-fixdate
    re.compile(f"{_DAY_NAME_LONG}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"),  # RFC 850
    re.compile(f"{_DAY_NAME} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} {_YEAR}"),  # asctime
)


def parse_retry_after(text: str | None, now: datetime) -> timedelta | None:
    """How long from `now` a receiver asks us to stay away: zero when that is past, `LONGEST` at most.

    `text` is the field's value without the blanks round it. None, no hint, for whatever is neither seconds nor
    one of the three dates of RFC 9110, which includes two fields joined by a comma. Never raises.
    """
    if text is None:
        return None
    if _seconds.fullmatch(text):
        return _clamped_seconds(text)
    date = _date(text, now.astimezone(UTC))
    return None if date is None else min(max(date - now, timedelta(0)), LONGEST)


def is_readable(text: str | None) -> bool:
    """Whether the field says something, whatever the time is."""
    return parse_retry_after(text, datetime(2000, 1, 1, tzinfo=UTC)) is not None


def _clamped_seconds(digits: str) -> timedelta:
    # By length first: `int` refuses thousands of digits, timedelta overflows at eleven.
    significant = digits.lstrip("0")
    return LONGEST if len(significant) > 9 else min(timedelta(seconds=int(significant or "0")), LONGEST)


def _date(text: str, now: datetime) -> datetime | None:
    fields = next((found.groupdict() for form in _dates if (found := form.fullmatch(text))), None)
    if fields is None:
        return None
    month = _MONTHS.index(fields.pop("month")) + 1
    day, hour, minute, second = (int(fields[name]) for name in ("day", "hour", "minute", "second"))
    rest = (month, day, hour, minute, second)
    year = int(fields["year"]) if len(fields["year"]) == 4 else _full_year(int(fields["year"]), rest, now)
    try:
        return datetime(year, *rest, tzinfo=UTC)
    except ValueError:  # 31 February, 25:00:00, second 60
        return None


def _full_year(two_digits: int, rest: tuple[int, ...], now: datetime) -> int:
    """The last year with these two digits in which the moment is not more than 50 years ahead (RFC 9110)."""
    edge = now.year + 50
    year = edge - (edge - two_digits) % 100
    is_beyond = (year, *rest) > (edge, now.month, now.day, now.hour, now.minute, now.second)
    return year - 100 if is_beyond else year
