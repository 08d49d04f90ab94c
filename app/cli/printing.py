"""What commands print: for people at a terminal, for programs behind a pipe, as JSON."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

FAILED, WRONG_USE = 1, 2


def fail(sentence: str, code: int = FAILED) -> NoReturn:
    """Say on standard error what is wrong, and end with `code`."""
    print(f"duehook: {sentence}", file=sys.stderr)
    raise typer.Exit(code)


def wrong_use(sentence: str) -> NoReturn:
    """The command was given something that it can't take."""
    fail(sentence, WRONG_USE)


def show_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def fields(values: Mapping[str, object]) -> list[str]:
    """One `name  value` line each; never cut, for a key or a URL must be copied whole."""
    width = max(map(len, values))
    return [f"{name:<{width}}  {_text(value)}" for name, value in values.items()]


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table at a terminal, folded where it is narrow; tab-separated lines behind a pipe."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            print("\t".join(map(_text, row)))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(cell)) for cell in row))  # Text: what looks like markup stays as it is
    Console().print(table)


def rfc3339(at: datetime) -> str:
    """As the API writes times."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)
