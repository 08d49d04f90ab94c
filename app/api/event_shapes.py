"""What is asked for an event, and how it is answered."""

from typing import Any

from pydantic import BaseModel, Field, model_validator

from app.api.answers import Json, write
from app.api.bodies import Body
from app.api.fields import TEN_YEARS, EventType, Name, Time
from app.ledger.events import Event


class NewEvent(Body):
    """What happened. At most one of `deliver_at` and `delay_seconds`; neither is now, and so is the past."""

    type: EventType
    key: Name | None = Field(None, description="Its business identity: a second one of the same key is a repeat.")
    data: Any = Field(description="Any JSON; every receiver gets these bytes.")
    deliver_at: Time | None = Field(None, description="At most ten years ahead.")
    delay_seconds: float | None = Field(None, ge=0, le=TEN_YEARS)

    @model_validator(mode="after")
    def _one_time(self) -> "NewEvent":
        if self.deliver_at is not None and self.delay_seconds is not None:
            raise ValueError("give either deliver_at or delay_seconds")
        return self


class AcceptedView(BaseModel):
    """An accepted event; `deliveries` is 0 until it is fanned out."""

    id: str
    type: str
    key: str | None
    created_at: Time
    due_at: Time
    deliveries: int


class EventView(AcceptedView):
    """An event as it is kept."""

    cancelled_at: Time | None
    erased_at: Time | None = Field(description="Since when its data is gone; `data` is null then.")
    data: Any


class AcceptedMany(BaseModel):
    """Accepted events, in the order in which they were sent."""

    data: list[AcceptedView]


class Events(BaseModel):
    """A page of events, newest first."""

    data: list[EventView]
    next_cursor: str | None


class CancelledView(BaseModel):
    """How many deliveries the cancel ended, how many are in the air, how many were finished before."""

    cancelled: int
    in_flight: int
    finished: int


def accepted_view(event: Event) -> dict[str, Any]:
    """An event as its producer is answered."""
    return {
        "id": event.id,
        "type": event.type,
        "key": event.key,
        "created_at": event.created_at,
        "due_at": event.due_at,
        "deliveries": event.deliveries,
    }


def show(event: Event) -> Json:
    """The text of an event as it is kept."""
    times = {"cancelled_at": event.cancelled_at, "erased_at": event.erased_at}
    return Json(write({**accepted_view(event), **times, "data": None if event.data is None else Json(event.data)}))
