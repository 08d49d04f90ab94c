"""What is asked for a replay."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from app.api.bodies import Body
from app.api.fields import Time, not_before_since

Status = Literal["dead", "cancelled", "delivered"]


class Replay(Body):
    """Which events, by their creation, and which of those that the endpoint has had."""

    since: Time = Field(description="From then on.")
    until: Time | None = Field(None, description="Up to then; up to now when left out.")
    status: Annotated[list[Status], Field(max_length=3)] = Field(
        ["dead", "cancelled"], description="Re-open deliveries of these; what is missing is made in any case."
    )

    _forward = field_validator("until")(not_before_since)
