"""JSON values that the service itself reads: what RFC 8259 leaves to taste, it refuses.

Duplicate names, numbers beyond 64 bits, NUL and lone surrogates mean different things to different parsers, or
can't be stored; only `data`, which nobody here reads, may hold them.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

LEVELS: Final = 16
_MOST_CHARACTERS: Final = 256 * 1024
_MOST: Final = 2**63
_unstorable: Final = re.compile("[\\0\ud800-\udfff]")


class StrictnessError(ValueError):
    """What is wrong with the value, as the end of a sentence about it."""


def strict_value(text: str) -> object:
    """The value of a text that is known to be JSON of at most `LEVELS`. Raises StrictnessError."""
    if len(text) > _MOST_CHARACTERS:
        raise StrictnessError(f"is longer than {_MOST_CHARACTERS} characters")
    value: object = _decoder.decode(text)
    if any(_unstorable.search(string) for string in _strings(value)):
        raise StrictnessError("has a NUL or half a surrogate pair in a string")
    return value


def _unique(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        raise StrictnessError("has two members of the same name")
    return found


def _integer(digits: str) -> int:
    # By length first: `int` is slow on many digits and refuses thousands.
    if len(digits) > 20 or not -_MOST <= (value := int(digits)) < _MOST:
        raise StrictnessError("has a number beyond 2^63")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if not -_MOST <= value < _MOST:
        raise StrictnessError("has a number beyond 2^63")
    return value


def _strings(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case list() as items:
                waiting += items
            case dict() as members:
                waiting += [*members.keys(), *members.values()]


_decoder: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_float=_float)
