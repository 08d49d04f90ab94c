"""The outbox: one row for every open thing, saying when somebody must look at it next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, TextClause, text

from app.domain.wakeups import Kind

TAKE_LEASE = timedelta(seconds=2)
LONGEST_PUBLISH_LEASE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Taken:
    """A row to wake somebody for; `due_at` is the wake-up's ETA, `endpoint` is 0 where there is none."""

    ref: int
    kind: Kind
    tenant: str
    endpoint: int
    due_at: datetime
    publications: int


@dataclass(frozen=True, slots=True)
class Buckets:
    """Which hundredths of the work to take, `first` up to but not including `end`."""

    first: int = 0
    end: int = 100


# Rows that another take holds are passed over until it has lapsed. The update changes no indexed column, so that it
# stays on its page.
_FREE = """look_at <= (SELECT duehook.now())
               AND (taken IS NULL OR taken_until <= (SELECT duehook.now()))
               AND (:all_buckets OR duehook.bucket(ref) >= :first AND duehook.bucket(ref) < :end)"""
_TAKEN = """UPDATE duehook.outbox SET taken = :token, taken_until = duehook.now() + :lease
     WHERE ref = ANY (ARRAY(SELECT ref FROM due))
    RETURNING ref, kind, tenant, endpoint, due_at, publications"""
_TAKE = text(f"""/* outbox.take */
    WITH due AS MATERIALIZED (
        SELECT o.ref FROM unnest(CAST(:kinds AS text[]), CAST(:limits AS integer[])) AS k(kind, most)
         CROSS JOIN LATERAL (
            SELECT ref FROM duehook.outbox
             WHERE kind = k.kind AND {_FREE}
             ORDER BY look_at LIMIT k.most FOR UPDATE SKIP LOCKED) o)
    {_TAKEN}""")


def take(connection: Connection, token: UUID, limits: Mapping[Kind, int], buckets: Buckets = Buckets()) -> list[Taken]:
    """Take what must be looked at now, at most `limits` rows of each kind, earliest first.

    The rows come up again in two seconds unless `move` puts them further: whoever dies here costs that much.
    By `look_at` and never by a cursor over ids, which would pass over transactions that commit out of order.
    """
    wanted = {kind: most for kind, most in limits.items() if most > 0}
    if not wanted:
        return []
    parameters = {"kinds": list(wanted), "limits": list(wanted.values())}
    return _take(connection, _TAKE, token, buckets, parameters)


def _take(
    connection: Connection, statement: TextClause, token: UUID, buckets: Buckets, parameters: dict[str, object]
) -> list[Taken]:
    parameters |= {
        "token": token,
        "lease": TAKE_LEASE,
        "first": buckets.first,
        "end": buckets.end,
        "all_buckets": buckets == Buckets(),
    }
    return [
        Taken(row.ref, Kind(row.kind), row.tenant, row.endpoint, row.due_at, row.publications)
        for row in connection.execute(statement, parameters)
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
