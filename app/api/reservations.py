"""Reservations over HTTP: hold, look, confirm, release."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.responses import Response

from app.api.acting import act_on, perform
from app.api.answers import answer
from app.api.auth import Call, Producer
from app.api.bodies import Sent, parse
from app.api.fields import Id
from app.api.openapi import answers, takes
from app.api.paging import answer_page, place
from app.api.problems import BODY, CONFLICT, NOT_FOUND, Flaw, ProblemError, conflict, invalid
from app.api.reading import Nothing, WithData
from app.api.reservation_shapes import Filter, NewReservation, Reservations, ReservationView, show, view
from app.api.turns import InTurn
from app.core import reservations as core
from app.core.reservations import Held, Hold, Refused
from app.domain.identity import is_reservation_id
from app.ledger import listings, reservations
from app.ledger.reservations import Reservation

router = APIRouter(prefix="/v1/reservations", tags=["reservations"], route_class=InTurn)


EXAMPLE = {"id": "rsv_8f31", "resource": "seat-14C", "hold_seconds": 600, "data": {"cart": 7}}


@router.post(
    "",
    status_code=201,
    response_model=ReservationView,
    openapi_extra=takes(NewReservation, EXAMPLE),
    responses=answers(*BODY, CONFLICT, also={200: (ReservationView, "The same request had made it before.")}),
)
def hold(call: Producer, body: WithData) -> Response:
    """Hold capacity until a time; a repeat with the same id and members answers 200 and changes nothing."""
    sent = parse(NewReservation, body, most_data=call.runtime.settings.max_event_bytes)

    def work(connection: Connection) -> Response | ProblemError:
        held = _hold(connection, call.tenant, sent)
        if isinstance(held, Refused):
            return conflict(held.why)
        return answer(view(held.reservation), 201 if held.made else 200)

    return perform(call, work)


def _hold(connection: Connection, tenant: str, sent: Sent[NewReservation]) -> Held | Refused:
    """As the core does, but not what was over when it was made; a repeat may come later than its time."""
    held = core.hold(connection, tenant, _asked(sent))
    at = sent.asked.expires_at
    if at is not None and isinstance(held, Held) and at <= held.reservation.created_at:
        raise invalid(Flaw("/expires_at", "lies in the past"))
    return held


def _asked(sent: Sent[NewReservation]) -> Hold:
    return Hold(**sent.asked.model_dump(exclude={"data"}), data=sent.data, request=sent.canonical)


@router.get("", response_model=Reservations, responses=answers())
def newest(call: Producer, filters: Annotated[Filter, Query()]) -> Response:
    """Reservations, newest first. A filtered page may be short, or empty, and yet have a `next_cursor`."""
    (below,) = place("reservations", filters) or (listings.NEWEST,)
    with call.runtime.engine.begin() as connection:
        page = listings.reservations(
            connection,
            call.tenant,
            status=filters.status,
            resource=filters.resource,
            limit=filters.limit,
            below=below,
        )
        return answer_page("reservations", page, lambda seqs: reservations.load(connection, seqs), show)


@router.get("/{id}", response_model=ReservationView, responses=answers(NOT_FOUND))
def one(call: Producer, id: Id) -> Response:
    """One reservation as it stands."""
    return _on(call, id, reservations.find)


@router.post("/{id}/confirm", response_model=ReservationView, responses=answers(*BODY, NOT_FOUND, CONFLICT))
def confirm(call: Producer, id: Id, _: Nothing) -> Response:
    """Confirm a reservation in time, by the database's clock; a late confirm expires it and answers 409."""
    return _on(call, id, core.confirm)


@router.post("/{id}/release", response_model=ReservationView, responses=answers(*BODY, NOT_FOUND, CONFLICT))
def release(call: Producer, id: Id, _: Nothing) -> Response:
    """Release a reservation, held or confirmed: its capacity is free again."""
    return _on(call, id, core.release)


def _on(call: Call, id: str, act: Callable[[Connection, str, str], Reservation | Refused | None]) -> Response:
    key = id if is_reservation_id(id) else None
    return act_on(call, "reservation", key, act, lambda reservation: answer(view(reservation)))
