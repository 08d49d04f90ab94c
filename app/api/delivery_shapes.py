"""How a delivery is asked for, and how it is answered."""

from pydantic import BaseModel, Field

from app.api.answers import Value
from app.api.fields import EndpointId, EventId, Time
from app.api.paging import Listing
from app.domain.identity import public_id
from app.domain.states import DeliveryStatus, Outcome
from app.ledger.by_hand import Attempt, Delivery


class AttemptView(BaseModel):
    """One claim and what came of it; `abandoned` is one that ended without a record."""

    number: int
    outcome: Outcome
    status_code: int | None
    started_at: Time
    ended_at: Time | None
    address: str | None
    key_ids: list[str]
    error: str | None = Field(
        description="Where it ended without an answer, and why: `resolve`, `address`, `proxy`, `connect` or `tls`"
        " before the send, `request` during it, `answer` once all of it had left; then a colon and words."
    )
    excerpt: str | None = Field(description="How the answer's body began; what is not UTF-8 is replaced.")
    location: str | None
    retry_after: float | None = Field(description="Seconds, as the receiver hinted.")


class DeliveryView(BaseModel):
    """An event on its way to an endpoint."""

    id: str
    event_id: str
    endpoint_id: str
    status: DeliveryStatus
    attempt: int = Field(description="Claims so far: what receivers see as duehook-attempt.")
    next_attempt_at: Time | None
    parked: bool = Field(description="Due, and waiting for its endpoint: see its status and paced_until.")
    lease_until: Time | None
    reason: str | None = Field(description="Why it is dead.")
    created_at: Time
    updated_at: Time
    delivered_at: Time | None


class DeliveryWithAttempts(DeliveryView):
    """The same with its last attempts, in the order they were made."""

    attempts: list[AttemptView]


class Deliveries(BaseModel):
    """A page of deliveries."""

    data: list[DeliveryView]
    next_cursor: str | None


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
