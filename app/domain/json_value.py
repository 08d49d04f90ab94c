r"""Where a JSON value ends, and whether it is one (RFC 8259), without building it.

`json.loads` is no judge of that: it takes NaN, recurses, refuses or converts long numbers, makes 650 MB out of
16 MiB of brackets, and lets no other thread run meanwhile. Here a regular expression takes runs of tokens, each of
which looks at the next character, so that what may follow what is settled there. What is left is whether brackets
pair up and commas are of their kind: a loop over one character per bracket and comma.
16 MiB cost 0.7 s of CPU as ordinary JSON, 4 s at worst (a bracket per byte), and a few MB of memory.

Groups are repeated as `(?>…{1,n})`: a plain repeat keeps a frame per round, and a possessive one loses its place
before Python 3.11.5 (gh-100061).
"""

import re
from itertools import chain, islice, repeat
from typing import Final

LEVELS: Final = 500

WS: Final = r"[ \t\n\r]*+"
STRING: Final = r'"[^"\\\x00-\x1f]*+"'  # in a text `without_escapes`
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++|)(?:[eE][-+]?[0-9]++|)"
_SCALAR: Final = rf"(?:{STRING}|{_NUMBER}|true|false|null)"
_KEY: Final = rf"{STRING}{WS}:{WS}(?![,\]}}])"
_OPEN: Final = rf"(?:\[{WS}(?!,)|\{{{WS}(?:{_KEY}|(?=\}})))"
_END: Final = r"(?=[,\]}])"
_TOKEN: Final = rf"(?:(?:,{WS}(?:{_KEY}|)|)(?:{_SCALAR}{WS}{_END}|{_OPEN})|[\]}}]{WS}{_END})"

_scalar: Final = re.compile(rf"({_SCALAR}){WS}{_END}")
_opening: Final = re.compile(_OPEN)
_lead: Final = re.compile(f",{WS}")
# Growing, so that a short value does not pay for reading far past its end.
_runs: Final = [re.compile(f"(?>{_TOKEN}{{1,{most}}})") for most in (32, 128, 512)]
_string: Final = re.compile(STRING)
_mark: Final = re.compile(rf"{STRING}|([][{{}},])")
_UNMARKED: Final = b" \t\n\r+-.0123456789eEtrufalsn"


class BadValueError(ValueError):
    """The text stops being JSON at this index."""

    def __init__(self, index: int) -> None:
        super().__init__(f"not JSON at index {index}")
        self.index = index


class TooDeepError(BadValueError):
    """The bracket at this index opens one level too many."""


def without_escapes(text: str) -> str:
    r"""The text with every valid escape overwritten by as many `_`, so that a string ends at the next quote.

    Outside strings `_` is as wrong as a backslash; a backslash left over starts no valid escape.
    """
    if "\\" not in text:
        return text
    for escape in ("\\\\", '\\"', "\\/", "\\b", "\\f", "\\n", "\\r", "\\t"):
        text = text.replace(escape, "__")
    return re.sub(r"\\u[0-9a-fA-F]{4}", "______", text)


def value_end(text: str, start: int, levels: int = LEVELS) -> int:
    """The index behind the value that starts at `start`, inside an object or array of a text `without_escapes`.

    Raises BadValueError, of which TooDeepError for more than `levels`. A comma or closing bracket must come next;
    whether it is the right one is left to the caller, like all that follows.
    """
    if scalar := _scalar.match(text, start):
        return scalar.end(1)
    if not _opening.match(text, start):
        raise BadValueError(start)
    return _container_end(text, start, levels)


def _container_end(text: str, at: int, levels: int) -> int:
    owed: list[str] = []
    sizes = chain(_runs, repeat(_runs[-1]))
    while run := next(sizes).match(text, at):
        marks = _marks(run[0])
        stop = _walk(marks, owed, levels)
        if stop < len(marks):
            index = _index(text, at, stop)
            if not owed:
                return index + 1
            raise (TooDeepError if len(owed) > levels else BadValueError)(index)
        at = run.end()
    lead = _lead.match(text, at)
    raise BadValueError(lead.end() if lead else at)


def _marks(run: str) -> str:
    """Its brackets and commas: `,` where a value follows, `;` where a member does."""
    bare = _string.sub("", run).encode("ascii").translate(None, _UNMARKED)
    return bare.replace(b"{:", b"{").replace(b",:", b";").decode("ascii")


def _walk(marks: str, owed: list[str], levels: int) -> int:
    """How many marks fit the brackets owed, before one that is wrong, a level too many, or closes the last."""
    for count, mark in enumerate(marks):
        if mark == "[" or mark == "{":
            owed.append("]" if mark == "[" else "}")
            if len(owed) > levels:
                return count
        elif mark == ",":
            if owed[-1] != "]":
                return count
        elif mark == ";":
            if owed[-1] != "}":
                return count
        elif owed[-1] != mark:
            return count
        else:
            owed.pop()
            if not owed:
                return count
    return len(marks)


def _index(text: str, at: int, mark: int) -> int:
    marks = (found.start() for found in _mark.finditer(text, at) if found[1])
    return next(islice(marks, mark, None))
