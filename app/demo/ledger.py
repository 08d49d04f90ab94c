"""A receiver's own database: its receipts, the effects it has had, and every request it ever got."""

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.receiver import Event, create_table

# No key on effects: one that happened twice has to show.
_TABLES = """
CREATE TABLE IF NOT EXISTS effects (key text NOT NULL, event text NOT NULL, applied_at real NOT NULL);
CREATE TABLE IF NOT EXISTS requests (event text, attempt integer, answer text NOT NULL, answered_at real NOT NULL);
"""


def open_ledger(path: Path) -> sqlite3.Connection:
    """The receiver's own connection. A killed process loses nothing; a power cut may cost the last moments."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(_TABLES)
    create_table(connection)
    return connection


def apply(connection: sqlite3.Connection, event: Event) -> dict[str, Any]:
    """The business effect: it counts, under the event's business key."""
    at = time.time()
    connection.execute("INSERT INTO effects VALUES (?, ?, ?)", (event.key, event.id, at))
    return {"key": event.key, "applied_at": at}


def log_request(connection: sqlite3.Connection, event: str | None, attempt: int | None, answer: str) -> None:
    """One line for each request, whatever came of it."""
    connection.execute("INSERT INTO requests VALUES (?, ?, ?, ?)", (event, attempt, answer, time.time()))


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a receiver has come: business keys with an effect, and requests by answer."""

    keys: int
    answers: Mapping[str, int]


class Reader:
    """Reads a receiver's ledger from outside, while it is written; from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)

    def counts(self) -> Counts:
        """As they are now."""
        ((keys,),) = self._connection.execute("SELECT count(DISTINCT key) FROM effects")
        answers = self._connection.execute("SELECT answer, count(*) FROM requests GROUP BY answer")
        return Counts(keys, dict(answers.fetchall()))

    def effects(self) -> dict[str, int]:
        """How often each business effect has happened."""
        return dict(self._connection.execute("SELECT key, count(*) FROM effects GROUP BY key").fetchall())

    def requests(self) -> list[tuple[str | None, str]]:
        """Event and answer of every request, in order."""
        return self._connection.execute("SELECT event, answer FROM requests").fetchall()

    def close(self) -> None:
        self._connection.close()
