"""Blocks of a documentation page, and SQL run as psql would run it."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.plain import Connection

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"-- (?:as (?P<role>an administrator)|raises (?P<sqlstate>\w{5}): (?P<message>.*))")
_COPY = re.compile(r"^(COPY [^;]* FROM STDIN);\n(.*?)^\\\.$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; its first comments say who runs it and what PostgreSQL answers."""

    language: str
    text: str
    line: int
    by_administrator: bool
    sqlstate: str | None
    message: str


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """Those in these languages, in order."""
    text = page.read_text()
    found = [_block(each[1], each[2], text.count("\n", 0, each.start()) + 1) for each in _FENCED.finditer(text)]
    return [each for each in found if each.language in languages]


def commands_of(block: Block) -> list[list[str]]:
    """The commands of a shell block, as words."""
    return [shlex.split(line) for line in block.text.splitlines()]


def run_sql(connection: Connection, text: str) -> list[tuple[Any, ...]]:
    """Run statements, `COPY` with its rows among them; returns the rows of the last one that has any."""
    rows: list[tuple[Any, ...]] = []
    before, *rest = _COPY.split(text)
    for statements, (copy, lines) in zip(
        [before, *rest[2::3]], [*zip(rest[::3], rest[1::3], strict=True), ("", "")], strict=True
    ):
        rows = _execute(connection, statements) or rows
        if copy:
            with connection.cursor() as cursor, cursor.copy(copy.encode()) as into:
                into.write(lines)
    return rows


def _block(language: str, text: str, line: int) -> Block:
    said: dict[str, str | None] = {"role": None, "sqlstate": None, "message": ""}
    for comment in text.splitlines():
        directive = _DIRECTIVE.fullmatch(comment)
        if directive is None:
            break
        said |= {name: value for name, value in directive.groupdict().items() if value is not None}
    return Block(language, text, line, said["role"] is not None, said["sqlstate"], said["message"] or "")


def _execute(connection: Connection, statements: str) -> list[tuple[Any, ...]]:
    if not statements.strip():
        return []
    with connection.cursor() as cursor:
        cursor.execute(statements.encode())
        rows = cursor.fetchall() if cursor.description else []
        while cursor.nextset():
            rows = cursor.fetchall() if cursor.description else rows
        return rows
