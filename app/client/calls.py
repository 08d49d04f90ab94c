"""What is asked of the service: one call, its body written once, and how its answer is read."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

from app.client.shapes import UNSET, NewEvent
from app.domain.json_value import BadValueError, value_end, without_escapes

T = TypeVar("T")
_id: Final = re.compile(r"[A-Za-z0-9_]{1,100}")
_BLANKS: Final = " \t\r\n"
_visible: Final = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """`read` makes the result of the text of a 2xx answer, and raises ValueError for what is none.

    Every try sends the same bytes under the same `idempotency_key`. `absent_is_done`: a 404 to a repeat means that an
    earlier try had succeeded. `answers_at_once`: whatever comes first is the answer, 503 too.
    """

    method: str
    path: str
    read: Callable[[str], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: str | None = field(default=None, repr=False)
    idempotency_key: str | None = None
    absent_is_done: bool = False
    answers_at_once: bool = False

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.method} {self.path}"

    @property
    def changes(self) -> bool:
        """Whether it can have an effect."""
        return self.method != "GET"


def get(path: str, read: Callable[[str], T], **query: str | int | None) -> Call[T]:
    """A look; query parameters that are None are left out."""
    return Call("GET", path, read, {name: str(value) for name, value in query.items() if value is not None})


def post(path: str, read: Callable[[str], T], body: str | None = None, key: str | None = None) -> Call[T]:
    """A POST, under the caller's idempotency key or one of its own; ValueError for a key that can't be one."""
    if key is not None and not _visible.fullmatch(key):
        raise ValueError("an idempotency key is 1 to 255 visible ASCII characters")
    return Call("POST", path, read, body=body, idempotency_key=key or uuid4().hex)


def at(*parts: str) -> str:
    """The path of a thing; ValueError for an id that can't be one, so that it never leads elsewhere."""
    for part in parts[1::2]:
        if not _id.fullmatch(part):
            raise ValueError(f"{part!r} is no id: use one as the service answered it")
    return "/".join(("/v1", *parts))


def write(members: Mapping[str, Any], *, raw_data: str | None = None) -> str:
    """The text of an object; members that are UNSET are left out, `raw_data` stands in it as it is."""
    told = {name: value for name, value in members.items() if value is not UNSET}
    if raw_data is None:
        return _dump(told)
    if "data" in told:
        raise ValueError("give either data or raw_data")
    if why := why_not_json(raw_data):
        raise ValueError(f"raw_data {why}")
    return f'{_dump(told)[:-1]}{"," if told else ""}"data":{raw_data}}}'


def write_event(event: NewEvent) -> str:
    """The text of an event; ValueError when it has no data, or data twice."""
    if event.data is UNSET and event.raw_data is None:
        raise ValueError("an event needs data or raw_data")
    members = {
        "type": event.type,
        "data": event.data,
        "key": given(event.key),
        "deliver_at": given(event.deliver_at),
        "delay_seconds": given(event.delay_seconds),
    }
    return write(members, raw_data=event.raw_data)


def given(value: T | None) -> Any:
    """UNSET for None: of members that are left out rather than null."""
    return UNSET if value is None else value


def _dump(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_time)
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only write as an escape
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_time)
    except TypeError as error:  # a key that is no text
        raise ValueError(f"this is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("this is too deep to be written as JSON") from None
    return text


def _time(value: object) -> str:
    """What else there is to write: times, in the one form that says which moment they are."""
    if not isinstance(value, datetime):
        raise ValueError(f"{type(value).__name__} is nothing that JSON can say")
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} has no zone: use an aware datetime, such as datetime.now(UTC)")
    return value.astimezone(UTC).isoformat()


def why_not_json(text: str) -> str | None:
    """What keeps a text from being one JSON text, as the service judges it, as the end of a sentence; None: nothing.

    Anything else in the place of data could bring members of its own.
    """
    blanks = len(text) - len(text.lstrip(_BLANKS))
    plain = without_escapes(f"{text.strip(_BLANKS)}}}")
    try:
        text.encode()
        end = value_end(plain, 0)
    except UnicodeEncodeError:
        return "holds a lone surrogate: write it as an escape"
    except BadValueError as error:
        return f"is not JSON at character {blanks + error.index + 1}"
    return None if end == len(plain) - 1 else "is more than one JSON text"
