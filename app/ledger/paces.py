"""The pace of endpoints that have a limit, a hint or trouble; read, decided and written behind the lock of its row.

Locked before deliveries, never after. What somebody holds is passed over: an endpoint's pace is locked for moments,
and who waited for a frozen process would hold up every other endpoint of the same claim.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from app.domain.pacing import Closed, Pace

KNOWN = """slot_at, closed_until, closed_at, closed_why, failing_since, coalesce(trips, 0) AS trips,
    coalesce(troubles, 0) AS troubles, coalesce(failures, 0) AS failures"""
_LOCK = text("""/* paces.lock */
    SELECT endpoint FROM duehook.paces
     WHERE endpoint = ANY (CAST(:endpoints AS bigint[])) ORDER BY endpoint FOR UPDATE SKIP LOCKED""")
# A seat counts while its delivery is leased by its token; the others are dead and go.
_LIVE = """EXISTS (
    SELECT FROM duehook.deliveries d
     WHERE d.id = s.delivery AND d.token = s.token AND d.lease_until > (SELECT duehook.now()) OFFSET 0)"""
_READ = text(f"""/* paces.read */
    WITH left_over AS (
        DELETE FROM duehook.seats s WHERE s.endpoint = ANY (CAST(:endpoints AS bigint[])) AND NOT {_LIVE})
    SELECT p.endpoint, e.revision, e.status, e.rate_per_second, e.max_in_flight, duehook.now() AS at,
           (SELECT count(*) FROM duehook.seats s
             WHERE e.max_in_flight IS NOT NULL AND s.endpoint = p.endpoint AND {_LIVE}) AS in_flight,
           {KNOWN}
      FROM duehook.paces p JOIN duehook.endpoints e ON e.seq = p.endpoint
     WHERE p.endpoint = ANY (CAST(:endpoints AS bigint[]))""")


@dataclass(frozen=True, slots=True)
class Locked:
    """An endpoint whose pace is ours until the transaction ends, and how it stands now."""

    pace: Pace
    revision: int
    enabled: bool


def lock(connection: Connection, endpoints: Collection[int]) -> dict[int, Locked]:
    """Lock the paces of these endpoints; what somebody holds is missing.

    Read in a statement of its own, whose snapshot is newer than the lock.
    """
    got = list(connection.execute(_LOCK, {"endpoints": list(endpoints)}).scalars())
    rows = connection.execute(_READ, {"endpoints": got})
    return {row.endpoint: Locked(pace_of(row), row.revision, row.status == "enabled") for row in rows}


def pace_of(row: Row[Any]) -> Pace:
    """The pace that a row says."""
    known: dict[str, Any] = {each.name: row._mapping[each.name] for each in fields(Pace)}
    return Pace(**known | {"closed_why": row.closed_why and Closed(row.closed_why)})


_SAVE = text("""/* paces.save */
    UPDATE duehook.paces p
       SET slot_at = t.slot_at, closed_until = t.closed_until, closed_at = t.closed_at, closed_why = t.closed_why,
           trips = t.trips, troubles = t.troubles, failures = t.failures, failing_since = t.failing_since
      FROM unnest(CAST(:endpoints AS bigint[]), CAST(:slot_at AS timestamptz[]), CAST(:closed_until AS timestamptz[]),
                  CAST(:closed_at AS timestamptz[]), CAST(:closed_why AS text[]), CAST(:trips AS smallint[]),
                  CAST(:troubles AS integer[]), CAST(:failures AS integer[]), CAST(:failing_since AS timestamptz[]))
           AS t(endpoint, slot_at, closed_until, closed_at, closed_why, trips, troubles, failures, failing_since)
     WHERE p.endpoint = ANY (CAST(:endpoints AS bigint[])) AND p.endpoint = t.endpoint""")
_SAVED = ("slot_at", "closed_until", "closed_at", "closed_why", "trips", "troubles", "failures", "failing_since")


def save(connection: Connection, paces: Mapping[int, Pace]) -> None:
    """Write the paces of endpoints that `lock` returned."""
    if paces:
        columns = {name: [getattr(pace, name) for pace in paces.values()] for name in _SAVED}
        connection.execute(_SAVE, {"endpoints": list(paces), **columns})


_SEAT = text("""/* paces.seat */
    INSERT INTO duehook.seats (delivery, endpoint, token)
    SELECT * FROM unnest(CAST(:deliveries AS bigint[]), CAST(:endpoints AS bigint[]), CAST(:tokens AS uuid[]))
    ON CONFLICT (delivery) DO UPDATE SET token = excluded.token""")


def seat(connection: Connection, deliveries: Sequence[int], endpoints: Sequence[int], tokens: Sequence[UUID]) -> None:
    """Count these claims as in flight to their endpoints, whose paces are locked."""
    if deliveries:
        parameters = {"deliveries": list(deliveries), "endpoints": list(endpoints), "tokens": list(tokens)}
        connection.execute(_SEAT, parameters)


_SEAT_ALL = text("""/* paces.seat_all */
    INSERT INTO duehook.seats (delivery, endpoint, token)
    SELECT id, :endpoint, token FROM (
        SELECT id, token FROM duehook.deliveries WHERE endpoint = :endpoint ORDER BY id DESC LIMIT :most) newest
     WHERE token IS NOT NULL
    ON CONFLICT (delivery) DO UPDATE SET token = excluded.token""")


def seat_all(connection: Connection, endpoint: int, *, most: int) -> None:
    """Count what is in flight to an endpoint that had no limit, among its newest `most` deliveries."""
    connection.execute(_SEAT_ALL, {"endpoint": endpoint, "most": most})


_RESET = text("""/* paces.reset */
    UPDATE duehook.paces
       SET closed_until = CASE WHEN :keep_hint AND closed_why = 'retry_after' THEN closed_until END,
           closed_at = CASE WHEN :keep_hint AND closed_why = 'retry_after' THEN closed_at END,
           closed_why = CASE WHEN :keep_hint AND closed_why = 'retry_after' THEN closed_why END,
           trips = 0, troubles = 0, failures = 0, failing_since = NULL
     WHERE endpoint = :endpoint""")


def reset(connection: Connection, endpoint: int, *, keep_hint: bool = False) -> None:
    """Forget every failure of an endpoint whose row is locked, and what its receiver asked for unless `keep_hint`.

    Waits for who is writing an outcome's news just now; the next finds the new revision, and its news old.
    """
    connection.execute(_RESET, {"endpoint": endpoint, "keep_hint": keep_hint})


@dataclass(frozen=True, slots=True)
class Shown:
    """Until when an endpoint is sent nothing, and why; None while nothing holds it up."""

    until: datetime
    why: str


_SHOWN = text(f"""/* paces.shown */
    SELECT p.endpoint, e.rate_per_second, e.max_in_flight, duehook.now() AS at, 0 AS in_flight, {KNOWN}
      FROM duehook.paces p JOIN duehook.endpoints e ON e.seq = p.endpoint
     WHERE p.endpoint = ANY (CAST(:endpoints AS bigint[]))""")


def shown(connection: Connection, endpoints: Sequence[int]) -> dict[int, Shown]:
    """What holds these endpoints up just now, for their owners to see."""
    paces = {row.endpoint: pace_of(row) for row in connection.execute(_SHOWN, {"endpoints": list(endpoints)})}
    return {
        seq: Shown(pace.next_slot, pace.closed_why or "rate_per_second")
        for seq, pace in paces.items()
        if pace.next_slot > pace.at
    }
