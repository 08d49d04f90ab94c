"""How what the API answered is shown: as JSON, with the text of `data` as it stands, or for people."""

import json as json_of
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from datetime import datetime
from typing import Any

from app.cli import printing
from app.cli.printing import rfc3339, show_table

RAW, SECRET = "raw_data", "secret"


ATTEMPTS = {  # what people are shown of them, and under which head
    "number": "attempt",
    "outcome": "outcome",
    "status_code": "status",
    "started_at": "started",
    "ended_at": "ended",
    "error": "error",
    "location": "location",
}


def show_attempts(attempts: Iterable[Mapping[str, Any]]) -> None:
    """For people: a table, below what they are the attempts of."""
    print()
    show_table([*ATTEMPTS.values()], [[_cell(each[name]) for name in ATTEMPTS] for each in attempts])


def show_thing(thing: Any, *, json: bool, without: Collection[str] = ()) -> None:
    """One thing: all of its members; for people without some."""
    if json:
        print(_text(thing))
        return
    told = {each.name: getattr(thing, each.name) for each in fields(thing) if each.name not in without}
    print(*printing.fields({_name(name): _cell(value) for name, value in _answered(told).items()}), sep="\n")


def show_things(things: Iterable[Any], columns: Sequence[str], *, json: bool, without: Collection[str] = ()) -> None:
    """A list: as JSON with all members but those that a list is `without`, for people with these."""
    if json:
        print("[", ",\n".join(_text(each, without) for each in things), "]", sep="\n")
    else:
        show_table(columns, [[_cell(getattr(each, name)) for name in columns] for each in things])


def _text(thing: Any, without: Collection[str] = ()) -> str:
    members = {name: value for name, value in _answered(asdict(thing)).items() if name not in without}
    data = members.pop(RAW, None)
    text = json_of.dumps(members, indent=2, ensure_ascii=False, default=_plain)
    return text if data is None else f'{text[:-2]},\n  "data": {data}\n}}'


def _answered(members: dict[str, Any]) -> dict[str, Any]:
    """Without an empty secret: that was no member of the answer."""
    return {name: value for name, value in members.items() if name != SECRET or value is not None}


def _plain(value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{type(value).__name__} has no text")
    return rfc3339(value)


def _cell(value: Any) -> Any:
    """What is more than one value as JSON on one line."""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    if isinstance(value, tuple | dict) or is_dataclass(value):
        return json_of.dumps(_members(value), ensure_ascii=False, default=_plain)
    return value


def _members(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_members(each) for each in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _name(field: str) -> str:
    return "data" if field == RAW else field
