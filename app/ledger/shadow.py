"""What is due by the tables themselves, against what the outbox would wake: nothing here writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, text

from app.domain.wakeups import Kind
from app.ledger.outbox import LIVE_TAKE
from app.ledger.walking import THINGS, Stretch, stretch_of, walk

# A look may be put off for a little though nothing is published: somebody's transaction has the row, or there is no
# room for it this second.
SOON = timedelta(seconds=5)
DUE = (Kind.JOB, Kind.EVENT, Kind.DELIVERY, Kind.RESERVATION)  # what has a time of its own

_READ_ONLY = text("/* shadow.read_only */ SET TRANSACTION READ ONLY")
_ONE_SNAPSHOT = text("/* shadow.one_snapshot */ SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def read_only(connection: Connection) -> None:
    """This transaction, which has done nothing yet, can't write."""
    connection.execute(_READ_ONLY)


def read_one_snapshot(connection: Connection) -> None:
    """The same, and all its statements see the ledger as it is at the first of them."""
    connection.execute(_ONE_SNAPSHOT)


def _verdict(kind: Kind) -> str:
    """What becomes of `t` when it is due: a take would return its row, its wake-up is on its way, or it is missed.

    Null when it isn't due. What is parked is not: its endpoint's row wakes it.
    """
    things = THINGS[kind]
    due = f"{things.open} AND {things.due_at} <= (SELECT duehook.now())"
    return f"""CASE WHEN {due} THEN coalesce((
        SELECT CASE WHEN o.look_at > (SELECT duehook.now()) + :longest THEN 'missed'
                    WHEN {LIVE_TAKE} THEN 'on_the_way'
                    WHEN o.look_at <= (SELECT duehook.now()) THEN 'would_wake'
                    WHEN o.publications > 0 OR o.look_at <= (SELECT duehook.now()) + :soon THEN 'on_the_way'
                    ELSE 'missed' END
          FROM duehook.outbox o WHERE o.ref = t.{things.key} AND o.kind = '{kind}'), 'missed') END"""


_DUE = {
    kind: walk(
        f"shadow.due_{kind}",
        f"duehook.{things.table} t",
        f"t.{things.key}",
        _verdict(kind),
        suspect="verdict = 'missed'",
        where=things.only_open,
        counts=""", count(*) FILTER (WHERE verdict = 'would_wake') AS would_wake,
               count(*) FILTER (WHERE verdict = 'on_the_way') AS on_the_way""",
    )
    for kind, things in THINGS.items()
    if kind in DUE
}


@dataclass(frozen=True, slots=True)
class Due:
    """Of the due things of a stretch: how many a take would return, and how many are being woken already."""

    would_wake: int
    on_the_way: int


def due(connection: Connection, kind: Kind, below: int, most: int, longest: timedelta) -> tuple[Stretch, Due]:
    """The next `most` rows below a key; the suspects are due and nothing will wake them.

    `longest`: no publish lease is longer, and a look beyond it is none.
    """
    parameters = {"below": below, "most": most, "longest": longest, "soon": SOON}
    row = connection.execute(_DUE[kind], parameters).one()
    return stretch_of(row, most), Due(row.would_wake, row.on_the_way)


_OF_NOTHING = "NOT CASE o.kind {} ELSE false END".format(
    "".join(
        f"""WHEN '{kind}' THEN EXISTS (
            SELECT FROM duehook.{things.table} t
             WHERE t.{things.key} = o.ref AND {things.kept or things.open} OFFSET 0) """
        for kind, things in THINGS.items()
    )
)
_NEEDLESS = walk("shadow.needless", "duehook.outbox o", "o.ref", _OF_NOTHING)


def needless(connection: Connection, below: int, most: int) -> Stretch:
    """The next `most` outbox rows below a key; the suspects would wake somebody for nothing that is open."""
    return stretch_of(connection.execute(_NEEDLESS, {"below": below, "most": most}).one(), most)


def still_missed(connection: Connection, kind: Kind, keys: Sequence[int], longest: timedelta) -> list[int]:
    """Those of `keys` that are due and that nothing will wake, in order."""
    things = THINGS[kind]
    statement = f"""/* shadow.still_missed_{kind} */
        SELECT t.{things.key} FROM duehook.{things.table} t
         WHERE t.{things.key} = ANY (CAST(:keys AS bigint[])) AND {_verdict(kind)} = 'missed' ORDER BY 1"""
    parameters = {"keys": list(keys), "longest": longest, "soon": SOON}
    return list(connection.execute(text(statement), parameters).scalars())


_STILL_NEEDLESS = text(f"""/* shadow.still_needless */
    SELECT o.ref, o.kind FROM duehook.outbox o
     WHERE o.ref = ANY (CAST(:refs AS bigint[])) AND {_OF_NOTHING} ORDER BY 1""")


def still_needless(connection: Connection, refs: Sequence[int]) -> list[tuple[Kind, int]]:
    """Those of `refs` whose row is of nothing open, in order, and what it says it is of."""
    return [(Kind(row.kind), row.ref) for row in connection.execute(_STILL_NEEDLESS, {"refs": list(refs)})]


_RESERVATIONS = text("""/* shadow.reservations */
    SELECT seq, id FROM duehook.reservations WHERE seq = ANY (CAST(:seqs AS bigint[]))""")


def reservation_ids(connection: Connection, seqs: Sequence[int]) -> dict[int, str]:
    """What reservations are called outside; those that are no more are missing."""
    return {row.seq: row.id for row in connection.execute(_RESERVATIONS, {"seqs": list(seqs)})}


_ESTIMATE = text("""/* shadow.estimate */
    SELECT coalesce(sum(greatest(reltuples, 0)), 0)::bigint FROM pg_class
     WHERE oid = ANY (ARRAY['duehook.deliveries'::regclass, 'duehook.outbox'::regclass,
                            'duehook.reservations_held'::regclass, 'duehook.events_waiting'::regclass]::oid[])""")


def estimate(connection: Connection) -> int:
    """About how many rows there are to walk, as PostgreSQL believed when it last looked."""
    number = connection.execute(_ESTIMATE).scalar_one()
    assert isinstance(number, int)
    return number
