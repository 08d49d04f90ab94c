"""Answers, from their text to shapes. The text of `data` is cut out as it stands and read when somebody asks."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from app.client.shapes import Page
from app.domain.json_value import value_end, without_escapes

Shape = TypeVar("Shape")
_RAW: Final = "raw_data"  # the field that holds the text of the member `data`
_blank: Final = re.compile(r"[ \t\n\r]*")
_decoder: Final = json.JSONDecoder()


def one(shape: type[Shape]) -> Callable[[str], Shape]:
    """Reads an answer that is one thing; ValueError for what is none."""
    return lambda text: _build(shape, _Text(text).thing(_has_raw(shape)))


def many(shape: type[Shape], number: int) -> Callable[[str], tuple[Shape, ...]]:
    """Reads an answer that is a list of so many, without pages."""

    def read(text: str) -> tuple[Shape, ...]:
        found = page(shape)(text).data
        if len(found) != number:
            raise ValueError(f"{len(found)} answers to {number}")
        return found

    return read


def page(shape: type[Shape]) -> Callable[[str], Page[Shape]]:
    """Reads a page of a list."""

    def read(text: str) -> Page[Shape]:
        rows, cursor = _Text(text).page(_has_raw(shape))
        if cursor is not None and not isinstance(cursor, str):
            raise ValueError("next_cursor is no text")
        return Page(data=tuple(_build(shape, each) for each in rows), next_cursor=cursor)

    return read


class _Text:
    """An answer's text twice over: as it came, and without escapes; an index is good for both."""

    def __init__(self, text: str) -> None:
        self._text, self._plain = text, without_escapes(text)

    def thing(self, raw: bool) -> Mapping[str, Any]:
        members, end = self._members(self._skip(0), self._data if raw else None)
        self._expect_end(end)
        return members

    def page(self, raw: bool) -> tuple[list[Mapping[str, Any]], object]:
        def rows(at: int) -> tuple[list[Mapping[str, Any]], int]:
            return self._elements(at, lambda start: self._members(start, self._data if raw else None))

        members, end = self._members(self._skip(0), rows)
        self._expect_end(end)
        return members["data"], members.get("next_cursor")

    def _data(self, at: int) -> tuple[str, int]:
        end = value_end(self._plain, at)
        return self._text[at:end], end

    def _members(self, at: int, read_data: Callable[[int], tuple[object, int]] | None) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}

        def member(start: int) -> tuple[None, int]:
            name, end = _decoder.raw_decode(self._text, start)
            start = self._skip(self._expect(":", self._skip(end)))
            read = read_data if read_data and name == "data" else self._value
            found[name], end = read(start)
            return None, end

        _, end = self._sequence(at, "{", "}", member)
        return found, end

    def _elements(self, at: int, element: Callable[[int], tuple[Any, int]]) -> tuple[list[Any], int]:
        return self._sequence(at, "[", "]", element)

    def _sequence(
        self, at: int, opening: str, closing: str, read: Callable[[int], tuple[Any, int]]
    ) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self._skip(self._expect(opening, at))
        if self._text.startswith(closing, at):
            return found, at + 1
        while True:
            each, at = read(at)
            found.append(each)
            at = self._skip(at)
            if self._text.startswith(closing, at):
                return found, at + 1
            at = self._skip(self._expect(",", at))

    def _value(self, at: int) -> tuple[object, int]:
        return _decoder.raw_decode(self._text, at)

    def _skip(self, at: int) -> int:
        return _blank.match(self._text, at).end()  # type: ignore[union-attr]  # it matches nothing, too

    def _expect(self, what: str, at: int) -> int:
        if not self._text.startswith(what, at):
            raise ValueError(f"{what} is missing at {at}")
        return at + 1

    def _expect_end(self, at: int) -> None:
        if self._skip(at) != len(self._text):
            raise ValueError(f"something follows at {at}")


def _has_raw(shape: Any) -> bool:
    return _RAW in _readers(shape)


def _build(shape: Any, members: Mapping[str, Any]) -> Any:
    """A shape of the members that it knows."""
    if _has_raw(shape) and "data" in members:
        members = {**members, _RAW: members["data"]}
    given = {name: read(members[name]) for name, read in _readers(shape).items() if name in members}
    if missing := _required(shape) - given.keys():
        raise ValueError(f"{', '.join(sorted(missing))} is missing")
    return shape(**given)


@cache
def _readers(shape: type[Any]) -> Mapping[str, Callable[[Any], Any]]:
    hints = get_type_hints(shape)
    return {each.name: _reader(hints[each.name]) for each in fields(shape)}


@cache
def _required(shape: type[Any]) -> frozenset[str]:
    return frozenset(each.name for each in fields(shape) if each.default is MISSING and each.default_factory is MISSING)


def _reader(hint: Any) -> Callable[[Any], Any]:
    """What makes a value of this type of a JSON value, and raises ValueError when it is another."""
    if get_origin(hint) is UnionType:
        (inner,) = (each for each in get_args(hint) if each is not NoneType)
        return _or_none(_reader(inner))
    if get_origin(hint) is tuple:
        return _each(_reader(get_args(hint)[0]))
    if get_origin(hint) is not None:
        return _values(_reader(get_args(hint)[1]))
    if hint is datetime:
        return _time
    if is_dataclass(hint):
        return lambda value: _build(hint, _only(dict)(value))
    return _only(int, float) if hint is float else _only(hint)


def _only(*kinds: type[Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise ValueError(f"{type(value).__name__} where {kinds[-1].__name__} is expected")
        return value

    return read


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _each(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: tuple(map(read, _only(list)(value)))


def _values(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {name: read(each) for name, each in _only(dict)(value).items()}


def _time(value: Any) -> datetime:
    at = datetime.fromisoformat(_only(str)(value))
    if at.tzinfo is None:
        raise ValueError("a time has no zone")
    return at
