"""The outbox: one row for every open thing, saying when somebody must look at it next."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, text

from app.domain.wakeups import Kind

TAKE_LEASE = timedelta(seconds=2)
LONGEST_PUBLISH_LEASE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Taken:
    """A row to publish a wake-up for; `due_at` is the wake-up's ETA."""

    ref: int
    kind: Kind
    tenant: str
    endpoint: int | None
    due_at: datetime
    publications: int


_TAKE = text("""/* outbox.take */
    WITH due AS MATERIALIZED (
        SELECT o.ref FROM unnest(CAST(:kinds AS text[]), CAST(:limits AS integer[])) AS k(kind, most)
         CROSS JOIN LATERAL (
            SELECT ref FROM duehook.outbox
             WHERE kind = k.kind AND look_at <= (SELECT duehook.now())
             ORDER BY look_at LIMIT k.most FOR UPDATE SKIP LOCKED) o)
    UPDATE duehook.outbox SET look_at = duehook.now() + :lease, taken = :token
     WHERE ref = ANY (ARRAY(SELECT ref FROM due))
    RETURNING ref, kind, tenant, endpoint, due_at, publications""")


def take(connection: Connection, token: UUID, limits: dict[Kind, int]) -> list[Taken]:
    """Take what must be looked at now, at most `limits` rows of each kind, earliest first.

    The rows come up again in two seconds unless `move` puts them further: a relay that dies here costs that much.
    By `look_at` and never by a cursor over ids, which would pass over transactions that commit out of order.
    """
    parameters = {"kinds": list(limits), "limits": list(limits.values()), "lease": TAKE_LEASE, "token": token}
    return [
        Taken(row.ref, Kind(row.kind), row.tenant, row.endpoint, row.due_at, row.publications)
        for row in connection.execute(_TAKE, parameters)
    ]


_MOVE = text("""/* outbox.move */
    WITH mine AS MATERIALIZED (
        SELECT ref FROM duehook.outbox
         WHERE ref = ANY (CAST(:refs AS bigint[])) AND taken = :token ORDER BY ref FOR UPDATE SKIP LOCKED)
    UPDATE duehook.outbox
       SET look_at = greatest(due_at, duehook.now()) + least(:lease * (2 ^ least(publications, 20)), :longest),
           publications = least(publications + 1, 20), taken = NULL
     WHERE ref = ANY (ARRAY(SELECT ref FROM mine))""")


def move(connection: Connection, token: UUID, refs: Sequence[int], publish_lease: timedelta) -> int:
    """Put published rows to the end of their publish lease, which doubles with every publication.

    Only where `token` still stands: a row that changed meanwhile has been claimed, and moving it would push its
    retry out. Rows that somebody is changing just now are passed over for the same reason. Returns how many moved.
    """
    parameters = {
        "refs": list(refs),
        "token": token,
        "lease": publish_lease,
        "longest": max(LONGEST_PUBLISH_LEASE, publish_lease),
    }
    return connection.execute(_MOVE, parameters).rowcount


_SOONER = text("""/* outbox.look_sooner */
    WITH free AS MATERIALIZED (
        SELECT ref FROM duehook.outbox
         WHERE ref = ANY (CAST(:refs AS bigint[])) ORDER BY ref FOR UPDATE SKIP LOCKED)
    UPDATE duehook.outbox
       SET look_at = least(look_at, greatest(due_at - duehook.horizon(), duehook.now() + :pause)), taken = NULL
     WHERE ref = ANY (ARRAY(SELECT ref FROM free))
    RETURNING ref""")


def look_sooner(connection: Connection, refs: Sequence[int], pause: timedelta) -> list[int]:
    """Have these looked at within the horizon of their due time, but not before `pause`; returns those it could set.

    Only ever sooner: a look that somebody else has set meanwhile stays. The rest is locked by somebody who is
    changing it, and its look with it.
    """
    found = connection.execute(_SOONER, {"refs": list(refs), "pause": pause})
    return list(found.scalars())
