"""A call until its result: when it is tried again, and what is told when that was in vain.

A talk is a generator: it yields what is to be sent or how long to wait, is given what came of it, and returns the
result. So all of this is written once; `carriers` has the two that carry a talk out, one that blocks and one that is
awaited.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from app.client import refusals
from app.client.calls import Call
from app.client.errors import DuehookError, TooManyError, UnavailableError, UnknownOutcomeError
from app.client.refusals import Answer
from app.client.retries import Retries
from app.domain.retry_after import parse_retry_after

T = TypeVar("T")
Error = TypeVar("Error", bound=DuehookError)
_FOR_THE_MOMENT: Final = frozenset({429, 502, 503, 504})
_SHORTEST: Final = 0.05  # seconds that a try is given when the time is all but up


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer, and why; `may_have_arrived` unless the request certainly never got there."""

    why: str
    may_have_arrived: bool


@dataclass(frozen=True, slots=True)
class Send:
    """One try of a call, in so many seconds."""

    call: Call[Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


Got: TypeAlias = Answer | Lost | None
Talk: TypeAlias = Generator[Send | Pause, Got, T]


def ask(call: Call[T], retries: Retries) -> Talk[T]:
    """What the service answers to the call; raises `DuehookError`."""
    began = time.monotonic()
    tried, may_have_happened = 0, False
    while True:
        left = retries.seconds - (time.monotonic() - began)
        got = yield Send(call, min(retries.timeout, max(left, _SHORTEST)))
        assert got is not None, "who carries a talk out answers a Send"
        tried += 1
        if isinstance(got, Answer) and not _is_for_the_moment(call, got):
            return _settle(call, got, repeated=may_have_happened)
        may_have_happened = may_have_happened or _may_have_happened(call, got)
        wait = retries.wait(tried, _hint(got))
        spent = time.monotonic() - began
        if tried == retries.tries or spent + wait >= retries.seconds:
            _give_up(call, got, f"{tried} {'try' if tried == 1 else 'tries'} in {spent:.1f} s", may_have_happened)
        yield Pause(wait)


def _is_for_the_moment(call: Call[Any], answer: Answer) -> bool:
    """Busy, limited, or, a 409 with a Retry-After, that an earlier try of this very call is still running."""
    if call.answers_at_once:
        return False
    return answer.status in _FOR_THE_MOMENT or (answer.status == 409 and "retry-after" in answer.headers)


def _may_have_happened(call: Call[Any], got: Answer | Lost) -> bool:
    return call.changes and (got.may_have_arrived if isinstance(got, Lost) else got.status != 429)


def _hint(got: Answer | Lost) -> float:
    """Seconds, from what the service asked for; 0 when it said nothing that can be read."""
    if isinstance(got, Lost):
        return 0.0
    hint = parse_retry_after(got.headers.get("retry-after", "").strip(), datetime.now(UTC))
    return 0.0 if hint is None else hint.total_seconds()


def _settle(call: Call[T], answer: Answer, *, repeated: bool) -> T:
    if answer.status == 404 and call.absent_is_done and repeated and refusals.is_problem(answer):
        return call.read("")
    if not 200 <= answer.status < 300 and not (call.answers_at_once and answer.status == 503):
        error = refusals.of(call.name, answer)
        by_now = repeated or (call.changes and not (400 <= answer.status < 500 and refusals.is_problem(answer)))
        raise _marked(error, call, may_have_happened=by_now)
    try:
        return call.read(refusals.text_of(answer))
    except (ValueError, KeyError, RecursionError):
        raise _marked(refusals.unexpected(call.name, answer), call, may_have_happened=call.changes) from None


def _give_up(call: Call[Any], last: Answer | Lost, tried: str, may_have_happened: bool) -> NoReturn:
    hint = _hint(last) or None
    if may_have_happened:
        unknown = UnknownOutcomeError(
            f"{call.name}: its outcome is unknown after {tried}, it may have happened: {_again(call)}"
            f" (the last try: {_why(last)})"
        )
        unknown.retry_after = hint
        raise _marked(unknown, call, may_have_happened=True)
    refused = refusals.of(call.name, last) if isinstance(last, Answer) else None
    if isinstance(refused, TooManyError):
        refused.retry_after = hint
        raise _marked(refused, call, may_have_happened=False)
    unavailable = UnavailableError(f"{call.name}: not answered after {tried}, and nothing has happened: {_why(last)}")
    unavailable.retry_after = hint
    raise _marked(unavailable, call, may_have_happened=False)


def _again(call: Call[Any]) -> str:
    if call.idempotency_key is None:
        return "to repeat it is safe"
    return f"repeat it with idempotency_key {call.idempotency_key!r}, and it has no second effect"


def _why(last: Answer | Lost) -> str:
    return last.why if isinstance(last, Lost) else f"it answered {last.status}, {refusals.words(last)}"


def _marked(error: Error, call: Call[Any], *, may_have_happened: bool) -> Error:
    error.idempotency_key, error.may_have_happened = call.idempotency_key, may_have_happened
    return error
