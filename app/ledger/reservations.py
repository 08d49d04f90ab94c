"""Reservations: held until their time, then confirmed, released or expired, each exactly once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg import errors
from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from app.domain.states import ReservationStatus
from app.ledger.database import sqlstate

ILLEGAL, LATE = "DH001", "DH002"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A row of `duehook.reservations`; `overdue` is judged by the database's clock at the time of reading."""

    id: str
    resource: str
    status: ReservationStatus
    version: int
    expires_at: datetime
    overdue: bool
    exclusive: bool
    data: str | None
    request: str | None
    created_at: datetime
    updated_at: datetime


_COLUMNS = """id, resource, status, version, expires_at, status = 'held' AND expires_at <= duehook.now() AS overdue,
    exclusive, data::text AS data, request, created_at, updated_at"""


class Taken:
    """The resource has a held or confirmed exclusive reservation."""


_HOLD = text(f"""/* reservations.hold */
    INSERT INTO duehook.reservations (tenant, id, resource, expires_at, exclusive, data, request)
    VALUES (:tenant, coalesce(:id, 'rsv_' || to_hex(duehook.next_id())), :resource,
            coalesce(CAST(:expires_at AS timestamptz), duehook.now() + make_interval(secs => :hold_seconds)),
            :exclusive, CAST(:data AS json), :request)
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING {_COLUMNS}""")


def hold(
    connection: Connection,
    tenant: str,
    *,
    resource: str,
    reservation_id: str | None = None,
    hold_seconds: float | None = None,
    expires_at: datetime | None = None,
    exclusive: bool = False,
    data: str | None = None,
    request: str | None = None,
) -> Reservation | Taken | None:
    """Hold `resource` until `expires_at`, or for `hold_seconds` from now by the database's clock.

    Returns the new reservation; `Taken` when it asks for an exclusive one and the resource has one (an overdue
    holder is expired first); None when the id exists.
    """
    parameters = {
        "tenant": tenant,
        "id": reservation_id,
        "resource": resource,
        "hold_seconds": hold_seconds,
        "expires_at": expires_at,
        "exclusive": exclusive,
        "data": data,
        "request": request,
    }
    try:
        with connection.begin_nested():
            row = connection.execute(_HOLD, parameters).one_or_none()
    except IntegrityError as error:
        if _constraint(error) != "reservations_exclusive":
            raise
        return Taken()
    return None if row is None else _reservation(row)


_FIND = text(f"/* reservations.find */ SELECT {_COLUMNS} FROM duehook.reservations WHERE tenant = :tenant AND id = :id")


def find(connection: Connection, tenant: str, reservation_id: str) -> Reservation | None:
    """The reservation as it stands; None when the tenant has none of that id."""
    row = connection.execute(_FIND, {"tenant": tenant, "id": reservation_id}).one_or_none()
    return None if row is None else _reservation(row)


_LOAD = text(f"""/* reservations.load */
    SELECT seq, {_COLUMNS} FROM duehook.reservations WHERE seq = ANY (CAST(:seqs AS bigint[]))""")


def load(connection: Connection, seqs: Sequence[int]) -> dict[int, Reservation]:
    """Reservations by seq."""
    return {row.seq: _reservation(row) for row in connection.execute(_LOAD, {"seqs": list(seqs)})}


_MOVE = text(f"""/* reservations.move */
    UPDATE duehook.reservations SET status = :status WHERE tenant = :tenant AND id = :id RETURNING {_COLUMNS}""")


class Late:
    """Confirmed too late: the database's clock has passed `expires_at`."""


class Illegal:
    """Another transition won."""


def move(
    connection: Connection, tenant: str, reservation_id: str, status: ReservationStatus
) -> Reservation | Late | Illegal | None:
    """Confirm, release or expire one; the database decides, by its clock, after the row lock.

    Returns the reservation as it is now (a repeat changes nothing); `Late` or `Illegal` when it may not, and the
    transaction goes on; None when there is none, or when it is too early to expire it.
    """
    parameters = {"tenant": tenant, "id": reservation_id, "status": status}
    try:
        with connection.begin_nested():
            row = connection.execute(_MOVE, parameters).one_or_none()
    except DBAPIError as error:
        if sqlstate(error) == LATE:
            return Late()
        if sqlstate(error) == ILLEGAL:
            return Illegal()
        raise
    return None if row is None else _reservation(row)


# FOR UPDATE in order of id, passing over what somebody's open transaction holds: that delays its own reservation
# alone. Rows that are not due yet the trigger leaves as they are.
_EXPIRE = text("""/* reservations.expire */
    WITH open AS MATERIALIZED (
        SELECT seq FROM duehook.reservations
         WHERE seq = ANY (CAST(:seqs AS bigint[])) AND status = 'held' ORDER BY seq FOR UPDATE SKIP LOCKED)
    UPDATE duehook.reservations SET status = 'expired' WHERE seq = ANY (ARRAY(SELECT seq FROM open))
    RETURNING seq, updated_at - expires_at AS late""")


def expire(connection: Connection, seqs: Sequence[int]) -> dict[int, timedelta]:
    """Expire those of `seqs` that are held and due, in one statement with their events; how late each of them is."""
    return {row.seq: row.late for row in connection.execute(_EXPIRE, {"seqs": list(seqs)})}


_OPEN = text("""/* reservations.still_held */
    SELECT seq, expires_at <= duehook.now() AS due FROM duehook.reservations
     WHERE seq = ANY (CAST(:seqs AS bigint[])) AND status = 'held'""")


def still_held(connection: Connection, seqs: Sequence[int]) -> dict[int, bool]:
    """Those of `seqs` that are held still, and whether they are due."""
    return {row.seq: row.due for row in connection.execute(_OPEN, {"seqs": list(seqs)})}


def _reservation(row: Row[Any]) -> Reservation:
    fields = {**row._mapping, "status": ReservationStatus(row.status)}
    fields.pop("seq", None)
    return Reservation(**fields)


def _constraint(error: IntegrityError) -> str | None:
    return error.orig.diag.constraint_name if isinstance(error.orig, errors.UniqueViolation) else None
