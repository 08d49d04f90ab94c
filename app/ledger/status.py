"""How the service stands: each statement reads a bounded number of rows, however many the ledger has."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, text

from app.domain.wakeups import Kind
from app.ledger.outbox import LONGEST_PUBLISH_LEASE

MOST = 100_000  # rows that one statement looks at


_IN_ORDER = text("/* status.in_order */ SET LOCAL enable_bitmapscan = off")


def read_in_order(connection: Connection) -> None:
    """For the rest of this transaction indexes are read in their order, so that a limit bounds what is read.

    A plan by bitmap, which old statistics may suggest, reads all that is due before it takes the first.
    """
    connection.execute(_IN_ORDER)


@dataclass(frozen=True, slots=True)
class Due:
    """What of one kind is due and not done: how many and for how long; both at least that when `more`."""

    kind: Kind
    number: int
    oldest_age: timedelta | None
    more: bool


# A row that is due has its next look at most the longest publish lease from now: the scan of the index ends there.
_DUE = text("""/* status.due */
    SELECT k.kind, count(*) FILTER (WHERE o.due_at <= clock.at) AS number, count(o.ref) = :most AS more,
           clock.at - min(o.due_at) FILTER (WHERE o.due_at <= clock.at) AS oldest_age
      FROM (SELECT duehook.now() AS at OFFSET 0) clock
     CROSS JOIN unnest(CAST(:kinds AS text[])) AS k(kind)
      LEFT JOIN LATERAL (
        SELECT ref, due_at FROM duehook.outbox
         WHERE kind = k.kind AND look_at <= (SELECT duehook.now()) + :ahead ORDER BY look_at LIMIT :most) o ON true
     GROUP BY k.kind, clock.at""")


def due(connection: Connection, kinds: Sequence[Kind]) -> list[Due]:
    """What is due of each kind, by the outbox; a claim in progress is due at the end of its lease."""
    parameters = {"kinds": list(kinds), "ahead": LONGEST_PUBLISH_LEASE, "most": MOST}
    rows = connection.execute(_DUE, parameters).all()
    return [Due(Kind(row.kind), row.number, row.oldest_age, row.more) for row in rows]


_OLDEST_LOOK = text("""/* status.oldest_look */
    SELECT clock.at - min(o.look_at) FROM (SELECT duehook.now() AS at OFFSET 0) clock
     CROSS JOIN unnest(CAST(:kinds AS text[])) AS k(kind)
     CROSS JOIN LATERAL (
        SELECT look_at FROM duehook.outbox
         WHERE kind = k.kind AND look_at <= (SELECT duehook.now()) ORDER BY look_at LIMIT 1) o
     GROUP BY clock.at""")


def oldest_look(connection: Connection) -> timedelta | None:
    """For how long a row of the outbox has waited for somebody to notice it; None when none waits."""
    return connection.execute(_OLDEST_LOOK, {"kinds": list(Kind)}).scalar_one_or_none()


@dataclass(frozen=True, slots=True)
class Count:
    """A number, or the least that it is when `more`."""

    number: int
    more: bool


# The row of a claim in progress comes up at the end of its lease.
_IN_FLIGHT = text("""/* status.in_flight */
    SELECT count(d.id) AS number, count(*) = :most AS more
      FROM (SELECT ref FROM duehook.outbox
             WHERE kind = 'delivery' AND look_at > (SELECT duehook.now()) AND look_at <= (SELECT duehook.now()) + :lease
             ORDER BY look_at LIMIT :most) o
      LEFT JOIN LATERAL (SELECT id FROM duehook.deliveries WHERE id = o.ref AND status = 'leased') d ON true""")


def in_flight(connection: Connection, lease: timedelta) -> Count:
    """Deliveries that somebody is sending: their lease, at most `lease` long, runs."""
    row = connection.execute(_IN_FLIGHT, {"lease": lease, "most": MOST}).one()
    return Count(row.number, row.more)


_PARKED = text("""/* status.parked */
    SELECT count(*) AS number, count(*) = :most AS more
      FROM (SELECT FROM duehook.deliveries WHERE parked ORDER BY endpoint, id LIMIT :most) AS few""")


def parked(connection: Connection) -> Count:
    """Deliveries that wait for a slot of their endpoint: not overdue, however long they do."""
    row = connection.execute(_PARKED, {"most": MOST}).one()
    return Count(row.number, row.more)


_DEAD = text("""/* status.dead */
    SELECT count(*) AS number,
           (SELECT reltuples::bigint FROM pg_class WHERE oid = 'duehook.dead_letters'::regclass) AS estimate
      FROM (SELECT FROM duehook.dead_letters LIMIT :most) AS few""")


def dead(connection: Connection) -> Count:
    """Dead letters: counted while they are few, beyond that PostgreSQL's own estimate."""
    row = connection.execute(_DEAD, {"most": MOST}).one()
    if row.number < MOST:
        return Count(row.number, more=False)
    return Count(max(row.number, row.estimate), more=True)


@dataclass(frozen=True, slots=True)
class Headroom:
    """Connections of the whole server: in use, and the most that programs may open."""

    used: int
    most: int


_HEADROOM = text("""/* status.headroom */
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
           current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
               - coalesce(current_setting('reserved_connections', true)::integer, 0) AS most""")


def headroom(connection: Connection) -> Headroom:
    """How near the database is to refusing connections."""
    row = connection.execute(_HEADROOM).one()
    return Headroom(row.used, row.most)
