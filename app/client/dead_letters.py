"""Dead letters: look, try one again, or all that match. For operators' keys."""

from datetime import datetime

from app.client.calls import at, get, given, post, write
from app.client.carriers import Pages
from app.client.nouns import Carrier, Noun, lists, talks
from app.client.reading import one
from app.client.shapes import DeadLetter, Delivery, Job, Matching
from app.client.talks import Talk


class DeadLetters(Noun[Carrier]):
    """Deliveries that were given up; each goes by the id of its delivery."""

    @lists
    def list(
        self, *, reason: str | None = None, endpoint_id: str | None = None, page_size: int | None = None
    ) -> Pages[DeadLetter]:
        """All that match, the last to die first."""
        return self._pages(DeadLetter, at("dead-letters"), reason=reason, endpoint_id=endpoint_id, limit=page_size)

    @talks
    def get(self, delivery_id: str) -> Talk[DeadLetter]:
        """One with its attempts; NotFoundError when it is none of the dead."""
        return self._ask(get(at("dead-letters", delivery_id), one(DeadLetter)))

    @talks
    def redrive(self, delivery_id: str, *, idempotency_key: str | None = None) -> Talk[Delivery]:
        """Try one again, now and in a new round; ConflictError when it is none of the dead."""
        return self._ask(post(at("dead-letters", delivery_id, "redrive"), one(Delivery), key=idempotency_key))

    @talks
    def redrive_all(
        self,
        *,
        reason: str | None = None,
        endpoint_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        rate_per_second: float | None = None,
        idempotency_key: str | None = None,
    ) -> Talk[Job]:
        """Try again all that match and are dead now, at most so many a second; a job."""
        body = write({"filter": _filter(reason, endpoint_id, since, until), "rate_per_second": given(rate_per_second)})
        return self._ask(post(at("dead-letters", "redrive"), one(Job), body, idempotency_key))

    @talks
    def matching(
        self,
        *,
        reason: str | None = None,
        endpoint_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Talk[Matching]:
        """How many `redrive_all` would try again now; changes nothing."""
        body = write({"filter": _filter(reason, endpoint_id, since, until), "dry_run": True})
        return self._ask(post(at("dead-letters", "redrive"), one(Matching), body))


def _filter(
    reason: str | None, endpoint_id: str | None, since: datetime | None, until: datetime | None
) -> dict[str, object]:
    wanted = {"reason": reason, "endpoint_id": endpoint_id, "since": since, "until": until}
    return {name: value for name, value in wanted.items() if value is not None}
