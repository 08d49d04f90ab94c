"""How dead letters are asked for, and how they are answered."""

from pydantic import BaseModel, Field, field_validator

from app.api.bodies import Body
from app.api.delivery_shapes import ATTEMPT, DELIVERY, AttemptView, DeliveryView
from app.api.fields import EndpointId, NextCursor, Time, example, not_before_since
from app.api.paging import Listing
from app.domain.states import DeadReason
from app.domain.steps import FASTEST, SLOWEST

DEAD_LETTER = {
    **DELIVERY,
    "status": "dead",
    "next_attempt_at": None,
    "reason": "refused",
    "died_at": "2030-02-01T19:05:00.250000Z",
}


class DeadLetterView(DeliveryView):
    """A delivery that is dead, and since when."""

    model_config = example(**DEAD_LETTER)

    died_at: Time = Field(description="When it was given up.")


class DeadLetterWithAttempts(DeadLetterView):
    """The same with its last attempts, in the order they were made."""

    model_config = example(**DEAD_LETTER, attempts=[ATTEMPT])

    attempts: list[AttemptView] = Field(description="The last hundred.")


class DeadLetters(BaseModel):
    """A page of dead letters, the last to die first."""

    model_config = example(data=[DEAD_LETTER], next_cursor=None)

    data: list[DeadLetterView] = Field(description="The dead letters of this page.")
    next_cursor: NextCursor


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

    _forward = field_validator("until")(not_before_since)


class Redrive(Body):
    """What is to be tried again, and how fast."""

    filter: RedriveFilter = Field(description="Which dead letters; {} is all of them.")
    rate_per_second: float | None = Field(
        None, ge=SLOWEST, le=FASTEST, description="Re-opened a second at most; 1,000 when left out."
    )
    dry_run: bool = Field(False, description="Count what matches, and do nothing.")


class Matching(BaseModel):
    """What a redrive would try again now."""

    model_config = example(matching=12, more=False)

    matching: int = Field(description="Dead letters that match.")
    more: bool = Field(description="There may be more: not all could be looked through.")
