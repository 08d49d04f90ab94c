"""The ledger's tables walked by key, from the newest down, one bounded stretch at a time.

What is open is nearly always young, so the newest end is where something can be wrong. Open reservations and events
that wait have an index of their own; deliveries must not have one (decision 3), so they are walked whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, TextClause, text

from app.domain.wakeups import Kind

TOP = 2**63 - 1  # above every key


@dataclass(frozen=True, slots=True)
class Things:
    """What the outbox rows of a kind refer to, as SQL about `t`, a row of the table."""

    table: str
    key: str
    open: str
    due_at: str
    look_at: str
    endpoint: str = "0"
    only_open: str = "true"  # narrows a walk to what has an index
    kept: str = ""  # whose row may stand, where that is more than the open ones
    due_by: str = ""  # where `due_at` is only the least: no row of it may say more


_PARKED_UNTIL = "CASE WHEN t.parked THEN t.age_from + duehook.max_age() END"
# What is parked behind a disabled endpoint waits for it to be enabled.
_NEXT_SLOT = """CASE WHEN t.status = 'disabled' AND t.deleted_at IS NULL THEN timestamptz 'infinity' ELSE (
    SELECT greatest(
               (SELECT duehook.now()), max(closed_until), max(slot_at) + interval '1 s' / least(t.rate_per_second, 1))
      FROM duehook.paces WHERE endpoint = t.seq) END"""
_HELD = "t.status = 'held'"
_WAITING = "t.fanned_out_at IS NULL AND t.cancelled_at IS NULL"
_UNENDED = "t.status IN ('queued', 'running')"
# In the order of locks.
THINGS = {
    Kind.JOB: Things("jobs", "seq", _UNENDED, "t.next_step_at", "t.next_step_at", only_open=_UNENDED),
    Kind.EVENT: Things("events", "seq", _WAITING, "t.due_at", "t.due_at - duehook.horizon()", only_open=_WAITING),
    Kind.DELIVERY: Things(
        "deliveries",
        "id",
        "t.status IN ('scheduled', 'leased')",
        f"coalesce({_PARKED_UNTIL}, t.lease_until, t.next_attempt_at)",
        f"coalesce({_PARKED_UNTIL}, t.lease_until, t.next_attempt_at - duehook.horizon())",
        "t.endpoint",
    ),
    Kind.ENDPOINT: Things(
        "endpoints",
        "seq",
        "EXISTS (SELECT FROM duehook.deliveries d WHERE d.endpoint = t.seq AND d.parked OFFSET 0)",
        "duehook.now()",
        "duehook.now()",
        "t.seq",
        kept="true",  # until the next look finds nothing parked
        due_by=_NEXT_SLOT,
    ),
    Kind.RESERVATION: Things(
        "reservations", "seq", _HELD, "t.expires_at", "t.expires_at - duehook.horizon()", only_open=_HELD
    ),
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """How many rows were walked, who of them is a suspect, and below which key the next stretch begins."""

    number: int
    suspects: Sequence[int]
    below: int | None  # None after the last


def walk(
    name: str, source: str, key: str, verdict: str, *, suspect: str = "verdict", where: str = "true", counts: str = ""
) -> TextClause:
    """The statement that walks the `most` rows of a table `below` a key, the highest first, with a verdict on each.

    They are counted where they are: of the rows only the keys of those that are `suspect` leave the database.
    """
    return text(f"""/* {name} */
        SELECT count(*) AS number, min(key) AS lowest{counts},
               coalesce(array_agg(key) FILTER (WHERE {suspect}), '{{}}') AS suspects
          FROM (SELECT {key} AS key, {verdict} AS verdict FROM {source}
                 WHERE {key} < :below AND {where} ORDER BY {key} DESC LIMIT :most) walked""")


def stretch_of(row: Row[Any], most: int) -> Stretch:
    """What such a statement found; fewer rows than `most` are the last."""
    return Stretch(row.number, row.suspects, row.lowest if row.number == most else None)
