"""What every machine stands on: one real database with a movable clock, emptied before each example."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, TypeVar

import psycopg
from sqlalchemy import Connection

from app.core import reconciliation
from app.ledger import service
from app.ledger.database import connect_engine, in_transaction
from tests.clock import Clock
from tests.invariants import violations

T = TypeVar("T")
Row = tuple[Any, ...]
Rows = dict[str, dict[Any, Row]]

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HORIZON = timedelta(seconds=10)
MAX_AGE = timedelta(hours=1)

# No trigger fires on it. Days of attempts are of the real calendar, and stay empty: the clock here is years ahead.
_EMPTY = """TRUNCATE duehook.reservations, duehook.events, duehook.deliveries, duehook.attempts_rest,
    duehook.dead_letters, duehook.outbox, duehook.endpoints, duehook.secrets, duehook.subscriptions, duehook.paces,
    duehook.seats, duehook.jobs, duehook.repairs"""

# Each by its key; what is not in here is not promised by anybody.
READS: dict[str, LiteralString] = {
    "reservations": "SELECT id, resource, status, version, expires_at, exclusive, updated_at FROM duehook.reservations",
    "events": """SELECT seq, origin, type, key, due_at, created_at, fanned_out_at, cancelled_at,
        head || data::text || '}' FROM duehook.events""",
    "deliveries": """SELECT id, event, endpoint, status, attempt, step, round, abandoned, parked, cancel_requested,
        next_attempt_at, age_from, token, claimed_at, lease_until, reason, delivered_at FROM duehook.deliveries""",
    "attempts": "SELECT (delivery, number)::text, outcome, started_at FROM duehook.attempts_rest",
    "dead letters": "SELECT delivery, endpoint, reason, died_at FROM duehook.dead_letters",
    "outbox": """SELECT ref, kind, endpoint, least(due_at, '9999-01-01Z'), least(look_at, '9999-01-01Z'),
        publications, taken,
        CASE WHEN taken IS NOT NULL THEN taken_until END FROM duehook.outbox""",
    "endpoints": """SELECT seq, status, disabled_reason, revision, flagged, rate_per_second, max_in_flight,
        deleted_at IS NOT NULL FROM duehook.endpoints""",
    "paces": """SELECT endpoint, slot_at, closed_until, closed_at, closed_why, trips, troubles, failures, failing_since
        FROM duehook.paces""",
    "seats": """SELECT s.delivery, s.endpoint, s.token FROM duehook.seats s
        JOIN duehook.deliveries d ON d.id = s.delivery AND d.token = s.token AND d.lease_until > duehook.now()""",
    "secrets": """SELECT endpoint, count(*) FILTER (WHERE expires_at IS NULL),
        count(*) FILTER (WHERE expires_at > duehook.now()) FROM duehook.secrets GROUP BY 1""",
    "jobs": "SELECT seq, status, done, total, result, next_step_at FROM duehook.jobs",
    "repairs": "SELECT kind, number FROM duehook.repairs",
}


class Ground:
    """`reached` counts what the examples have come to, rules and situations; `steps` counts all their steps."""

    def __init__(self, database_url: str) -> None:
        self.engine = connect_engine(database_url, application_name="machines")
        self.sql = psycopg.connect(database_url, autocommit=True)
        self.clock = Clock(self.sql)
        self.reached: Counter[str] = Counter()
        self.steps = 0
        self.swarms = False
        with self.engine.begin() as connection:
            service.update(connection, horizon=HORIZON, max_event_bytes=1 << 20, max_age=MAX_AGE)

    def close(self) -> None:
        self.engine.dispose()
        self.sql.close()

    def empty(self) -> None:
        """Nothing is there, and it is noon."""
        self.sql.execute(_EMPTY)
        self.clock.now = NOON
        self.clock.advance()

    def see(self, *situations: str) -> None:
        """The machine has come to these: a suite in which one of them never happens proves nothing about it."""
        self.reached.update(situations)

    def read(self, tables: Iterable[str]) -> Rows:
        """Every row of these tables, by its key."""
        with self.sql.pipeline():
            cursors = {table: self.sql.execute(READS[table]) for table in tables}
        rows = {table: cursor.fetchall() for table, cursor in cursors.items()}
        by_key = {table: {row[0]: row[1:] for row in some} for table, some in rows.items()}
        assert {table: len(some) for table, some in rows.items()} == {
            table: len(some) for table, some in by_key.items()
        }
        return by_key

    def do(self, work: Callable[[Connection], T]) -> T:
        """In one transaction of the product's own kind."""
        return in_transaction(self.engine, work)

    def refused(self, statement: LiteralString, *parameters: Any) -> str | None:
        """The SQLSTATE with which the database refuses a statement; None when it takes it."""
        try:
            self.sql.execute(statement, parameters)
        except psycopg.Error as error:
            return error.sqlstate
        return None

    def audit(self) -> None:
        """The invariants of the design over the whole database, and the product's own audit, which repairs nothing."""
        assert not reconciliation.audit(self.engine)
        broken = violations(self.sql)
        assert not broken, f"broken invariants: {broken}"


def differences(expected: Rows, found: Rows) -> list[str]:
    """What the database says otherwise than the model, one line a row."""
    return [
        f"{table} {key}: expected {expected[table].get(key)}, found {found[table].get(key)}"
        for table in expected
        for key in sorted(expected[table].keys() | found[table].keys(), key=str)
        if expected[table].get(key) != found[table].get(key)
    ]
