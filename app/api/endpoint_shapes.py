"""What is asked for an endpoint, and how it is answered."""

from typing import Annotated, Any, Literal

import structlog
from pydantic import BaseModel, Field

from app.api.bodies import Body
from app.api.fields import CreatedAt, NextCursor, Pattern, Text, Time, Whole, example
from app.core.endpoints import OVERLAP
from app.core.vetting import MASK
from app.domain.urls import MAX_HEADER_NAME_CHARACTERS, MAX_HEADERS, MAX_URL_CHARACTERS
from app.ledger.endpoints import Endpoint
from app.ledger.paces import Shown
from app.ledger.sealing import Sealer, WrongKeyError

LONGEST_OVERLAP = 7 * 24 * 3600
LONGEST_STEP = 366 * 24 * 3600

log = structlog.get_logger("duehook.api")
ENDPOINT = {
    "id": "end_1f",
    "url": "https://shop.example/hooks",
    "event_types": ["order.*", "reservation.expired"],
    "description": "The shop",
    "headers": {"authorization": MASK},
    "signing": "hmac",
    "status": "enabled",
    "disabled_reason": None,
    "disabled_at": None,
    "flagged": False,
    "rate_per_second": 50.0,
    "max_in_flight": None,
    "retry_schedule": None,
    "paced_until": None,
    "paced_reason": None,
    "created_at": "2030-01-31T12:00:00.000000Z",
}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the examples of Standard Webhooks

Patterns = Annotated[list[Pattern], Field(min_length=1, max_length=100)]
Signing = Literal["hmac", "ed25519"]
Url = Annotated[str, Field(json_schema_extra={"format": "uri", "maxLength": MAX_URL_CHARACTERS})]
Headers = Annotated[
    dict[str, str],
    Field(
        json_schema_extra={
            "maxProperties": MAX_HEADERS,
            "propertyNames": {"format": "header-name", "maxLength": MAX_HEADER_NAME_CHARACTERS},
            "additionalProperties": {"type": "string", "pattern": r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$"},
        }
    ),
]
Secret = Annotated[str, Field(json_schema_extra={"format": "signing-secret"})]
Rate = Annotated[float, Field(ge=0.001, le=100_000)]  # a slot in a thousand seconds is still a slot
InFlight = Annotated[int, Field(ge=1, le=10_000), Whole]
Schedule = Annotated[list[Annotated[float, Field(ge=0, le=LONGEST_STEP)]], Field(max_length=50)]
Description = Annotated[Text, Field(max_length=1000)]

_URL = (
    "http or https, without user name, password or fragment; a literal address must be public, or in"
    " DUEHOOK_ALLOWED_NETWORKS of the service."
)
_HEADERS = (
    "Sent with every delivery; kept sealed, answered masked. Not those the service sets itself: host, user-agent,"
    " accept and accept-encoding, expect, hop-by-hop ones, content-, transfer-, proxy-, webhook- and duehook-. No two"
    " names that differ in case alone; 8,192 bytes at most."
)
_REPLAYED = "Null in an answer that is replayed for its Idempotency-Key."
_SIGNING = "hmac signs with a secret that both sides hold (v1), ed25519 with a key pair (v1a)."
_RATE = "Requests a second at most, over the whole fleet; null is no limit."
_IN_FLIGHT = "Requests in the air at once at most, over the whole fleet; null leaves it to the service."
_SCHEDULE = (
    "Seconds before each retry; n of them are n + 1 attempts. Null: 5, 60, 300, 1800, 7200, 18000, 36000, 86400, and"
    " after a 3xx or 4xx 300, 3600, 21600, 86400."
)


class NewEndpoint(Body):
    """Where events go, and which."""

    url: Url = Field(repr=False, description=_URL)
    event_types: Patterns = Field(description="Types, prefixes with .*, or *.")
    description: Description | None = Field(None, description="For your own eyes.")
    headers: Headers | None = Field(None, repr=False, description=_HEADERS)
    secret: Secret | None = Field(
        None,
        repr=False,
        description="whsec_ and base64 of 24 to 64 bytes (hmac), or whsk_ and of 32 (ed25519); made when left out.",
    )
    signing: Signing = Field("hmac", description=_SIGNING)
    rate_per_second: Rate | None = Field(None, description=_RATE)
    max_in_flight: InFlight | None = Field(None, description=_IN_FLIGHT)
    retry_schedule: Schedule | None = Field(None, description=_SCHEDULE)


def _no_defaults(schema: dict[str, Any]) -> None:
    for member in schema["properties"].values():
        member.pop("default", None)


class EndpointChange(Body, json_schema_extra=_no_defaults):
    """What is to be different; what is left out stays. `headers` are replaced as a whole."""

    url: Url = Field("", repr=False, description=_URL)
    event_types: Patterns = Field([], description="Types, prefixes with .*, or *.")
    description: Description | None = Field(None, description="For your own eyes; null removes it.")
    headers: Headers | None = Field(
        None, repr=False, description=f"{_HEADERS} Null removes them; a masked value is refused."
    )
    signing: Signing = Field(
        "hmac",
        description=f"{_SIGNING} Another way brings a new secret, to be read at /v1/endpoints/{{id}}/secret;"
        " the old ones sign beside it for a day.",
    )
    rate_per_second: Rate | None = Field(None, description=_RATE)
    max_in_flight: InFlight | None = Field(None, description=_IN_FLIGHT)
    retry_schedule: Schedule | None = Field(None, description=_SCHEDULE)


class Rotation(Body):
    """How long the live secrets go on signing beside the new one."""

    overlap_seconds: float = Field(
        OVERLAP.total_seconds(), ge=0, le=LONGEST_OVERLAP, description="Seconds; 0 ends them at once."
    )


class EndpointView(BaseModel):
    """A subscriber's URL, and how it is delivered to."""

    model_config = example(**ENDPOINT)

    id: str = Field(description="end_ and digits.")
    url: str = Field(description="Where events go.")
    event_types: list[str] = Field(description="Which: types, prefixes with .*, or *.")
    description: str | None = Field(description="Its owner's words; null without any.")
    headers: dict[str, str] | None = Field(
        description=f"Names, and {MASK} for each value; null while the service can't open them, for want of the key"
        " that they are sealed under."
    )
    signing: Signing = Field(description=_SIGNING)
    status: Literal["enabled", "disabled"] = Field(description="What waits for a disabled one goes on waiting.")
    disabled_reason: str | None = Field(
        description="requested (by its owner), gone (it answered 410), or failing: and how often in a row it has failed"
        " since when, and what came back last. Null while it is enabled."
    )
    disabled_at: Time | None = Field(description="Since when it is disabled; else null.")
    flagged: bool = Field(description="It has answered 401 or 403: look after it. Enabling it clears the flag.")
    rate_per_second: float | None = Field(description=_RATE)
    max_in_flight: int | None = Field(description=_IN_FLIGHT)
    retry_schedule: list[float] | None = Field(description=_SCHEDULE)
    paced_until: Time | None = Field(description="Nothing is sent before; null when nothing holds it up.")
    paced_reason: Literal["rate_per_second", "retry_after", "failing"] | None = Field(
        description="What holds it up: its own rate, its receiver's hint, or its failures; else null."
    )
    created_at: CreatedAt


class CreatedView(EndpointView):
    """A new endpoint with its secret."""

    model_config = example(**ENDPOINT, secret=SECRET)

    secret: str | None = Field(
        description=f"What a receiver verifies signatures with: whsec_, or for ed25519 whpk_. {_REPLAYED}"
    )


class SecretView(BaseModel):
    """What a receiver verifies signatures with."""

    model_config = example(secret=SECRET)

    secret: str = Field(description="whsec_, or for ed25519 the public key, whpk_.")


class RotatedView(BaseModel):
    """The new secret, and when the last of the old ones ends."""

    model_config = example(secret=SECRET, previous_expires_at="2030-02-01T12:00:00.000000Z")

    secret: str | None = Field(description=f"As `GET /v1/endpoints/{{id}}/secret` answers it. {_REPLAYED}")
    previous_expires_at: Time | None = Field(description="When the last of the old ones ends; null if none is left.")


class Endpoints(BaseModel):
    """A page of endpoints, newest first."""

    model_config = example(data=[ENDPOINT], next_cursor=None)

    data: list[EndpointView] = Field(description="The endpoints of this page.")
    next_cursor: NextCursor


def view(endpoint: Endpoint, sealer: Sealer, pace: Shown | None = None) -> dict[str, Any]:
    """An endpoint as it is answered; `pace` is what holds it up just now."""
    return {
        "id": endpoint.id,
        "url": endpoint.url,
        "event_types": endpoint.event_types,
        "description": endpoint.description,
        "headers": _masked(endpoint, sealer),
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


def _masked(endpoint: Endpoint, sealer: Sealer) -> dict[str, str] | None:
    """None for what can't be opened: one such endpoint must not hide all others of a page."""
    try:
        return dict.fromkeys(sealer.open_headers(endpoint.headers), MASK)
    except (WrongKeyError, ValueError):
        log.error("headers_not_opened", endpoint=endpoint.id)
        return None
