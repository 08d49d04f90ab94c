"""Replays: the events of a window that an endpoint wants now, and what became of each at that endpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from app.domain.states import DeliveryStatus
from app.ledger.listings import NEWEST, STRETCH

SLACK = timedelta(minutes=1)  # by which the order of seqs and that of created_at may differ
_FIRST = text("/* replays.first */ SELECT duehook.first_event_since(:tenant, :at)")


@dataclass(frozen=True, slots=True)
class Window:
    """Events created from `since` to `until`, both included: all of them have a seq from `first` up to before `end`."""

    tenant: str
    since: datetime
    until: datetime
    first: int
    end: int


def window(connection: Connection, tenant: str, since: datetime, until: datetime) -> Window:
    """Find the bounds; costs some look-ups, however many events there are."""
    first, end = (
        connection.execute(_FIRST, {"tenant": tenant, "at": at}).scalar_one() for at in (since - SLACK, until + SLACK)
    )
    return Window(tenant, since, until, NEWEST if first is None else first, NEWEST if end is None else end)


_WALKED = """walked AS MATERIALIZED (
        SELECT seq, type, fanned_out_at, only_to, not_to, created_at BETWEEN :since AND :until AS inside
          FROM duehook.events WHERE tenant = :tenant AND seq >= :first AND seq < :end ORDER BY seq LIMIT :stretch)"""
# By event and never by endpoint (+ 0): an endpoint that had few deliveries when the plan was made may have a million.
_OF_ENDPOINT = "d.endpoint + 0 = :endpoint"
# A ping is nobody's business twice, and what has not been fanned out will be.
_CHOOSE = text(f"""/* replays.choose */
    WITH {_WALKED},
    chosen AS MATERIALIZED (
        SELECT seq FROM walked w
         WHERE inside AND fanned_out_at IS NOT NULL AND only_to IS NULL AND not_to IS DISTINCT FROM :endpoint
           AND EXISTS (SELECT FROM duehook.subscriptions s
                        WHERE s.tenant = :tenant AND s.endpoint = :endpoint
                          AND s.pattern = ANY (duehook.patterns(w.type)) OFFSET 0)
           AND coalesce((SELECT d.status FROM duehook.deliveries d WHERE d.event = w.seq AND {_OF_ENDPOINT})
                        = ANY (CAST(:statuses AS text[])), true)
         ORDER BY seq LIMIT :most),
    last AS (
        SELECT CASE WHEN (SELECT count(*) FROM chosen) = :most THEN (SELECT max(seq) FROM chosen)
                    WHEN (SELECT count(*) FROM walked) = :stretch THEN (SELECT max(seq) FROM walked) END AS seq)
    SELECT ARRAY(SELECT seq FROM chosen ORDER BY seq) AS seqs, last.seq + 1 AS first,
           (SELECT count(*) FROM walked w WHERE inside AND (last.seq IS NULL OR w.seq <= last.seq)) AS number
      FROM last""")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Events to be delivered, how many of the window were looked at for them, and the next to be; None at the end."""

    seqs: Sequence[int]
    number: int
    first: int | None


def choose(
    connection: Connection, window: Window, endpoint: int, statuses: Sequence[DeliveryStatus], *, most: int
) -> Chosen:
    """The next `most` that the endpoint wants and has not, or has in one of `statuses`; looks at a bounded stretch."""
    parameters = {
        **_bounds(window),
        "endpoint": endpoint,
        "statuses": list(statuses),
        "most": most,
        "stretch": STRETCH,
    }
    row = connection.execute(_CHOOSE, parameters).one()
    return Chosen(row.seqs, row.number, row.first)


_COUNT = text(f"""/* replays.count */
    WITH {_WALKED}
    SELECT count(*) FILTER (WHERE inside) AS number,
           CASE WHEN count(*) = :stretch THEN max(seq) + 1 END AS first FROM walked""")


def count(connection: Connection, window: Window, *, most: int) -> tuple[int, int | None]:
    """How many of the next `most` are inside, and the next to be counted; None at the end."""
    row = connection.execute(_COUNT, {**_bounds(window), "stretch": most}).one()
    return row.number, row.first


_DELIVERIES = text(f"""/* replays.deliveries */
    SELECT d.event, d.id, d.status FROM duehook.deliveries d
     WHERE d.event = ANY (CAST(:seqs AS bigint[])) AND {_OF_ENDPOINT}""")


def deliveries(connection: Connection, endpoint: int, seqs: Sequence[int]) -> dict[int, tuple[int, DeliveryStatus]]:
    """event -> the endpoint's delivery of it and its status. Locked events: nobody makes or re-opens one meanwhile."""
    rows = connection.execute(_DELIVERIES, {"endpoint": endpoint, "seqs": list(seqs)})
    return {row.event: (row.id, DeliveryStatus(row.status)) for row in rows}


_MAKE = text("""/* replays.make */
    INSERT INTO duehook.deliveries (event, endpoint, tenant, next_attempt_at, age_from)
    SELECT seq, :endpoint, tenant, greatest(due_at, now.at), greatest(due_at, now.at)
      FROM duehook.events, (SELECT duehook.now() AS at OFFSET 0) now
     WHERE seq = ANY (CAST(:seqs AS bigint[])) AND tenant = :tenant ORDER BY seq
    ON CONFLICT DO NOTHING""")


def make(connection: Connection, tenant: str, endpoint: int, seqs: Sequence[int]) -> int:
    """Make the deliveries that are missing, as the fan-out would have, but due now; returns how many."""
    return connection.execute(_MAKE, {"tenant": tenant, "endpoint": endpoint, "seqs": list(seqs)}).rowcount


def _bounds(window: Window) -> dict[str, object]:
    return {
        "tenant": window.tenant,
        "since": window.since,
        "until": window.until,
        "first": window.first,
        "end": window.end,
    }
