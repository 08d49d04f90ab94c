"""What is asked for an event, and how it is answered."""

from typing import Any

from pydantic import BaseModel, Field, model_validator

from app.api.answers import Json, write
from app.api.bodies import Body
from app.api.fields import TEN_YEARS, CreatedAt, EventType, Name, NextCursor, Time, example
from app.api.paging import Listing
from app.core.events import Accepted
from app.ledger.events import Event

ACCEPTED = {
    "id": "evt_19f3c2a9b4d00a31",
    "type": "order.placed",
    "key": "order-4711",
    "created_at": "2030-01-31T12:00:00.000000Z",
    "due_at": "2030-01-31T12:00:00.000000Z",
    "deliveries": 2,
}
EVENT = {**ACCEPTED, "cancelled_at": None, "erased_at": None, "data": {"order": 4711}}
_TWO_TIMES = {
    "required": ["deliver_at", "delay_seconds"],
    "properties": {"deliver_at": {"type": "string"}, "delay_seconds": {"type": "number"}},
}


class NewEvent(Body, json_schema_extra={"not": _TWO_TIMES}):
    """What happened. At most one of `deliver_at` and `delay_seconds`; neither is now, and so is the past."""

    type: EventType = Field(
        description="Words joined by dots, such as order.placed; not ping, nor under reservation. endpoint. or job."
    )
    key: Name | None = Field(None, description="Its business identity: a second one of the same key is a repeat.")
    data: Any = Field(description="Any JSON; every receiver gets these bytes.")
    deliver_at: Time | None = Field(None, description="When it is due, at most ten years ahead; the past is now.")
    delay_seconds: float | None = Field(None, ge=0, le=TEN_YEARS, description="Instead: due so many seconds from now.")

    @model_validator(mode="after")
    def _one_time(self) -> "NewEvent":
        if self.deliver_at is not None and self.delay_seconds is not None:
            raise ValueError("give either deliver_at or delay_seconds")
        return self


class AcceptedView(BaseModel):
    """An accepted event."""

    model_config = example(**ACCEPTED)

    id: str = Field(description="evt_ and digits; receivers get it as webhook-id, the same for ever.")
    type: str = Field(description="What happened.")
    key: str | None = Field(description="Its business identity; null when it has none.")
    created_at: CreatedAt
    due_at: Time = Field(description="When its deliveries are due.")
    deliveries: int = Field(description="To how many endpoints it goes; 0 until it is fanned out.")


class EventView(AcceptedView):
    """An event as it is kept."""

    model_config = example(**EVENT)

    cancelled_at: Time | None = Field(description="When it was cancelled; null when it was not.")
    erased_at: Time | None = Field(description="When its data was erased; `data` is null then.")
    data: Any = Field(description="What it was posted with, byte for byte.")


class AcceptedMany(BaseModel):
    """Accepted events, in the order in which they were sent."""

    model_config = example(data=[ACCEPTED])

    data: list[AcceptedView] = Field(description="One for each that was sent.")


class Events(BaseModel):
    """A page of events, newest first."""

    model_config = example(data=[EVENT], next_cursor=None)

    data: list[EventView] = Field(description="The events of this page.")
    next_cursor: NextCursor


class Filter(Listing):
    """Which events."""

    key: Name | None = Field(None, description="Only the one that was posted with this business key.")


class CancelledView(BaseModel):
    """What became of the deliveries of a cancelled event."""

    model_config = example(cancelled=3, in_flight=1, finished=2)

    cancelled: int = Field(description="Deliveries that are cancelled: nothing of them is sent any more.")
    in_flight: int = Field(description="Deliveries in the air: they end as delivered or cancelled.")
    finished: int = Field(description="Deliveries that were delivered or dead before.")


def accepted_view(event: Accepted | Event) -> dict[str, Any]:
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
