"""Receipts: an event's effect and the proof that it happened, in one transaction of the receiver's own database."""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from app.receiver.transactions import begin
from app.receiver.verification import TOLERANCE, Event, verify

if TYPE_CHECKING:
    from app.receiver.transactions import Connection

    C = TypeVar("C", bound=Connection)

TABLE = "duehook_receipts"
KEPT = timedelta(days=30)

_PRUNED_AT_ONCE = 1_000
_NAME = re.compile(r"([A-Za-z_]\w*\.)?[A-Za-z_]\w*", re.ASCII)
_CREATE = (
    "CREATE TABLE IF NOT EXISTS {table} ("
    "webhook_id text NOT NULL PRIMARY KEY, received_at double precision NOT NULL, outcome text)",
    "CREATE INDEX IF NOT EXISTS {name}_age ON {table} (received_at)",
)
_RESERVE = """/* receipts.reserve */
    INSERT INTO {table} (webhook_id, received_at) VALUES (:id, :at) ON CONFLICT DO NOTHING RETURNING webhook_id"""
_FIRST = "/* receipts.first */ SELECT outcome FROM {table} WHERE webhook_id = :id"
_KEEP = "/* receipts.keep */ UPDATE {table} SET outcome = :outcome WHERE webhook_id = :id"
_PRUNE = """/* receipts.prune */
    DELETE FROM {table} WHERE webhook_id IN (
        SELECT webhook_id FROM {table} WHERE received_at < :before ORDER BY received_at LIMIT :most)
    RETURNING webhook_id"""


@dataclass(frozen=True, slots=True)
class Receipt:
    """`outcome` is what the effect returned when it was applied: just now or, for a duplicate, the first time."""

    event: Event
    outcome: Any
    duplicate: bool


def receive(
    connection: "C",
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Iterable[str],
    apply: "Callable[[C, Event], Any]",
    *,
    table: str = TABLE,
    tolerance: timedelta = TOLERANCE,
) -> Receipt:
    """Verify a request and call `apply(connection, event)`, unless the event was applied before.

    Receipt and effect are one transaction, which ends here: committed when this returns, rolled back when it raises,
    together with whatever was open on the connection. `apply` does all that it does through the connection, never
    commits, and returns what is worth remembering (JSON). Of two requests at once the second waits for the first; if
    that fails, the second applies. Receivers that share a database have a table each.

    Raises `UnverifiedError` before anything is touched. Whatever else it raises, `apply`'s errors and the database's,
    has left neither effect nor receipt: answer 5xx, and the event comes again.
    """
    event = verify(headers, body, secrets, tolerance=tolerance)
    reserve, first, keep = (_sql(statement, table) for statement in (_RESERVE, _FIRST, _KEEP))
    with begin(connection) as run:
        if not run(reserve, {"id": event.id, "at": time.time()}):
            return Receipt(event, _outcome(run(first, {"id": event.id})), duplicate=True)
        outcome = json.dumps(apply(connection, event))
        run(keep, {"id": event.id, "outcome": outcome})
    return Receipt(event, json.loads(outcome), duplicate=False)


def _outcome(found: list[tuple[Any, ...]]) -> Any:
    if not found:
        raise LookupError("the receipt was pruned at this very moment: let the event come again")
    return json.loads(found[0][0] or "null")


def ddl(table: str = TABLE) -> list[str]:
    """The statements that make a table of receipts; running them twice changes nothing."""
    return [_sql(statement, table) for statement in _CREATE]


def create_table(connection: "Connection", table: str = TABLE) -> None:
    """Make a table of receipts and commit; a repeat changes nothing.

    Of two processes at once PostgreSQL may refuse one with a unique violation: it finds the table when it repeats.
    """
    with begin(connection) as run:
        for statement in ddl(table):
            run(statement, {})


def prune(connection: "Connection", older_than: timedelta = KEPT, *, table: str = TABLE) -> int:
    """Delete receipts by age, in small transactions; returns how many.

    An event that comes again when its receipt is gone is applied again: keep receipts for DUEHOOK_MAX_AGE_SECONDS and
    for as far back as you ever redrive or replay.
    """
    statement, before = _sql(_PRUNE, table), time.time() - older_than.total_seconds()
    pruned = 0
    while some := _prune(connection, statement, before):
        pruned += some
    return pruned


def _prune(connection: "Connection", statement: str, before: float) -> int:
    with begin(connection) as run:
        return len(run(statement, {"before": before, "most": _PRUNED_AT_ONCE}))


def _sql(statement: str, table: str) -> str:
    if not _NAME.fullmatch(table):
        raise ValueError(f"{table!r} is not the name of a table")
    return statement.format(table=table, name=table.rpartition(".")[2])
