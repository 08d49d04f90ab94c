"""Answers, written as text: what a producer sent as `data` goes out byte for byte, never read and written anew."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from starlette.responses import Response


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


def answer(value: Value, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(write(value), status, headers, media_type="application/json")
