"""Answers, written as text: what a producer sent as `data` goes out byte for byte, never read and written anew."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from starlette.responses import Response

from app.ledger.idempotency import Kept


class Json(str):
    """Text that is JSON already and stands in an answer as it is."""

    __slots__ = ()


Value = None | bool | int | float | str | datetime | Json | Mapping[str, "Value"] | Sequence["Value"]


def write(value: Value) -> str:
    """The JSON text of a value; times as RFC 3339 in UTC with microseconds."""
    match value:
        case Json():
            return value
        case str() | None | bool() | int() | float():
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        case datetime():
            return f'"{rfc3339(value)}"'
        case Mapping():
            return "{" + ",".join(f'"{name}":{write(each)}' for name, each in value.items()) + "}"
        case _:
            return "[" + ",".join(map(write, value)) + "]"


def rfc3339(at: datetime) -> str:
    """The one form in which times are answered."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class Answer(Response):
    """A JSON response, and what of it may be kept for a repeat: a member `secret` is null there."""

    def __init__(self, value: Value, status: int, headers: Mapping[str, str] | None) -> None:
        super().__init__(write(value), status, headers, media_type="application/json")
        self._value = value

    @property
    def kept(self) -> Kept:
        if isinstance(self._value, Mapping) and "secret" in self._value:
            return Kept(self.status_code, write({**self._value, "secret": None}).encode())
        return Kept(self.status_code, bytes(self.body))


def answer(value: Value, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A JSON response."""
    return Answer(value, status, headers)
