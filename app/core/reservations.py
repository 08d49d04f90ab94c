"""Reservations: hold, confirm, release, expire."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection, Engine

from app import metrics
from app.core.sets import Looked, look, settled
from app.domain.states import ReservationStatus
from app.domain.wakeups import Answer
from app.ledger import reservations
from app.ledger.reservations import Reservation


@dataclass(frozen=True, slots=True)
class Hold:
    """What a client asks to have held; `request` is the same as it was sent, to tell a repeat from another."""

    resource: str
    id: str | None = None
    hold_seconds: float | None = None
    expires_at: datetime | None = None
    exclusive: bool = False
    data: str | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The reservation; `made` is false when the same request had made it before."""

    reservation: Reservation
    made: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The state says no; `why` is a sentence for the client."""

    why: str


def hold(connection: Connection, tenant: str, request: Hold) -> Held | Refused:
    """Hold capacity; a repeat with the same id and request finds the first one's reservation."""
    held = reservations.hold(
        connection,
        tenant,
        resource=request.resource,
        reservation_id=request.id,
        hold_seconds=request.hold_seconds,
        expires_at=request.expires_at,
        exclusive=request.exclusive,
        data=request.data,
        request=request.request,
    )
    if isinstance(held, Reservation):
        return Held(held, made=True)
    existing = reservations.find(connection, tenant, request.id) if request.id else None
    if existing is not None and request.request is not None and existing.request == request.request:
        return Held(existing, made=False)
    if existing is not None:
        return Refused(f"{existing.id} exists and was asked for differently; use another id")
    return Refused("the resource has a held or confirmed exclusive reservation")


def confirm(connection: Connection, tenant: str, reservation_id: str) -> Reservation | Refused | None:
    """Confirm one before its time runs out; a late confirm loses, and expires it here and now.

    Returns the reservation (a repeat changes nothing), why not, or None when there is none.
    """
    moved = reservations.move(connection, tenant, reservation_id, ReservationStatus.CONFIRMED)
    if isinstance(moved, reservations.Late):
        reservations.move(connection, tenant, reservation_id, ReservationStatus.EXPIRED)
    return _answer(connection, tenant, reservation_id, moved, "confirmed")


def release(connection: Connection, tenant: str, reservation_id: str) -> Reservation | Refused | None:
    """Give capacity back, held or confirmed; same answers as `confirm`."""
    moved = reservations.move(connection, tenant, reservation_id, ReservationStatus.RELEASED)
    return _answer(connection, tenant, reservation_id, moved, "released")


def _answer(
    connection: Connection,
    tenant: str,
    reservation_id: str,
    moved: Reservation | reservations.Late | reservations.Illegal | None,
    wanted: str,
) -> Reservation | Refused | None:
    if moved is None or isinstance(moved, Reservation):
        return moved
    now = reservations.find(connection, tenant, reservation_id)
    return now and Refused(f"{reservation_id} is {now.status} and can't become {wanted}")


def expire(engine: Engine, seqs: Sequence[int]) -> Looked:
    """Expire what is due of `seqs`, hundreds in one transaction with their events; see `look`."""
    late: dict[int, timedelta] = {}
    looked = look(engine, seqs, partial(_expire, late=late))
    for seq in looked.of(Answer.TAKEN):
        metrics.EXPIRY_LAG.observe(late[seq].total_seconds())
    return looked


def _expire(connection: Connection, seqs: Sequence[int], late: dict[int, timedelta]) -> dict[int, Answer]:
    expired = reservations.expire(connection, seqs)
    late |= expired
    rest = [seq for seq in seqs if seq not in expired]
    return settled(seqs, expired, reservations.still_held(connection, rest) if rest else {})
