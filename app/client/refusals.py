"""Answers that are no result, as the errors that they are."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.client.errors import BY_STATUS, BY_TYPE, Flaw, RefusedError, UnexpectedAnswerError

# A page is cut at 16 MiB, and by then holds up to sixteen things of up to MAX_EVENT_BYTES each.
MOST_BYTES: Final = 128 * 1024 * 1024
_MOST_FLAWS, _MOST_CHARACTERS = 100, 2000
_JSON: Final = ("application/json", "application/problem+json")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whole: a body of more than `MOST_BYTES` is cut somewhere behind them."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """Without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def text_of(answer: Answer) -> str:
    """The body of a result; ValueError when it is not JSON, or more than anybody reads."""
    if answer.status == 204:
        return ""
    if answer.media_type != "application/json" or len(answer.body) > MOST_BYTES:
        raise ValueError("no result")
    return answer.body.decode()


def of(name: str, answer: Answer) -> RefusedError | UnexpectedAnswerError:
    """The error that an answer to the call of this name is."""
    problem = _problem(answer)
    if problem is None or not 400 <= answer.status < 600:
        return unexpected(name, answer)
    kind = BY_TYPE.get(problem["type"]) or BY_STATUS.get(answer.status, RefusedError)
    return kind(_cut(problem["detail"]), answer.status, problem["type"], problem["title"], _flaws(problem))


def unexpected(name: str, answer: Answer) -> UnexpectedAnswerError:
    """The error of an answer that does not speak as duehook does."""
    sentence = f"{name} was answered {answer.status} by something that doesn't speak as duehook does: {words(answer)}"
    return UnexpectedAnswerError(f"{sentence}; see that api_url is the service's", answer.status)


def is_problem(answer: Answer) -> bool:
    """Whether the service itself said no, and not somebody on the way to it."""
    return _problem(answer) is not None


def words(answer: Answer) -> str:
    """What it says, for people; never the body of a stranger."""
    problem = _problem(answer)
    if problem is not None:
        return _cut(problem["detail"])
    if len(answer.body) > MOST_BYTES:
        return f"more than {MOST_BYTES} bytes"
    if answer.media_type in _JSON:
        return "JSON of another kind"
    return f"{len(answer.body)} bytes of {_cut(answer.media_type) or 'no declared type'}"


def _problem(answer: Answer) -> dict[str, Any] | None:
    """Its members, the three that are text checked; None for whatever else it is."""
    if answer.media_type != "application/problem+json" or len(answer.body) > MOST_BYTES:
        return None
    try:
        problem = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(problem, dict) or not isinstance(problem.get("detail"), str):
        return None
    return problem | {name: each if isinstance(each := problem.get(name), str) else "" for name in ("type", "title")}


def _flaws(problem: Mapping[str, Any]) -> list[Flaw]:
    named = problem.get("errors")
    return [
        Flaw(str(each.get("pointer", "")), _cut(str(each.get("detail", ""))))
        for each in (named if isinstance(named, list) else [])[:_MOST_FLAWS]
        if isinstance(each, dict)
    ]


def _cut(text: str) -> str:
    return text[:_MOST_CHARACTERS]
