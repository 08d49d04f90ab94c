"""The outbox: one row for every open thing, saying when somebody must look at it next."""

from collections.abc import Collection, Mapping, Sequence
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


EVERY_BUCKET = Buckets()


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows of a kind may be taken, of those whose look has been due for `hold_off`.

    While there are more than that, at most `backlog` of them are what waits, and the rest what falls due just then.
    """

    most: int
    hold_off: timedelta = timedelta()
    backlog: int | None = None


# Rows that another take holds are passed over until it has lapsed; one that would last longer than any take does is
# damage, or of a clock that was ahead. The update changes no indexed column, so that it stays on its page.
LIVE_TAKE = f"""(taken IS NOT NULL AND taken_until > (SELECT duehook.now())
                AND taken_until <= (SELECT duehook.now()) + interval '{TAKE_LEASE.total_seconds()} s')"""
_FREE = f"""{LIVE_TAKE} IS NOT TRUE
               AND (:all_buckets OR duehook.bucket(ref) >= :first AND duehook.bucket(ref) < :end)"""
_TAKEN = """UPDATE duehook.outbox SET taken = :token, taken_until = duehook.now() + :lease
     WHERE ref = ANY (ARRAY(SELECT ref FROM due))
    RETURNING ref, kind, tenant, endpoint, due_at, publications"""
_TAKE = text(f"""/* outbox.take */
    WITH due AS MATERIALIZED (
        SELECT o.ref
          FROM unnest(CAST(:kinds AS text[]), CAST(:mosts AS integer[]), CAST(:hold_offs AS interval[]))
               AS k(kind, most, hold_off)
         CROSS JOIN LATERAL (
            SELECT ref FROM duehook.outbox
             WHERE kind = k.kind AND look_at <= (SELECT duehook.now()) - k.hold_off AND {_FREE}
             ORDER BY look_at LIMIT k.most FOR UPDATE SKIP LOCKED) o)
    {_TAKEN}""")


def take(
    connection: Connection, token: UUID, rooms: Mapping[Kind, Room], buckets: Buckets = EVERY_BUCKET
) -> list[Taken]:
    """Take what must be looked at now, as far as there is room, earliest first.

    The rows come up again in two seconds unless `move` puts them further: whoever dies here costs that much.
    By `look_at` and never by a cursor over ids, which would pass over transactions that commit out of order.
    """
    return _take(
        connection,
        _TAKE,
        token,
        buckets,
        kinds=list(rooms),
        mosts=[room.most for room in rooms.values()],
        hold_offs=[room.hold_off for room in rooms.values()],
    )


def _take(
    connection: Connection, statement: TextClause, token: UUID, buckets: Buckets, **parameters: object
) -> list[Taken]:
    parameters |= {
        "token": token,
        "lease": TAKE_LEASE,
        "first": buckets.first,
        "end": buckets.end,
        "all_buckets": buckets == EVERY_BUCKET,
    }
    return [
        Taken(row.ref, Kind(row.kind), row.tenant, row.endpoint, row.due_at, row.publications)
        for row in connection.execute(statement, parameters)
    ]


Crowd = tuple[str, int]  # whose work waits: tenant, and endpoint or 0

_CROWDS = text("""/* outbox.crowds */
    SELECT tenant, endpoint FROM duehook.crowds(:kind, :after_tenant, :after_endpoint, :most)""")


def crowds(connection: Connection, kind: Kind, after: Crowd, most: int) -> list[Crowd]:
    """Who has something of a kind to be looked at: at most `most` tenants and endpoints, in order, `after` one.

    Fewer than `most` are the last of them. Costs an index look-up for each that has rows, due or not, and none for
    their number.
    """
    parameters = {"kind": kind, "after_tenant": after[0], "after_endpoint": after[1], "most": most}
    return [(row.tenant, row.endpoint) for row in connection.execute(_CROWDS, parameters)]


_CONGESTED = text("""/* outbox.congested */
    SELECT ref FROM duehook.outbox WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'endpoint'""")


def congested(connection: Connection, endpoints: Sequence[int]) -> set[int]:
    """Those of these endpoints that have something parked."""
    return set(connection.execute(_CONGESTED, {"endpoints": list(endpoints)}).scalars())


# They are locked afterwards, as in the fair take.
_TAKE_NEWEST = text(f"""/* outbox.take_newest */
    WITH newest AS MATERIALIZED (
        SELECT ref, endpoint FROM duehook.outbox
         WHERE kind = :kind AND look_at <= (SELECT duehook.now()) - :due AND look_at > (SELECT duehook.now()) - :fresh
           AND {_FREE}
         ORDER BY look_at DESC LIMIT :most),
    due AS MATERIALIZED (
        SELECT ref FROM duehook.outbox
         WHERE ref = ANY (ARRAY(SELECT ref FROM newest WHERE NOT endpoint = ANY (CAST(:but AS bigint[]))))
           AND look_at <= (SELECT duehook.now()) AND {_FREE}
         ORDER BY ref FOR UPDATE SKIP LOCKED)
    {_TAKEN}""")


def take_newest(
    connection: Connection,
    token: UUID,
    kind: Kind,
    most: int,
    *,
    due: timedelta,
    fresh: timedelta,
    but: Collection[int] = (),
    buckets: Buckets = EVERY_BUCKET,
) -> list[Taken]:
    """Take what fell due last, but for some endpoints: a look comes up `due` before the work, and `fresh` before it is
    no longer new.

    Whoever has nothing waiting finds its first row here, however much waits for others.
    """
    return _take(connection, _TAKE_NEWEST, token, buckets, kind=kind, most=most, due=due, fresh=fresh, but=list(but))


# Each crowd's newest first, up to half of its share, then its oldest until the share is full. They are locked
# afterwards: what another take was quicker with is passed over.
_TAKE_FAIRLY = text(f"""/* outbox.take_fairly */
    WITH chosen AS MATERIALIZED (
        SELECT c.ref
          FROM unnest(CAST(:tenants AS text[]), CAST(:endpoints AS bigint[]), CAST(:shares AS integer[]))
               AS g(tenant, endpoint, share)
         CROSS JOIN LATERAL (
            SELECT ref FROM (
                (SELECT ref, look_at, 0 AS arm FROM duehook.outbox
                  WHERE kind = :kind AND tenant = g.tenant AND endpoint = g.endpoint
                    AND look_at > (SELECT duehook.now()) - :fresh AND look_at <= (SELECT duehook.now()) - :hold_off
                    AND {_FREE}
                  ORDER BY look_at LIMIT (g.share + 1) / 2)
                UNION ALL
                (SELECT ref, look_at, 1 FROM duehook.outbox
                  WHERE kind = :kind AND tenant = g.tenant AND endpoint = g.endpoint
                    AND look_at <= (SELECT duehook.now()) - :hold_off AND {_FREE}
                  ORDER BY look_at LIMIT g.share)) arms
             GROUP BY ref ORDER BY min(arm), min(look_at) LIMIT g.share) c),
    due AS MATERIALIZED (
        SELECT ref FROM duehook.outbox
         WHERE ref = ANY (ARRAY(SELECT ref FROM chosen)) AND look_at <= (SELECT duehook.now()) AND {_FREE}
         ORDER BY ref FOR UPDATE SKIP LOCKED)
    {_TAKEN}""")


def take_fairly(
    connection: Connection,
    token: UUID,
    kind: Kind,
    shares: Mapping[Crowd, int],
    *,
    fresh: timedelta,
    hold_off: timedelta = timedelta(),
    buckets: Buckets = EVERY_BUCKET,
) -> list[Taken]:
    """Take of each crowd up to its share: half of it what came up within `fresh`, the rest its oldest."""
    return _take(
        connection,
        _TAKE_FAIRLY,
        token,
        buckets,
        kind=kind,
        tenants=[tenant for tenant, _ in shares],
        endpoints=[endpoint for _, endpoint in shares],
        shares=list(shares.values()),
        fresh=fresh,
        hold_off=hold_off,
    )


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


_LOOK_AT_PUBLISHED = text(f"""/* outbox.look_at_published */
    WITH lost AS MATERIALIZED (
        SELECT ref FROM duehook.outbox
         WHERE kind = ANY (CAST(:kinds AS text[])) AND publications > 0 AND look_at > (SELECT duehook.now())
           AND look_at <= (SELECT duehook.now()) + duehook.horizon() + :longest AND {_FREE}
         FOR UPDATE SKIP LOCKED)
    UPDATE duehook.outbox SET look_at = duehook.now(), publications = 0, taken = NULL
     WHERE ref = ANY (ARRAY(SELECT ref FROM lost))""")


def look_at_published(connection: Connection, kinds: Sequence[Kind], buckets: Buckets, publish_lease: timedelta) -> int:
    """End every publish lease now: the broker has lost what was published. Returns how many rows come up again.

    What some worker holds all the same is woken twice, which changes nothing.
    """
    parameters = {
        "kinds": list(kinds),
        "longest": max(LONGEST_PUBLISH_LEASE, publish_lease),
        "first": buckets.first,
        "end": buckets.end,
        "all_buckets": buckets == EVERY_BUCKET,
    }
    return connection.execute(_LOOK_AT_PUBLISHED, parameters).rowcount


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
