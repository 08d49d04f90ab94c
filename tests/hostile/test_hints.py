"""`Retry-After` from the wire to the schedule: every legal form, everything else, on every status."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.exchange import Answered
from app.domain.outcomes import Again, outcome_of, verdict
from app.domain.retry_after import LONGEST, parse_retry_after
from app.sending.transport import PinnedTransport
from tests.hostile.certificates import Authority
from tests.hostile.conftest import Run
from tests.hostile.sending import LOOPBACK, post
from tests.hostile.server import HostileServer, read_request, send

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

READABLE = {
    "seconds": (b"Retry-After: 120", 120),
    "no seconds": (b"Retry-After: 0", 0),
    "leading zeros": (b"Retry-After: 0000120", 120),
    "an odd name": (b"rETRY-aFTER:120", 120),
    "blanks round it": (b"Retry-After: \t 120 \t ", 120),
    "a date": (b"Retry-After: Tue, 01 Jan 2030 12:02:00 GMT", 120),
    "a date of RFC 850": (b"Retry-After: Tuesday, 01-Jan-30 12:02:00 GMT", 120),
    "a date of asctime": (b"Retry-After: Tue Jan  1 12:02:00 2030", 120),
    "a date that is past": (b"Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", 0),
    "the end of time": (b"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", LONGEST.total_seconds()),
    "more than a number holds": (b"Retry-After: " + b"9" * 5000, LONGEST.total_seconds()),
}
UNREADABLE = {
    "nothing": b"Retry-After:",
    "blanks": b"Retry-After: \t ",
    "a word": b"Retry-After: soon",
    "a fraction": b"Retry-After: 1.5",
    "a negative": b"Retry-After: -1",
    "a plus": b"Retry-After: +5",
    "infinity": b"Retry-After: inf",
    "an exponent": b"Retry-After: 1e300",
    "digits of another script": "Retry-After: \N{FULLWIDTH DIGIT FIVE}".encode(),
    "NUL": b"Retry-After: 5\0",
    "broken UTF-8": b"Retry-After: \xff5",
    "a zone of its own": b"Retry-After: Tue, 01 Jan 2030 12:02:00 +0000",
    "a leap second": b"Retry-After: Tue, 01 Jan 2030 12:02:60 GMT",
    "two": b"Retry-After: 5\r\nRetry-After: 100",
    "two that agree": b"Retry-After: 5\r\nRetry-After: 5",
    "two on one line": b"Retry-After: 5, 100",
    "a number and a date": b"Retry-After: 5\r\nRetry-After: Tue, 01 Jan 2030 12:02:00 GMT",
    "one and an empty one": b"Retry-After: 5\r\nRetry-After:",
    "folded": b"Retry-After: 5\r\n 100",
    "a long number and more": b"Retry-After: " + b"9" * 300 + b" or so",
}


async def answer_to(authority: Authority, url: str) -> Answered:
    transport = PinnedTransport(LOOPBACK, ca_bundle=authority.bundle)
    result = await post(transport, url)
    transport.close()
    assert isinstance(result, Answered), result
    return result


def answering(status: int, *lines: bytes) -> HostileServer:
    head = b"\r\n".join([b"HTTP/1.1 %03d X" % status, *lines, b"content-length: 0", b"", b""])
    return HostileServer([read_request(), send(head)])


@pytest.mark.parametrize(("line", "seconds"), READABLE.values(), ids=READABLE)
def test_every_legal_form_is_a_hint(line: bytes, seconds: float, run: Run, authority: Authority) -> None:
    async def story() -> None:
        result = await answer_to(authority, f"http://127.0.0.1:{server.port}/")
        assert parse_retry_after(result.retry_after, NOW) == timedelta(seconds=seconds)

    with answering(429, line) as server:
        run(story())


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_everything_else_is_no_hint_and_the_answer_counts(line: bytes, run: Run, authority: Authority) -> None:
    async def story() -> None:
        result = await answer_to(authority, f"http://127.0.0.1:{server.port}/")
        assert result.status == 429 and parse_retry_after(result.retry_after, NOW) is None

    with answering(429, line) as server:
        run(story())


@pytest.mark.parametrize(
    "status", [0, 99, 301, 308, 400, 401, 403, 404, 408, 425, 429, 451, 499, 500, 502, 503, 504, 599, 600, 999]
)
def test_a_hint_counts_on_every_answer_that_is_tried_again(status: int, run: Run, authority: Authority) -> None:
    async def story() -> None:
        result = await answer_to(authority, f"http://127.0.0.1:{server.port}/")
        judged = verdict(
            outcome_of(result),
            step=0,
            literal_blocked=False,
            schedule=None,
            retry_after=parse_retry_after(result.retry_after, NOW),
            jitter=0.0,
            max_retry_after=2 * HOUR,
        )
        assert judged == Again(HOUR)

    with answering(status, b"retry-after: 3600") as server:
        run(story())
