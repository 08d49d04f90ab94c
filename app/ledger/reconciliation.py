"""The audit of the outbox: every open thing has exactly one row, every closed thing has none.

Each call walks one bounded stretch of a table. What it finds it repairs only after locking it in one statement and
looking again in the next, whose snapshot is newer than the lock: decided in one statement, a row of something
that was re-opened just then would be deleted.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, text

from app.domain.wakeups import Kind

# A row and no advisory lock: any login of the database could take that one, and no audit would ever run.
_LOCK_AUDIT = text("/* audit.lock */ SELECT FROM duehook.audit_marks WHERE kind = 'outbox' FOR UPDATE SKIP LOCKED")


def lock_audit(connection: Connection) -> bool:
    """Whether this transaction is the one that audits: a second beat, or a late task, has nothing to do."""
    return connection.execute(_LOCK_AUDIT).rowcount == 1


@dataclass(frozen=True, slots=True)
class _Things:
    table: str
    key: str
    open: str
    due_at: str
    look_at: str
    endpoint: str = "0"


_THINGS = {
    Kind.RESERVATION: _Things(
        "reservations", "seq", "t.status = 'held'", "t.expires_at", "t.expires_at - duehook.horizon()"
    ),
    Kind.EVENT: _Things(
        "events",
        "seq",
        "t.fanned_out_at IS NULL AND t.cancelled_at IS NULL",
        "t.due_at",
        "t.due_at - duehook.horizon()",
    ),
    Kind.DELIVERY: _Things(
        "deliveries",
        "id",
        "t.status IN ('scheduled', 'leased')",
        "coalesce(t.lease_until, t.next_attempt_at)",
        "coalesce(t.lease_until, t.next_attempt_at - duehook.horizon())",
        "t.endpoint",
    ),
}


def repair_missing(connection: Connection, kind: Kind, stretch: int) -> int:
    """Give a row to each open thing of the next `stretch` of its table that has none; returns how many."""
    things = _THINGS[kind]
    suspects = _walk(
        connection,
        kind.value,
        f"SELECT {things.key} AS key, {things.open} AND NOT EXISTS"
        f" (SELECT FROM duehook.outbox o WHERE o.ref = t.{things.key}) AS suspect"
        f" FROM duehook.{things.table} t WHERE {things.key} > :mark ORDER BY {things.key} LIMIT :stretch",
        stretch,
    )
    if not suspects:
        return 0
    lock = f"""/* audit.lock_{kind} */
        SELECT {things.key} FROM duehook.{things.table} t
         WHERE {things.key} = ANY (CAST(:keys AS bigint[])) AND {things.open}
         ORDER BY {things.key} FOR UPDATE SKIP LOCKED"""
    locked = list(connection.execute(text(lock), {"keys": suspects}).scalars())
    insert = f"""/* audit.insert_{kind} */
        INSERT INTO duehook.outbox (ref, kind, tenant, endpoint, due_at, look_at)
        SELECT {things.key}, '{kind}', tenant, {things.endpoint}, {things.due_at}, {things.look_at}
          FROM duehook.{things.table} t WHERE {things.key} = ANY (CAST(:keys AS bigint[]))
        ON CONFLICT DO NOTHING"""
    return connection.execute(text(insert), {"keys": locked}).rowcount if locked else 0


_OPEN_REF = " OR ".join(
    f"o.kind = '{kind}' AND EXISTS (SELECT FROM duehook.{things.table} t"
    f" WHERE t.{things.key} = o.ref AND {things.open})"
    for kind, things in _THINGS.items()
)
_ORPHANS = f"""SELECT ref AS key, NOT (o.kind = 'endpoint' OR {_OPEN_REF}) AS suspect
    FROM duehook.outbox o WHERE ref > :mark ORDER BY ref LIMIT :stretch"""
_LOCK_ORPHANS = text("""/* audit.lock_outbox */
    SELECT ref FROM duehook.outbox WHERE ref = ANY (CAST(:keys AS bigint[])) ORDER BY ref FOR UPDATE SKIP LOCKED""")
_DELETE_ORPHANS = text(f"""/* audit.delete_orphans */
    DELETE FROM duehook.outbox o
     WHERE ref = ANY (CAST(:keys AS bigint[])) AND NOT (o.kind = 'endpoint' OR {_OPEN_REF})""")


def delete_orphans(connection: Connection, stretch: int) -> int:
    """Delete the rows of the next `stretch` of the outbox that belong to nothing open; returns how many."""
    suspects = _walk(connection, "outbox", _ORPHANS, stretch)
    if not suspects:
        return 0
    locked = list(connection.execute(_LOCK_ORPHANS, {"keys": suspects}).scalars())
    return connection.execute(_DELETE_ORPHANS, {"keys": locked}).rowcount


def _walk(connection: Connection, kind: str, statement: str, stretch: int) -> list[int]:
    """The suspects among the next `stretch` rows; the mark moves behind them, or back to the start at the end."""
    mark = connection.execute(_MARK, {"kind": kind}).scalar_one()
    found = text(f"/* audit.walk_{kind} */ {statement}")
    rows = connection.execute(found, {"mark": mark, "stretch": stretch}).all()
    end = rows[-1].key if len(rows) == stretch else 0
    connection.execute(_SET_MARK, {"kind": kind, "mark": end})
    return [row.key for row in rows if row.suspect]


_MARK = text("/* audit.mark */ SELECT mark FROM duehook.audit_marks WHERE kind = :kind")
_SET_MARK = text("/* audit.set_mark */ UPDATE duehook.audit_marks SET mark = :mark WHERE kind = :kind")
