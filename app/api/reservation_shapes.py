"""What is asked for a reservation, and how it is answered."""

from typing import Any

from pydantic import BaseModel, Field, model_validator

from app.api.answers import Json, write
from app.api.bodies import Body
from app.api.fields import LONGEST_HOLD, Name, ReservationId, Text, Time
from app.api.paging import Listing
from app.domain.states import ReservationStatus
from app.ledger.reservations import Reservation


class NewReservation(Body):
    """Capacity to be held. Exactly one of `hold_seconds` and `expires_at`; which one is sent, tells a repeat."""

    id: ReservationId | None = Field(None, description="Your own, to make a repeat harmless.")
    resource: Name
    hold_seconds: float | None = Field(None, gt=0, le=LONGEST_HOLD)
    expires_at: Time | None = None
    exclusive: bool = Field(False, description="At most one held or confirmed exclusive one per resource.")
    data: Any = Field(None, description="Any JSON; answered, and sent in events, byte for byte.")

    @model_validator(mode="after")
    def _one_end(self) -> "NewReservation":
        if (self.hold_seconds is None) == (self.expires_at is None):
            raise ValueError("give either hold_seconds or expires_at")
        return self


class ReservationView(BaseModel):
    """A reservation. `overdue` is a held one whose time has passed and which nobody has expired yet."""

    id: str
    resource: str
    status: ReservationStatus
    version: int
    expires_at: Time
    overdue: bool
    exclusive: bool
    data: Any
    created_at: Time
    updated_at: Time


class Reservations(BaseModel):
    """A page of reservations, newest first."""

    data: list[ReservationView]
    next_cursor: str | None


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
