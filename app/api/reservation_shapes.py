"""What is asked for a reservation, and how it is answered."""

from typing import Any

from pydantic import BaseModel, Field, model_validator

from app.api.answers import Json, write
from app.api.bodies import Body
from app.api.fields import LONGEST_HOLD, CreatedAt, Name, NextCursor, ReservationId, Text, Time, UpdatedAt, example
from app.api.paging import Listing
from app.domain.states import ReservationStatus
from app.ledger.reservations import Reservation

RESERVATION = {
    "id": "rsv_8f31",
    "resource": "seat-14C",
    "status": "held",
    "version": 1,
    "expires_at": "2030-01-31T12:10:00.000000Z",
    "overdue": False,
    "exclusive": True,
    "data": {"cart": 7},
    "created_at": "2030-01-31T12:00:00.000000Z",
    "updated_at": "2030-01-31T12:00:00.000000Z",
}
_ONE_END = [
    {"required": ["hold_seconds"], "properties": {"hold_seconds": {"type": "number"}}},
    {"required": ["expires_at"], "properties": {"expires_at": {"type": "string"}}},
]


class NewReservation(Body, json_schema_extra={"oneOf": _ONE_END}):
    """Capacity to be held. Exactly one of `hold_seconds` and `expires_at`; which one is sent, tells a repeat."""

    id: ReservationId | None = Field(None, description="Your own, to make a repeat harmless; made when left out.")
    resource: Name = Field(description="What is held, as you call it.")
    hold_seconds: float | None = Field(
        None, gt=0, le=LONGEST_HOLD, description="For how long, from now on by the database's clock."
    )
    expires_at: Time | None = Field(None, description="Until when, instead; in the future. It never changes.")
    exclusive: bool = Field(False, description="At most one held or confirmed exclusive one per resource.")
    data: Any = Field(None, description="Any JSON; answered, and sent in events, byte for byte.")

    @model_validator(mode="after")
    def _one_end(self) -> "NewReservation":
        if (self.hold_seconds is None) == (self.expires_at is None):
            raise ValueError("give either hold_seconds or expires_at")
        return self


class ReservationView(BaseModel):
    """Capacity that is, or was, held until a time."""

    model_config = example(**RESERVATION)

    id: str = Field(description="rsv_ and letters or digits; unique in the tenant.")
    resource: str = Field(description="What is held.")
    status: ReservationStatus = Field(
        description="held until it is confirmed, released or expired; a confirmed one may still be released."
    )
    version: int = Field(description="1 when it was made, one more with each transition; by it, order its events.")
    expires_at: Time = Field(description="Until when it could be confirmed; never changes.")
    overdue: bool = Field(description="It is held, its time has passed, and nobody has expired it yet.")
    exclusive: bool = Field(description="No other exclusive one of this resource is held or confirmed.")
    data: Any = Field(description="What it was made with, byte for byte; null when it was left out.")
    created_at: CreatedAt
    updated_at: UpdatedAt


class Reservations(BaseModel):
    """A page of reservations, newest first."""

    model_config = example(data=[RESERVATION], next_cursor="cmVzZXJ2YXRpb25zLjQy")

    data: list[ReservationView] = Field(description="The reservations of this page.")
    next_cursor: NextCursor


class Filter(Listing):
    """Which reservations."""

    status: ReservationStatus | None = Field(None, description="Only those of this status.")
    resource: Text | None = Field(None, description="Only those of this resource.")


def view(reservation: Reservation) -> dict[str, Any]:
    """A reservation as it is answered."""
    return {
        "id": reservation.id,
        "resource": reservation.resource,
        "status": reservation.status,
        "version": reservation.version,
        "expires_at": reservation.expires_at,
        "overdue": reservation.overdue,
        "exclusive": reservation.exclusive,
        "data": None if reservation.data is None else Json(reservation.data),
        "created_at": reservation.created_at,
        "updated_at": reservation.updated_at,
    }


def show(reservation: Reservation) -> Json:
    """The text of it."""
    return Json(write(view(reservation)))
