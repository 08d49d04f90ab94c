"""What is asked for an endpoint, and how it is answered."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from app.api.bodies import Body
from app.api.fields import Pattern, Text, Time
from app.core.endpoints import OVERLAP
from app.core.vetting import MASK
from app.ledger.endpoints import Endpoint
from app.ledger.paces import Shown
from app.ledger.sealing import Sealer

LONGEST_OVERLAP = 7 * 24 * 3600
LONGEST_STEP = 366 * 24 * 3600

Patterns = Annotated[list[Pattern], Field(min_length=1, max_length=100)]
Signing = Literal["hmac", "ed25519"]
Headers = dict[str, str]
Rate = Annotated[float, Field(ge=0.001, le=100_000)]  # a slot in a thousand seconds is still a slot
InFlight = Annotated[int, Field(ge=1, le=10_000)]
Schedule = Annotated[list[Annotated[float, Field(ge=0, le=LONGEST_STEP)]], Field(max_length=50)]
Description = Annotated[Text, Field(max_length=1000)]


class NewEndpoint(Body):
    """Where events go, and which."""

    url: str = Field(repr=False, description="http or https; a literal address must be public or allowed by setting.")
    event_types: Patterns = Field(description="Types, prefixes with .*, or *.")
    description: Description | None = None
    headers: Headers | None = Field(
        None, repr=False, description="Sent with every delivery; kept sealed, answered masked."
    )
    secret: str | None = Field(
        None,
        repr=False,
        description="whsec_ and base64 of 24 to 64 bytes (hmac), or whsk_ and of 32 (ed25519); made when left out.",
    )
    signing: Signing = "hmac"
    rate_per_second: Rate | None = None
    max_in_flight: InFlight | None = None
    retry_schedule: Schedule | None = Field(
        None,
        description="Seconds before each retry; n of them are n + 1 attempts. Left out: 5, 60, 300, 1800, 7200, 18000,"
        " 36000, 86400, and after a 3xx or 4xx 300, 3600, 21600, 86400.",
    )


class EndpointChange(Body):
    """What is to be different; what is left out stays. `headers` are replaced as a whole."""

    url: str | None = Field(None, repr=False)
    event_types: Patterns | None = None
    description: Description | None = None
    headers: Headers | None = Field(None, repr=False)
    signing: Signing | None = Field(
        None,
        description="Another way brings a new secret, to be read at /v1/endpoints/{id}/secret;"
        " the old ones sign beside it for a day.",
    )
    rate_per_second: Rate | None = None
    max_in_flight: InFlight | None = None
    retry_schedule: Schedule | None = None


class Rotation(Body):
    """How long the live secrets go on signing beside the new one."""

    overlap_seconds: float = Field(OVERLAP.total_seconds(), ge=0, le=LONGEST_OVERLAP)


class EndpointView(BaseModel):
    """An endpoint; header values are masked."""

    id: str
    url: str
    event_types: list[str]
    description: str | None
    headers: Headers
    signing: Signing
    status: Literal["enabled", "disabled"]
    disabled_reason: str | None
    disabled_at: Time | None
    flagged: bool
    rate_per_second: float | None
    max_in_flight: int | None
    retry_schedule: list[float] | None
    paced_until: Time | None = Field(description="Nothing is sent before; null when nothing holds it up.")
    paced_reason: Literal["rate_per_second", "retry_after", "failing"] | None
    created_at: Time


class CreatedView(EndpointView):
    """A new endpoint with its secret."""

    secret: str


class SecretView(BaseModel):
    """What a receiver verifies signatures with: whsec_, or for ed25519 the public key, whpk_."""

    secret: str


class RotatedView(SecretView):
    """The new secret, and when the last of the old ones ends."""

    previous_expires_at: Time | None


class Endpoints(BaseModel):
    """A page of endpoints, newest first."""

    data: list[EndpointView]
    next_cursor: str | None


def view(endpoint: Endpoint, sealer: Sealer, pace: Shown | None = None) -> dict[str, Any]:
    """An endpoint as it is answered; `pace` is what holds it up just now."""
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "event_types": endpoint.event_types,
        "description": endpoint.description,
        "headers": dict.fromkeys(sealer.open_headers(endpoint.headers), MASK),
        "signing": endpoint.signing,
        "status": endpoint.status,
        "disabled_reason": endpoint.disabled_reason,
        "disabled_at": endpoint.disabled_at,
        "flagged": endpoint.flagged,
        "rate_per_second": endpoint.rate_per_second,
        "max_in_flight": endpoint.max_in_flight,
        "retry_schedule": endpoint.retry_schedule,
        "paced_until": pace and pace.until,
        "paced_reason": pace and pace.why,
        "created_at": endpoint.created_at,
    }
