"""What the evaluation reads of the ledger: only its own tenant's rows, by index, so that it costs others nothing."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from app.demo.verdict import read_reservations

# As `duehook status` counts, for one tenant. What is parked falls due at its age limit, and so is not overdue.
_LAG = """/* eval.lag */
    SELECT extract(epoch FROM clock.at)::float8 AS at,
           count(o.ref)::int AS open,
           greatest(extract(epoch FROM clock.at - min(o.due_at) FILTER (WHERE o.kind = 'reservation')), 0)::float8
               AS reservation,
           greatest(extract(epoch FROM clock.at - min(o.due_at) FILTER (WHERE o.kind IN ('event', 'delivery'))), 0)
               ::float8 AS delivery
      FROM (SELECT duehook.now() AS at OFFSET 0) clock
      LEFT JOIN duehook.outbox o
        ON o.kind = ANY (ARRAY['reservation', 'event', 'delivery', 'endpoint', 'job']) AND o.tenant = %(tenant)s
     GROUP BY clock.at"""
_OPEN = """/* eval.open */
    SELECT count(*)::int AS open FROM duehook.outbox
     WHERE kind = ANY (ARRAY['reservation', 'event', 'delivery', 'endpoint', 'job']) AND tenant = %s"""
_DELIVERIES = """/* eval.deliveries */
    SELECT d.id, d.endpoint, d.status, d.attempt, d.reason, e.id AS event, e.key, e.type,
           coalesce(o.publications, 0)::int AS publications,
           (o.taken IS NOT NULL AND o.taken_until > duehook.now()) IS TRUE AS taken,
           extract(epoch FROM d.delivered_at)::float8 AS delivered_at,
           extract(epoch FROM d.updated_at)::float8 AS updated_at,
           extract(epoch FROM d.delivered_at - greatest(e.created_at, e.due_at))::float8 AS seconds
      FROM duehook.deliveries d
      JOIN duehook.events e ON e.seq = d.event
      LEFT JOIN duehook.outbox o ON o.ref = d.id AND o.kind = 'delivery'
     WHERE d.endpoint = ANY (%s)"""
_OUTCOMES = """/* eval.outcomes */
    SELECT d.endpoint, a.outcome, count(*)::int AS number
      FROM duehook.deliveries d JOIN duehook.attempts a ON a.delivery = d.id
     WHERE d.endpoint = ANY (%s) GROUP BY d.endpoint, a.outcome"""


@dataclass(frozen=True, slots=True)
class Lag:
    """At one moment of the database's clock: the ages in seconds of what is due longest, and how much is open."""

    at: float
    reservation: float
    delivery: float
    open: int


class Ledger:
    """One connection, for one thread. Each look is a statement of its own."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]], tenant: str) -> None:
        self._connection = connection
        self._tenant = tenant

    def now(self) -> float:
        """The database's clock, seconds since 1970."""
        return float(self._rows("SELECT extract(epoch FROM duehook.now())::float8 AS at")[0]["at"])

    def lag(self) -> Lag:
        """How late both clocks are for this tenant."""
        (row,) = self._rows(_LAG, {"tenant": self._tenant})
        return Lag(row["at"], row["reservation"], row["delivery"], row["open"])

    def open(self) -> int:
        """How much of this tenant is not finished."""
        return int(self._rows(_OPEN, [self._tenant])[0]["open"])

    def scan_share(self) -> int:
        """The per cent of all work that the scan notices."""
        return int(self._rows("SELECT scan_share FROM duehook.service")[0]["scan_share"])

    def deliveries(self, endpoints: Collection[int]) -> Sequence[Mapping[str, Any]]:
        """All of these endpoints."""
        return self._rows(_DELIVERIES, [list(endpoints)])

    def outcomes(self, endpoints: Collection[int]) -> Sequence[Mapping[str, Any]]:
        """How many attempts of each endpoint ended how."""
        return self._rows(_OUTCOMES, [list(endpoints)])

    def reservations(self) -> Sequence[Mapping[str, Any]]:
        """All of this tenant."""
        return read_reservations(self._connection, self._tenant)

    def _rows(self, statement: str, parameters: Any = None) -> list[dict[str, Any]]:
        return self._connection.execute(statement.encode(), parameters).fetchall()


@contextmanager
def ledger_of(database_url: str, tenant: str) -> Iterator[Ledger]:
    """Over a connection of its own, in autocommit."""
    url = database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(url, autocommit=True, row_factory=dict_row, application_name="duehook eval") as connection:
        yield Ledger(connection, tenant)
