"""The kinds of values that members of a request have, with the sentence for one that is none."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Path
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationInfo, WithJsonSchema

from app.domain import identity

Value = TypeVar("Value")
TEN_YEARS = 3652.5 * 24 * 3600
LONGEST_HOLD = 366 * 24 * 3600
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,6})?[0-9]*([Zz]|[-+][0-9]{2}:[0-9]{2})"
)
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def _time(value: Any) -> datetime:
    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a time is written as RFC 3339 with its zone, such as 2030-01-31T12:00:00Z")
    date, clock, fraction, zone = match.groups("")
    try:
        at = datetime.fromisoformat(f"{date}T{clock}{fraction}{zone.upper()}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("there is no such time") from None
    if not _FIRST <= at < _LAST:
        raise ValueError("a time lies between 1970 and the end of 9998")
    return at


def _whole(value: Any) -> Any:
    """JSON has one kind of number, and some programs write every one of them with a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _only(test: Callable[[Value], bool], sentence: str) -> AfterValidator:
    def check(value: Value) -> Value:
        if not test(value):
            raise ValueError(sentence)
        return value

    return AfterValidator(check)


def _number(prefix: identity.Prefix, whose: str) -> BeforeValidator:
    """The number of the row that a public id names."""

    def read(value: Any) -> int:
        number = identity.number(prefix, value) if isinstance(value, str) else None
        if number is None:
            raise ValueError(f"{whose} id is {prefix}_ and what follows it in an answer")
        return number

    return BeforeValidator(read)


def _public(prefix: identity.Prefix) -> PlainSerializer:
    """Where it is written down as JSON, the public id that it was."""
    return PlainSerializer(lambda number: identity.public_id(prefix, number), when_used="json")


def not_before_since(until: datetime | None, info: ValidationInfo) -> datetime | None:
    """Validates the end of a window by its beginning, which stands before it."""
    since = info.data.get("since")
    if since and until and until < since:
        raise ValueError("lies before since")
    return until


def example(**members: Any) -> ConfigDict:
    """The configuration of a model that shows such a one in the documentation."""
    return ConfigDict(json_schema_extra={"examples": [members]})


Id = Annotated[str, Path(description="The id that it was answered with.")]
Time = Annotated[datetime, BeforeValidator(_time)]
Whole = BeforeValidator(_whole)
Text = Annotated[str, _only(lambda text: "\0" not in text, "a text holds no NUL")]
Name = Annotated[str, Field(min_length=1, max_length=255), _only(lambda text: "\0" not in text, "a text holds no NUL")]
ReservationId = Annotated[
    str,
    _only(identity.is_reservation_id, "an id is rsv_ and 1 to 64 letters and digits"),
    Field(json_schema_extra={"pattern": "^rsv_[0-9A-Za-z]{1,64}$"}),
]
EventId = Annotated[
    int,
    _number("evt", "an event's"),
    _public("evt"),
    WithJsonSchema({"type": "string", "pattern": "^evt_[0-9a-f]+$"}),
]
EndpointId = Annotated[
    int,
    _number("end", "an endpoint's"),
    _public("end"),
    WithJsonSchema({"type": "string", "pattern": "^end_[0-9a-f]+$"}),
]
EventType = Annotated[
    str,
    _only(identity.is_event_type, "a type is words of letters, digits and _ joined by dots, at most 128 characters"),
    _only(
        lambda name: not identity.is_service_type(name),
        "types under reservation., endpoint., job. and ping are the service's own",
    ),
    Field(
        json_schema_extra={
            "pattern": r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$",
            "maxLength": 128,
            "not": {"pattern": r"^(ping$|(reservation|endpoint|job)\.)"},
        }
    ),
]
Pattern = Annotated[
    str,
    _only(identity.is_pattern, "a pattern is a type, a prefix and .*, or *"),
    Field(json_schema_extra={"pattern": r"^([A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(\.\*)?|\*)$", "maxLength": 128}),
]
CreatedAt = Annotated[Time, Field(description="When it was made.")]
UpdatedAt = Annotated[Time, Field(description="When it last changed.")]
NextCursor = Annotated[str | None, Field(description="`cursor` of the next page; null when there are no more.")]
