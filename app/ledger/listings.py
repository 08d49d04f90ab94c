"""Newest-first pages: the keys of the next rows, read off an index, whatever the filter.

A filter has no index of its own (each would cost every write of the table), but for an event's business key: it is
applied to a bounded stretch of the newest rows, and the page says where the stretch ended. Keys and end come from one
statement, hence from one snapshot: read one after the other, a row that commits in between would be shown twice.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, TextClause, text

STRETCH = 5_000  # rows that one page looks through
NEWEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Page:
    """Keys, newest first, and the key to go on below; None when there are no more rows."""

    keys: list[int]
    below: int | None


def _by_seq(noun: str, scanned: str, filters: str = "true") -> TextClause:
    return text(f"""/* {noun}.newest */
        WITH scanned AS MATERIALIZED ({scanned} ORDER BY key DESC LIMIT :stretch)
        SELECT ARRAY(SELECT key FROM scanned WHERE {filters} ORDER BY key DESC LIMIT :most) AS keys,
               (SELECT CASE WHEN count(*) = :stretch THEN min(key) END FROM scanned) AS edge""")


def _is(column: str) -> str:
    return f"(CAST(:{column} AS text) IS NULL OR {column} = :{column})"


_RESERVATIONS = _by_seq(
    "reservations",
    """SELECT seq AS key, status, resource FROM duehook.reservations WHERE tenant = :tenant AND seq < :below""",
    f"{_is('status')} AND {_is('resource')}",
)
_EVENTS = _by_seq("events", "SELECT seq AS key FROM duehook.events WHERE tenant = :tenant AND seq < :below")
_EVENTS_OF_KEY = _by_seq(
    "events_of_key",
    """SELECT seq AS key FROM duehook.events
        WHERE tenant = :tenant AND origin = 'producer' AND events.key = :wanted AND seq < :below""",
)
_ENDPOINTS = _by_seq(
    "endpoints",
    "SELECT seq AS key FROM duehook.endpoints WHERE tenant = :tenant AND deleted_at IS NULL AND seq < :below",
)
_JOBS = _by_seq("jobs", "SELECT seq AS key FROM duehook.jobs WHERE tenant = :tenant AND seq < :below")
_AUDITED = "SELECT seq AS key, action, subject FROM duehook.audit_log WHERE {whose} AND seq < :below"
_AUDIT_FILTERS = f"{_is('action')} AND {_is('subject')}"
_AUDIT = _by_seq("audit_log", _AUDITED.format(whose="tenant = :tenant"), _AUDIT_FILTERS)
_AUDIT_OF_ALL = _by_seq("audit_log_of_all", _AUDITED.format(whose="true"), _AUDIT_FILTERS)
_OF_ENDPOINT = _by_seq(
    "deliveries_of_endpoint",
    "SELECT id AS key, status FROM duehook.deliveries WHERE endpoint = :endpoint AND id < :below",
    _is("status"),
)


def reservations(
    connection: Connection, tenant: str, *, status: str | None, resource: str | None, limit: int, below: int = NEWEST
) -> Page:
    """The seqs of a tenant's reservations; a page of a filtered list may be short, or empty, and yet go on."""
    filters = {"status": status, "resource": resource}
    return _page(connection, _RESERVATIONS, limit, below, {"tenant": tenant, **filters}, any(filters.values()))


def events(connection: Connection, tenant: str, *, key: str | None = None, limit: int, below: int = NEWEST) -> Page:
    """The seqs of a tenant's events, or of the one that a producer posted with this business key."""
    if key is None:
        return _page(connection, _EVENTS, limit, below, {"tenant": tenant})
    return _page(connection, _EVENTS_OF_KEY, limit, below, {"tenant": tenant, "wanted": key})


def endpoints(connection: Connection, tenant: str, *, limit: int, below: int = NEWEST) -> Page:
    """The seqs of a tenant's endpoints that are not deleted."""
    return _page(connection, _ENDPOINTS, limit, below, {"tenant": tenant})


def jobs(connection: Connection, tenant: str, *, limit: int, below: int = NEWEST) -> Page:
    """The seqs of a tenant's jobs."""
    return _page(connection, _JOBS, limit, below, {"tenant": tenant})


def audit(
    connection: Connection,
    tenant: str | None,
    *,
    action: str | None,
    subject: str | None,
    limit: int,
    below: int = NEWEST,
) -> Page:
    """The seqs of the entries about a tenant, or about whomever; a filtered page may be short, or empty, and go on."""
    filters = {"action": action, "subject": subject}
    statement, whose = (_AUDIT_OF_ALL, {}) if tenant is None else (_AUDIT, {"tenant": tenant})
    return _page(connection, statement, limit, below, {**whose, **filters}, any(filters.values()))


def deliveries_of_endpoint(
    connection: Connection, endpoint: int, *, status: str | None, limit: int, below: int = NEWEST
) -> Page:
    """The ids of one endpoint's deliveries; the caller knows whose endpoint it is."""
    parameters = {"endpoint": endpoint, "status": status}
    return _page(connection, _OF_ENDPOINT, limit, below, parameters, status is not None)


def _page(
    connection: Connection,
    statement: TextClause,
    limit: int,
    below: int,
    parameters: dict[str, Any],
    filtered: bool = False,
) -> Page:
    stretch = max(STRETCH, limit + 1) if filtered else limit + 1
    row: Row[Any] = connection.execute(
        statement, {**parameters, "below": below, "most": limit + 1, "stretch": stretch}
    ).one()
    return Page(row.keys[:limit], row.keys[limit - 1] if len(row.keys) > limit else row.edge)


class Place(NamedTuple):
    """Where a delivery stands in a list of many events' deliveries: newest event first, then newest endpoint."""

    event: int
    endpoint: int


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Ids of deliveries in the order of their places, and the place to go on below."""

    ids: list[int]
    places: list[Place]
    below: Place | None


# A walk over the tenant's events: deliveries have no index by tenant, it would cost every fan-out. Both stretches
# are bounded, events that nobody wanted and events that a thousand endpoints wanted.
_OF_EVENTS = text(f"""/* deliveries.newest */
    WITH walked AS MATERIALIZED (
        SELECT seq FROM duehook.events
         WHERE tenant = :tenant AND seq <= :event AND (CAST(:only AS bigint) IS NULL OR seq = :only)
         ORDER BY seq DESC LIMIT :walk),
    scanned AS MATERIALIZED (
        SELECT d.* FROM walked w
         CROSS JOIN LATERAL (
            SELECT id, event, endpoint, status FROM duehook.deliveries
             WHERE event = w.seq AND (event < :event OR endpoint < :below)
               AND (CAST(:to AS bigint) IS NULL OR endpoint = :to) OFFSET 0) d
         ORDER BY w.seq DESC, d.endpoint DESC LIMIT :stretch),
    page AS (
        SELECT id, event, endpoint FROM scanned WHERE {_is("status")}
         ORDER BY event DESC, endpoint DESC LIMIT :most),
    edge AS (
        SELECT event, endpoint FROM (SELECT * FROM scanned ORDER BY event, endpoint LIMIT 1) l
         WHERE (SELECT count(*) FROM scanned) = :stretch
         UNION ALL
        SELECT min(seq) - 1, :newest FROM walked HAVING count(*) = :walk
         ORDER BY event DESC, endpoint DESC LIMIT 1)
    SELECT id, event, endpoint, false AS is_edge FROM page
     UNION ALL
    SELECT NULL, event, endpoint, true FROM edge
     ORDER BY is_edge, event DESC, endpoint DESC""")


def deliveries(
    connection: Connection,
    tenant: str,
    *,
    event: int | None = None,
    endpoint: int | None = None,
    status: str | None = None,
    limit: int,
    below: Place | None = None,
) -> Deliveries:
    """A tenant's deliveries, or those of one event, or its one to an endpoint, in the order of their events."""
    below = below or Place(event or NEWEST, NEWEST)
    parameters = {
        "tenant": tenant,
        "only": event,
        "to": endpoint,
        "status": status,
        "event": below.event,
        "below": below.endpoint,
        "newest": NEWEST,
        "most": limit + 1,
        "walk": STRETCH,
        "stretch": max(STRETCH, limit + 1) if status else limit + 1,
    }
    rows = connection.execute(_OF_EVENTS, parameters).all()
    found = [row for row in rows if not row.is_edge]
    places = [Place(row.event, row.endpoint) for row in found[:limit]]
    edge = next((Place(row.event, row.endpoint) for row in rows if row.is_edge), None)
    return Deliveries([row.id for row in found[:limit]], places, places[-1] if len(found) > limit else edge)
