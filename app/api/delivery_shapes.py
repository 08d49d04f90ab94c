"""How a delivery is asked for, and how it is answered."""

from pydantic import BaseModel, Field

from app.api.answers import Value
from app.api.fields import CreatedAt, EndpointId, EventId, NextCursor, Time, UpdatedAt, example
from app.api.paging import Listing
from app.domain.identity import public_id
from app.domain.states import DeliveryStatus, Outcome
from app.ledger.by_hand import Attempt, Delivery

ATTEMPT = {
    "number": 1,
    "outcome": "refused",
    "status_code": 404,
    "started_at": "2030-01-31T12:00:00.012000Z",
    "ended_at": "2030-01-31T12:00:00.250000Z",
    "address": "203.0.113.7",
    "key_ids": ["key_1a"],
    "error": None,
    "excerpt": "no such hook",
    "location": None,
    "retry_after": None,
}
DELIVERY = {
    "id": "dlv_19f3c2a9b4d00a32",
    "event_id": "evt_19f3c2a9b4d00a31",
    "endpoint_id": "end_1f",
    "status": "scheduled",
    "attempt": 1,
    "next_attempt_at": "2030-01-31T12:05:00.250000Z",
    "parked": False,
    "lease_until": None,
    "reason": None,
    "created_at": "2030-01-31T12:00:00.000000Z",
    "updated_at": "2030-01-31T12:00:00.250000Z",
    "delivered_at": None,
}


class AttemptView(BaseModel):
    """One claim and what came of it."""

    number: int = Field(description="Receivers see it as duehook-attempt; counts claims from 1.")
    outcome: Outcome = Field(
        description="delivered (2xx), gone (410), rejected (401, 403), redirected (3xx), refused (other 4xx), throttled"
        " (429, 503 with Retry-After), failed (other answers), unreached (nothing arrived), unknown (it may have"
        " arrived), blocked (the address is not allowed), abandoned (it ended without a record)."
    )
    status_code: int | None = Field(description="Of the receiver's answer; null when there was none.")
    started_at: Time = Field(description="When it was claimed to be sent.")
    ended_at: Time | None = Field(description="When it was over; null when nobody recorded it.")
    address: str | None = Field(description="Where it was sent to; null when no connection was made.")
    key_ids: list[str] = Field(description="Which secrets signed it.")
    error: str | None = Field(
        description="Where it ended without an answer, and why: `resolve`, `address`, `proxy`, `connect` or `tls`"
        " before the send, `request` during it, `answer` once all of it had left; then a colon and words."
    )
    excerpt: str | None = Field(
        description="How the answer's body began, what is not UTF-8 replaced; null when there was none."
    )
    location: str | None = Field(description="Where a redirect pointed, which is never followed; null without one.")
    retry_after: float | None = Field(description="Seconds, as the receiver hinted; null when it did not.")


class DeliveryView(BaseModel):
    """An event on its way to an endpoint."""

    model_config = example(**DELIVERY)

    id: str = Field(description="dlv_ and digits; receivers get it as duehook-delivery-id.")
    event_id: str = Field(description="Of the event that is delivered.")
    endpoint_id: str = Field(description="Of the endpoint that it goes to.")
    status: DeliveryStatus = Field(
        description="scheduled for its next attempt, leased while in the air, and then delivered, dead or cancelled."
    )
    attempt: int = Field(description="Claims so far: what receivers see as duehook-attempt.")
    next_attempt_at: Time | None = Field(description="When it is sent next; null unless it is scheduled.")
    parked: bool = Field(description="Due, and waiting for its endpoint: see its status and paced_until.")
    lease_until: Time | None = Field(description="Until when a worker has it; null unless it is leased.")
    reason: str | None = Field(description="Why it is dead; null when it is not.")
    created_at: CreatedAt
    updated_at: UpdatedAt
    delivered_at: Time | None = Field(description="When its receiver accepted it; null until then.")


class DeliveryWithAttempts(DeliveryView):
    """The same with its last attempts, in the order they were made."""

    model_config = example(**DELIVERY, attempts=[ATTEMPT])

    attempts: list[AttemptView] = Field(description="The last hundred.")


class Deliveries(BaseModel):
    """A page of deliveries."""

    model_config = example(data=[DELIVERY], next_cursor=None)

    data: list[DeliveryView] = Field(description="The deliveries of this page.")
    next_cursor: NextCursor


class Filter(Listing):
    """Which deliveries."""

    status: DeliveryStatus | None = Field(None, description="Only those of this status.")
    endpoint_id: EndpointId | None = Field(None, description="Only those to this endpoint, a deleted one too.")
    event_id: EventId | None = Field(None, description="Only those of this event.")


def view(delivery: Delivery) -> dict[str, Value]:
    """A delivery as it is answered, without its attempts."""
    waits = delivery.status is DeliveryStatus.SCHEDULED
    return {
        "id": public_id("dlv", delivery.id),
        "event_id": public_id("evt", delivery.event),
        "endpoint_id": public_id("end", delivery.endpoint),
        "status": delivery.status,
        "attempt": delivery.attempt,
        "next_attempt_at": delivery.next_attempt_at if waits else None,
        "parked": delivery.parked,
        "lease_until": delivery.lease_until,
        "reason": delivery.reason,
        "created_at": delivery.created_at,
        "updated_at": delivery.updated_at,
        "delivered_at": delivery.delivered_at,
    }


def attempt_view(attempt: Attempt) -> dict[str, Value]:
    """An attempt as it is answered."""
    return {
        "number": attempt.number,
        "outcome": attempt.outcome,
        "status_code": attempt.status_code,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "address": attempt.address,
        "key_ids": attempt.key_ids,
        "error": attempt.error,
        "excerpt": None if attempt.excerpt is None else attempt.excerpt.decode(errors="replace"),
        "location": attempt.location,
        "retry_after": None if attempt.retry_after is None else attempt.retry_after.total_seconds(),
    }
