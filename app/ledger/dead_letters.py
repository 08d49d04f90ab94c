"""Dead letters: the deliveries that are dead, in the order they died."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from app.ledger.listings import NEWEST, STRETCH


class Place(NamedTuple):
    """Where a dead letter stands among a tenant's."""

    died_at: datetime
    delivery: int


FIRST = Place(datetime(1970, 1, 1, tzinfo=UTC), 0)
LAST = Place(datetime(9999, 1, 1, tzinfo=UTC), NEWEST)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters of a tenant; `since` and `until` are about when they died, both included."""

    reason: str | None = None
    endpoint: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def parameters(self, tenant: str, **more: object) -> dict[str, object]:
        """For a statement."""
        return {"tenant": tenant, "reason": self.reason, "endpoint": self.endpoint, **more}


_MATCHES = """((CAST(:reason AS text) IS NULL OR reason = :reason)
               AND (CAST(:endpoint AS bigint) IS NULL OR endpoint = :endpoint))"""
_WALKED = """walked AS MATERIALIZED (
        SELECT died_at, delivery, reason, endpoint FROM duehook.dead_letters
         WHERE tenant = :tenant AND (died_at, delivery) > (:died_at, :delivery) AND died_at <= :until
         ORDER BY died_at, delivery LIMIT :stretch),
    edge AS (
        SELECT died_at, delivery FROM walked WHERE (SELECT count(*) FROM walked) = :stretch
         ORDER BY died_at DESC, delivery DESC LIMIT 1)"""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Deliveries with their events, the longest dead first, and the place to go on after; None at the end."""

    events: Mapping[int, int]
    after: Place | None


_CHOOSE = text(f"""/* dead_letters.choose */
    WITH {_WALKED},
    chosen AS MATERIALIZED (
        SELECT died_at, delivery FROM walked WHERE {_MATCHES} ORDER BY died_at, delivery LIMIT :most)
    SELECT c.died_at, c.delivery, d.event, false AS is_edge
      FROM chosen c CROSS JOIN LATERAL (SELECT event FROM duehook.deliveries WHERE id = c.delivery OFFSET 0) d
     UNION ALL
    SELECT died_at, delivery, NULL, true FROM edge
     ORDER BY is_edge, died_at, delivery""")


def choose(connection: Connection, tenant: str, wanted: Filter, *, after: Place, until: datetime, most: int) -> Chosen:
    """The next `most` that match, of those that had died by `until`; looks through a bounded stretch for them."""
    parameters = wanted.parameters(tenant, **after._asdict(), until=until, most=most, stretch=STRETCH)
    rows = connection.execute(_CHOOSE, parameters).all()
    places = [Place(row.died_at, row.delivery) for row in rows if not row.is_edge]
    edge = next((Place(row.died_at, row.delivery) for row in rows if row.is_edge), None)
    found = {row.delivery: row.event for row in rows if not row.is_edge}
    return Chosen(found, places[-1] if len(places) == most else edge)


_COUNT = text(f"""/* dead_letters.count */
    WITH {_WALKED}
    SELECT (SELECT count(*) FROM walked WHERE {_MATCHES}) AS number, edge.died_at, edge.delivery
      FROM (SELECT) one LEFT JOIN edge ON true""")


def count(
    connection: Connection, tenant: str, wanted: Filter, *, after: Place, until: datetime, most: int
) -> tuple[int, Place | None]:
    """How many of the next `most` match, of those that had died by `until`, and the place to go on; None at the end."""
    parameters = wanted.parameters(tenant, **after._asdict(), until=until, stretch=most)
    row = connection.execute(_COUNT, parameters).one()
    return row.number, None if row.died_at is None else Place(row.died_at, row.delivery)


_STILL_DEAD = text("""/* dead_letters.still_dead */
    SELECT delivery FROM duehook.dead_letters WHERE delivery = ANY (CAST(:ids AS bigint[])) AND died_at <= :until""")


def still_dead(connection: Connection, ids: Sequence[int], until: datetime) -> set[int]:
    """Those of `ids` that are dead and had died by `until`. Their events are locked by now: nobody re-opens them."""
    return set(connection.execute(_STILL_DEAD, {"ids": list(ids), "until": until}).scalars())


_DIED = text("""/* dead_letters.died */
    SELECT delivery, died_at FROM duehook.dead_letters WHERE delivery = ANY (CAST(:ids AS bigint[]))""")


def died(connection: Connection, ids: Sequence[int]) -> dict[int, datetime]:
    """When each of these died; what is not dead is missing."""
    return {row.delivery: row.died_at for row in connection.execute(_DIED, {"ids": list(ids)})}


# As `listings`: a bounded stretch of the newest, read off the index, and the filter applied to it.
_NEWEST = text(f"""/* dead_letters.newest */
    WITH scanned AS MATERIALIZED (
        SELECT died_at, delivery, reason, endpoint FROM duehook.dead_letters
         WHERE tenant = :tenant AND (died_at, delivery) < (:died_at, :delivery)
         ORDER BY died_at DESC, delivery DESC LIMIT :stretch),
    page AS (
        SELECT died_at, delivery FROM scanned WHERE {_MATCHES} ORDER BY died_at DESC, delivery DESC LIMIT :most),
    edge AS (
        SELECT died_at, delivery FROM scanned WHERE (SELECT count(*) FROM scanned) = :stretch
         ORDER BY died_at, delivery LIMIT 1)
    SELECT died_at, delivery, false AS is_edge FROM page
     UNION ALL
    SELECT died_at, delivery, true FROM edge
     ORDER BY is_edge, died_at DESC, delivery DESC""")


def newest(
    connection: Connection, tenant: str, wanted: Filter, *, limit: int, below: Place = LAST
) -> tuple[list[Place], Place | None]:
    """A page, the last to die first, and the place to go on below; a filtered one may be short, or empty, before it."""
    stretch: Any = max(STRETCH, limit + 1) if wanted != Filter() else limit + 1
    parameters = wanted.parameters(tenant, **below._asdict(), stretch=stretch, most=limit + 1)
    rows = connection.execute(_NEWEST, parameters).all()
    places = [Place(row.died_at, row.delivery) for row in rows if not row.is_edge]
    edge = next((Place(row.died_at, row.delivery) for row in rows if row.is_edge), None)
    return places[:limit], places[limit - 1] if len(places) > limit else edge
