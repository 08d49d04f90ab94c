"""Parked deliveries: woken by the one row of the outbox that their endpoint has for as long as it has some.

That row is what parking and this compete for. Whoever parks holds it until he commits; whoever looks here locks it
first and reads in a statement of its own: so a row is deleted only when nothing is parked, and nothing is parked
without one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest

from sqlalchemy import Connection, text

from app.domain.pacing import Pace
from app.ledger.paces import KNOWN, pace_of

_LOCK = text("""/* parking.lock */
    SELECT ref FROM duehook.outbox
     WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'endpoint' ORDER BY ref FOR UPDATE SKIP LOCKED""")
_EXISTING = text("""/* parking.existing */
    SELECT ref FROM duehook.outbox WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'endpoint'""")


def lock(connection: Connection, endpoints: Sequence[int]) -> tuple[set[int], set[int]]:
    """The endpoints whose row is ours now, and those whose row somebody else holds; the others have none."""
    ours = set(connection.execute(_LOCK, {"endpoints": list(endpoints)}).scalars())
    rest = [each for each in endpoints if each not in ours]
    return ours, set(connection.execute(_EXISTING, {"endpoints": rest}).scalars()) if rest else set()


# OFFSET 0 has the oldest read once and not in both places.
_READ = text(f"""/* parking.read */
    SELECT q.*, CASE WHEN cardinality(q.oldest) > q.most THEN ARRAY(
               SELECT d.id FROM duehook.deliveries d
                WHERE d.endpoint = q.endpoint AND d.parked ORDER BY d.id DESC LIMIT q.most / 2) END AS newest
      FROM (SELECT k.endpoint, k.most, coalesce(e.status = 'enabled', false) AS enabled,
                   e.seq IS NULL OR e.deleted_at IS NOT NULL AS deleted,
                   e.rate_per_second, e.max_in_flight, 0 AS in_flight, duehook.now() AS at, {KNOWN},
                   ARRAY(SELECT d.id FROM duehook.deliveries d
                          WHERE d.endpoint = k.endpoint AND d.parked ORDER BY d.id LIMIT k.most + 1) AS oldest
              FROM unnest(CAST(:endpoints AS bigint[]), CAST(:mosts AS integer[])) AS k(endpoint, most)
              LEFT JOIN duehook.endpoints e ON e.seq = k.endpoint
              LEFT JOIN duehook.paces p ON p.endpoint = k.endpoint OFFSET 0) AS q""")


@dataclass(frozen=True, slots=True)
class Queue:
    """What is parked for one endpoint, in the order in which it should be sent; more than was asked for if there is."""

    endpoint: int
    pace: Pace
    enabled: bool
    deleted: bool
    ids: Sequence[int]


def read(connection: Connection, mosts: Mapping[int, int]) -> list[Queue]:
    """Of what is parked for each endpoint whose row is locked the oldest `mosts[endpoint]`.

    When there is more, every other one is one of the newest instead: an old backlog may not keep back what is fresh.
    """
    rows = connection.execute(_READ, {"endpoints": list(mosts), "mosts": list(mosts.values())})
    return [
        Queue(row.endpoint, pace_of(row), row.enabled, row.deleted, _in_turn(row.oldest, row.newest)) for row in rows
    ]


def _in_turn(oldest: Sequence[int], newest: Sequence[int] | None) -> list[int]:
    """One of each in turn, and each once."""
    pairs = zip_longest(oldest, newest or ())
    return list(dict.fromkeys(each for pair in pairs for each in pair if each is not None))


_LOOK_AT = text("""/* parking.look_at */
    WITH mine AS MATERIALIZED (
        SELECT ref FROM duehook.outbox
         WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'endpoint' ORDER BY ref FOR UPDATE)
    UPDATE duehook.outbox o SET look_at = t.at, due_at = t.at, publications = 0, taken = NULL
      FROM unnest(CAST(:endpoints AS bigint[]), CAST(:ats AS timestamptz[])) AS t(endpoint, at)
     WHERE o.ref = ANY (ARRAY(SELECT ref FROM mine)) AND o.ref = t.endpoint""")
_NEVER = text("""/* parking.look_never */
    UPDATE duehook.outbox SET look_at = 'infinity', due_at = 'infinity', publications = 0, taken = NULL
     WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'endpoint'""")
_END = text("""/* parking.end */
    DELETE FROM duehook.outbox WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'endpoint'""")


def look_at(connection: Connection, looks: Mapping[int, datetime]) -> None:
    """When somebody must look at each endpoint next, as far as it has something parked."""
    if looks:
        connection.execute(_LOOK_AT, {"endpoints": list(looks), "ats": list(looks.values())})


def look_never(connection: Connection, endpoints: Collection[int]) -> None:
    """Not before somebody sets another time: they are disabled."""
    if endpoints:
        connection.execute(_NEVER, {"endpoints": list(endpoints)})


def end(connection: Connection, endpoints: Collection[int]) -> None:
    """Delete the locked rows of endpoints that a newer statement found nothing parked for."""
    if endpoints:
        connection.execute(_END, {"endpoints": list(endpoints)})
