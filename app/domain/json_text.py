"""Request bodies: objects whose members are read strictly, but for those whose text is kept as it was sent.

`data` belongs to the producer and is delivered byte for byte, so it is checked to be JSON and cut out, never
parsed and written again. A body is either not JSON (NotJsonError, 400) or says something wrong at a place that an
RFC 6901 pointer names (JsonTextError, 422).
"""

import re
from typing import Final, TypeAlias

from app.domain.json_strict import LEVELS as STRICT_LEVELS
from app.domain.json_strict import StrictnessError, strict_value
from app.domain.json_value import LEVELS, STRING, WS, BadValueError, TooDeepError, value_end, without_escapes

# Member names with their values: a str of JSON text for those kept verbatim, Python values for the rest.
Members: TypeAlias = dict[str, object]

_MOST_MEMBERS: Final = 64  # no request has a third of it; each costs microseconds
_MOST_NAME_CHARACTERS: Final = 128  # a name goes into pointers, and so into answers
_blank: Final = re.compile(WS)
_end: Final = re.compile(rf"{WS}\Z")
_no_object: Final = re.compile(r'["\[tfn0-9-]')
# Each of these has the closing bracket, if that is what comes, as its group.
_object_open: Final = re.compile(rf"\{{{WS}(?:(\}})|(?=\"))")
_object_next: Final = re.compile(rf"{WS}(?:(\}})|,{WS}(?=\"))")
_array_open: Final = re.compile(rf"\[{WS}(?:(\])|)")
_array_next: Final = re.compile(rf"{WS}(?:(\])|,{WS})")
_name: Final = re.compile(rf"({STRING}){WS}:{WS}")


class JsonTextError(ValueError):
    """What is wrong (`detail`, the end of a sentence) with the value that `pointer` names, "" for the body."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(f"{pointer or 'the body'} {detail}")
        self.pointer = pointer
        self.detail = detail


class NotJsonError(JsonTextError):
    """The body is not JSON text at all."""


def read_object(body: bytes, verbatim: frozenset[str] = frozenset()) -> Members:
    """The members of a body that has to be one object. Raises JsonTextError."""
    return _Reader(body, verbatim).whole_object()


def read_batch(body: bytes, verbatim: frozenset[str] = frozenset(), *, most: int) -> Members | list[Members]:
    """The same for a body that may also be an array of up to `most` objects. Raises JsonTextError."""
    reader = _Reader(body, verbatim)
    return reader.whole_array(most) if reader.is_array() else reader.whole_object()


def pointer(*parts: str | int) -> str:
    """The RFC 6901 JSON pointer of a member of a member of an element, and so on."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


class _Reader:
    """A body twice over: as it came, and without escapes for finding one's way; an index is good for both."""

    def __init__(self, body: bytes, verbatim: frozenset[str]) -> None:
        try:
            self.source = body.decode()
        except UnicodeDecodeError as error:
            raise NotJsonError("", f"is not UTF-8 at byte {error.start}") from None
        self.plain = without_escapes(self.source)
        self.verbatim = verbatim
        self.start = self.expect(_blank, 0, "").end()

    def is_array(self) -> bool:
        return self.plain.startswith("[", self.start)

    def whole_object(self) -> Members:
        members, end = self.members(self.start, "")
        self.expect(_end, end, "")
        return members

    def whole_array(self, most: int) -> list[Members]:
        elements: list[Members] = []
        step = self.expect(_array_open, self.start, "")
        while step[1] is None:
            if len(elements) == most:
                raise JsonTextError("", f"has more than {most} elements")
            members, end = self.members(step.end(), pointer(len(elements)))
            elements.append(members)
            step = self.expect(_array_next, end, "")
        self.expect(_end, step.end(), "")
        return elements

    def members(self, at: int, parent: str) -> tuple[Members, int]:
        members: Members = {}
        if _no_object.match(self.plain, at):
            raise JsonTextError(parent, "has to be an object")
        step = self.expect(_object_open, at, parent)
        while step[1] is None:
            key = self.expect(_name, step.end(), parent)
            name = self.name(key, parent, members)
            members[name], end = self.value(name, key.end(), parent + pointer(name))
            step = self.expect(_object_next, end, parent)
        return members, step.end()

    def name(self, key: re.Match[str], parent: str, members: Members) -> str:
        """A new name; how it goes wrong is told of the parent, since a pointer could not hold such a name."""
        if len(members) == _MOST_MEMBERS:
            raise JsonTextError(parent, f"has more than {_MOST_MEMBERS} members")
        if len(key[1]) > _MOST_NAME_CHARACTERS:
            raise JsonTextError(parent, f"has a member name of more than {_MOST_NAME_CHARACTERS} characters")
        name = str(self.strict(*key.span(1), parent))
        if name in members:
            raise JsonTextError(parent + pointer(name), "is there twice")
        return name

    def value(self, name: str, start: int, where: str) -> tuple[object, int]:
        kept = name in self.verbatim
        levels = LEVELS if kept else STRICT_LEVELS
        try:
            end = value_end(self.plain, start, levels)
        except TooDeepError:
            raise JsonTextError(where, f"has more than {levels} levels of nesting") from None
        except BadValueError as error:
            raise self.broken(error.index, where) from None
        return (self.source[start:end] if kept else self.strict(start, end, where)), end

    def strict(self, start: int, end: int, where: str) -> object:
        try:
            return strict_value(self.source[start:end])
        except StrictnessError as error:
            raise JsonTextError(where, str(error)) from None

    def expect(self, pattern: re.Pattern[str], at: int, where: str) -> re.Match[str]:
        if found := pattern.match(self.plain, at):
            return found
        raise self.broken(at, where)

    def broken(self, index: int, where: str) -> NotJsonError:
        line = self.source.count("\n", 0, index) + 1
        column = index - self.source.rfind("\n", 0, index)
        return NotJsonError(where, f"is not JSON at line {line}, column {column}")
