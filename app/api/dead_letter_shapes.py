"""How dead letters are asked for, and how they are answered."""

from pydantic import BaseModel, Field, model_validator

from app.api.bodies import Body
from app.api.delivery_shapes import AttemptView, DeliveryView
from app.api.fields import EndpointId, Time
from app.api.paging import Listing
from app.domain.states import DeadReason
from app.domain.steps import FASTEST, SLOWEST


class DeadLetterView(DeliveryView):
    """A delivery that is dead, and since when."""

    died_at: Time


class DeadLetterWithAttempts(DeadLetterView):
    """The same with its last attempts, in the order they were made."""

    attempts: list[AttemptView]


class DeadLetters(BaseModel):
    """A page of dead letters, the last to die first."""

    data: list[DeadLetterView]
    next_cursor: str | None


class Filter(Listing):
    """Which dead letters."""

    reason: DeadReason | None = Field(None, description="Only those that died of this.")
    endpoint_id: EndpointId | None = Field(None, description="Only those to this endpoint, a deleted one too.")


class RedriveFilter(Body):
    """Which dead letters; {} is all of them."""

    reason: DeadReason | None = Field(None, strict=False, description="Only those that died of this.")
    endpoint_id: EndpointId | None = Field(None, description="Only those to this endpoint.")
    since: Time | None = Field(None, description="Only those that died then or later.")
    until: Time | None = Field(None, description="Only those that died then or earlier.")

    @model_validator(mode="after")
    def _forward(self) -> "RedriveFilter":
        if self.since and self.until and self.until < self.since:
            raise ValueError("until lies before since")
        return self


class Redrive(Body):
    """What is to be tried again, and how fast."""

    filter: RedriveFilter
    rate_per_second: float | None = Field(
        None, ge=SLOWEST, le=FASTEST, description="Re-opened a second at most; 1,000 when left out."
    )
    dry_run: bool = Field(False, description="Count what matches, and do nothing.")


class Matching(BaseModel):
    """What a redrive would try again now. `more`: at least that many, for not all could be looked through."""

    matching: int
    more: bool
