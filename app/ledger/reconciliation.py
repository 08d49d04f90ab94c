"""The audit of the outbox: every open thing has exactly one row that says when to look at it, nothing else has one.

Each call walks one bounded stretch. What it finds it repairs only after locking it in one statement and looking again
in the next, whose snapshot is newer than the lock: decided in one statement, a row of something that was re-opened
just then would be deleted. What somebody else has locked is passed over: it is being changed, and the next walk looks
again. Locks are taken in the order of the ledger: job, event, delivery or reservation, outbox.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sqlalchemy import Connection, text

from app.domain.wakeups import Kind
from app.ledger.outbox import LONGEST_PUBLISH_LEASE
from app.ledger.walking import THINGS, TOP, Stretch, stretch_of, walk


class Walk(StrEnum):
    """What is walked, each with a mark of its own; the longest last, for it takes the time that the others leave."""

    ENDPOINT = "endpoint"
    RESERVATION = "reservation"
    EVENT = "event"
    JOB = "job"
    OUTBOX = "outbox"
    FAN_OUT = "fan_out"
    DELIVERY = "delivery"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the audit must know of the settings.

    `every`: how often somebody comes to audit. `longest`: no publish lease is longer. `recent`: a fan-out before that
    is history, of which retention may have deleted a part; and its deliveries would be too old to be sent. `kept`: how
    long entries of the audit log stay, which upkeep prunes; None is for ever.
    """

    every: timedelta = timedelta()
    longest: timedelta = LONGEST_PUBLISH_LEASE
    recent: timedelta = timedelta(days=1)
    kept: timedelta | None = None


# A row and no advisory lock: any login of the database could take that one, and no audit would ever run.
_LOCK_AUDIT = text("/* audit.lock */ SELECT FROM duehook.audit_marks WHERE kind = 'outbox' FOR UPDATE SKIP LOCKED")
_BEGIN = text("""/* audit.begin */
    UPDATE duehook.audit_marks SET walked_at = duehook.now()
     WHERE kind = 'outbox'
       AND (walked_at > duehook.now() - :pause AND walked_at <= duehook.now()) IS NOT TRUE""")


def lock_audit(connection: Connection) -> bool:
    """Whether this transaction is the one that audits: a second beat, or a late task, has nothing to do."""
    return connection.execute(_LOCK_AUDIT).rowcount == 1


def begin(connection: Connection, pause: timedelta) -> bool:
    """Whether to audit now: nobody is at it, and nobody has begun within `pause`."""
    return lock_audit(connection) and connection.execute(_BEGIN, {"pause": pause}).rowcount == 1


_MARK = text("/* audit.mark */ SELECT mark FROM duehook.audit_marks WHERE kind = :kind")
_SET_MARK = text("""/* audit.set_mark */
    UPDATE duehook.audit_marks SET mark = :mark, walked_at = duehook.now() WHERE kind = :kind""")


def mark(connection: Connection, which: Walk) -> int:
    """Below which key the long walk goes on; it begins anew at the top after the last."""
    return connection.execute(_MARK, {"kind": which}).scalar_one() or TOP


def set_mark(connection: Connection, which: Walk, below: int | None) -> None:
    """Remember how far the long walk has come; None is the end."""
    connection.execute(_SET_MARK, {"kind": which, "mark": below or 0})


def _right(kind: Kind) -> str:
    """Whether the row `o` says of its thing `t` what it must."""
    things = THINGS[kind]
    due = f"o.due_at <= {things.due_by} + :longest" if things.due_by else f"o.due_at = {things.due_at}"
    return f"""(o.kind = '{kind}' AND (o.tenant, o.endpoint) = (t.tenant, {things.endpoint}) AND {due}
        AND o.look_at <= greatest(o.due_at, (SELECT duehook.now())) + :longest)"""


def _opens(kind: Kind, condition: str = "true") -> str:
    """Whether the thing of the row `o` is one to have a row. OFFSET 0 keeps it a look-up by key: the planner would read
    and hash a whole table where old statistics call it small."""
    things = THINGS[kind]
    return f"""EXISTS (SELECT FROM duehook.{things.table} t
        WHERE t.{things.key} = o.ref AND {things.kept or things.open} AND {condition} OFFSET 0)"""


# Whom an event was for when it was fanned out: as the trigger finds them, but for those who began to want it about
# that time, whose transaction may have come later.
_WANTED = """(
    SELECT s.endpoint AS seq FROM duehook.subscriptions s
     WHERE t.only_to IS NULL AND s.tenant = t.tenant AND s.pattern = ANY (duehook.patterns(t.type))
       AND s.endpoint IS DISTINCT FROM t.not_to AND s.since <= t.fanned_out_at - interval '1 minute'
     UNION ALL
    SELECT e.seq FROM duehook.endpoints e
     WHERE e.seq = t.only_to AND e.tenant = t.tenant AND e.deleted_at IS NULL
       AND e.seq IS DISTINCT FROM t.not_to AND e.created_at <= t.fanned_out_at - interval '1 minute' OFFSET 0)"""
_OWED = f"""t.cancelled_at IS NULL AND EXISTS (
    SELECT FROM {_WANTED} wanted
     WHERE NOT EXISTS (
        SELECT FROM duehook.deliveries d WHERE d.event = t.seq AND d.endpoint = wanted.seq OFFSET 0) OFFSET 0)"""

_WALK = {
    Walk.OUTBOX: walk(
        "audit.walk_outbox",
        "duehook.outbox o",
        "o.ref",
        "NOT CASE o.kind"
        + "".join(f" WHEN '{kind}' THEN {_opens(kind, _right(kind))}" for kind in THINGS)
        + " ELSE false END",
    ),
    Walk.FAN_OUT: walk(
        "audit.walk_fan_out",
        "duehook.events t",
        "t.seq",
        f"t.fanned_out_at > (SELECT duehook.now()) - :recent AND {_OWED}",
    ),
} | {
    Walk(kind.value): walk(
        f"audit.walk_{kind}",
        f"duehook.{things.table} t",
        f"t.{things.key}",
        f"{things.open} AND NOT EXISTS (SELECT FROM duehook.outbox o WHERE o.ref = t.{things.key} OFFSET 0)",
        where=things.only_open,
    )
    for kind, things in THINGS.items()
}


def look(connection: Connection, which: Walk, below: int, most: int, terms: Terms) -> Stretch:
    """The next `most` rows below a key, and who among them seems to be damaged."""
    parameters = {"below": below, "most": most, "longest": terms.longest, "recent": terms.recent}
    return stretch_of(connection.execute(_WALK[which], parameters).one(), most)


def repair(connection: Connection, which: Walk, suspects: Sequence[int], terms: Terms) -> Counter[str]:
    """Repair what is damaged still once it is locked, and count it; returns the repairs by kind."""
    match which:
        case Walk.OUTBOX:
            repairs = _repair_rows(connection, suspects, terms)
        case Walk.FAN_OUT:
            repairs = Counter(delivery_missing=_insert_deliveries(connection, suspects))
        case _:
            repairs = Counter({f"{which}_without_row": _insert_rows(connection, Kind(which.value), suspects)})
    repairs = +repairs
    if repairs:
        _count(connection, repairs)
    return repairs


def _lock_things(connection: Connection, kind: Kind, keys: Collection[int]) -> list[int]:
    things = THINGS[kind]
    lock = f"""/* audit.lock_{kind} */
        SELECT t.{things.key} FROM duehook.{things.table} t
         WHERE t.{things.key} = ANY (CAST(:keys AS bigint[])) AND {things.open}
         ORDER BY t.{things.key} FOR UPDATE SKIP LOCKED"""
    return list(connection.execute(text(lock), {"keys": list(keys)}).scalars())


def _insert_rows(connection: Connection, kind: Kind, suspects: Sequence[int]) -> int:
    """Give a row to those open things that have none: as their own trigger would make it."""
    things = THINGS[kind]
    insert = f"""/* audit.insert_{kind} */
        INSERT INTO duehook.outbox (ref, kind, tenant, endpoint, due_at, look_at)
        SELECT t.{things.key}, '{kind}', t.tenant, {things.endpoint}, {things.due_at}, {things.look_at}
          FROM duehook.{things.table} t WHERE t.{things.key} = ANY (CAST(:keys AS bigint[]))
        ON CONFLICT DO NOTHING"""
    return connection.execute(text(insert), {"keys": _lock_things(connection, kind, suspects)}).rowcount


_LOCK_ROWS = text("""/* audit.lock_outbox */
    SELECT ref FROM duehook.outbox WHERE ref = ANY (CAST(:keys AS bigint[])) ORDER BY ref FOR UPDATE SKIP LOCKED""")
_DELETE_ROWS = text(f"""/* audit.delete_orphans */
    DELETE FROM duehook.outbox o
     WHERE ref = ANY (CAST(:keys AS bigint[])) AND NOT ({" OR ".join(map(_opens, THINGS))})""")


def _repair_rows(connection: Connection, suspects: Sequence[int], terms: Terms) -> Counter[str]:
    """Delete the rows of nothing open; write anew those that say something wrong. What a row says of its kind is not
    believed: its thing is looked for everywhere."""
    locked = {kind: set(_lock_things(connection, kind, suspects)) for kind in THINGS}
    rows = set(connection.execute(_LOCK_ROWS, {"keys": list(suspects)}).scalars())
    repairs = Counter(row_of_nothing=connection.execute(_DELETE_ROWS, {"keys": list(rows)}).rowcount)
    for kind, things in locked.items():
        repairs += _write_rows(connection, kind, things & rows, terms)
    return repairs


def _write_rows(connection: Connection, kind: Kind, keys: Collection[int], terms: Terms) -> Counter[str]:
    """Write the rows anew that are not right, as the trigger of their things would; both are locked."""
    things = THINGS[kind]
    write = text(f"""/* audit.write_{kind} */
        WITH wrong AS MATERIALIZED (
            SELECT o.ref, (o.kind, o.tenant, o.endpoint) = ('{kind}', t.tenant, {things.endpoint})
                          AND o.due_at = {things.due_at} AS late, t.tenant, {things.endpoint} AS endpoint,
                   {things.due_at} AS due_at, {things.look_at} AS look_at
              FROM duehook.outbox o JOIN duehook.{things.table} t ON t.{things.key} = o.ref
             WHERE o.ref = ANY (CAST(:keys AS bigint[])) AND NOT {_right(kind)}),
        written AS (
            UPDATE duehook.outbox o
               SET kind = '{kind}', tenant = w.tenant, endpoint = w.endpoint, due_at = w.due_at, look_at = w.look_at,
                   publications = 0, taken = NULL
              FROM wrong w WHERE o.ref = ANY (CAST(:keys AS bigint[])) AND o.ref = w.ref
            RETURNING w.late)
        SELECT count(*) FILTER (WHERE late) AS look_too_late, count(*) FILTER (WHERE NOT late) AS row_says_wrong
          FROM written""")
    return Counter(connection.execute(write, {"keys": list(keys), "longest": terms.longest}).one()._asdict())


_LOCK_EVENTS = text("""/* audit.lock_fan_out */
    SELECT seq FROM duehook.events
     WHERE seq = ANY (CAST(:keys AS bigint[])) AND fanned_out_at IS NOT NULL AND cancelled_at IS NULL
     ORDER BY seq FOR UPDATE SKIP LOCKED""")
_INSERT_DELIVERIES = text(f"""/* audit.insert_deliveries */
    INSERT INTO duehook.deliveries (event, endpoint, tenant, next_attempt_at, age_from)
    SELECT t.seq, wanted.seq, t.tenant, t.due_at, t.due_at
      FROM duehook.events t CROSS JOIN LATERAL {_WANTED} wanted
     WHERE t.seq = ANY (CAST(:keys AS bigint[])) ORDER BY 1, 2
    ON CONFLICT DO NOTHING""")


def _insert_deliveries(connection: Connection, suspects: Sequence[int]) -> int:
    """Make the deliveries that a fan-out owes, as the fan-out would have; those that exist stay as they are."""
    locked = list(connection.execute(_LOCK_EVENTS, {"keys": list(suspects)}).scalars())
    return connection.execute(_INSERT_DELIVERIES, {"keys": locked}).rowcount


REPAIRS = (
    "row_of_nothing",
    "row_says_wrong",
    "look_too_late",
    "delivery_missing",
    *(f"{kind}_without_row" for kind in THINGS),
)
_REPAIRS = text("/* audit.repairs */ SELECT kind, number FROM duehook.repairs")


def repairs(connection: Connection) -> dict[str, int]:
    """How many there were of each kind since the ledger was made."""
    return dict.fromkeys(REPAIRS, 0) | {row.kind: row.number for row in connection.execute(_REPAIRS)}


_COUNT = text("""/* audit.count */
    INSERT INTO duehook.repairs AS r (kind, number, last_at)
    SELECT kind, number, duehook.now()
      FROM unnest(CAST(:kinds AS text[]), CAST(:numbers AS bigint[])) AS t(kind, number)
    ON CONFLICT (kind) DO UPDATE SET number = r.number + excluded.number, last_at = excluded.last_at""")


def _count(connection: Connection, repairs: Counter[str]) -> None:
    connection.execute(_COUNT, {"kinds": list(repairs), "numbers": list(repairs.values())})
