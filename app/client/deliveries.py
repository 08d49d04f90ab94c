"""Deliveries: look, try one now, give one up. For operators' keys."""

from app.client.calls import at, get, post
from app.client.carriers import Pages
from app.client.nouns import Carrier, Noun, lists, talks
from app.client.reading import one
from app.client.shapes import Delivery
from app.client.talks import Talk


class Deliveries(Noun[Carrier]):
    """Events on their way to endpoints."""

    @lists
    def list(
        self,
        *,
        status: str | None = None,
        endpoint_id: str | None = None,
        event_id: str | None = None,
        page_size: int | None = None,
    ) -> Pages[Delivery]:
        """All that match, those of the newest event first, or of one endpoint, the newest first."""
        return self._pages(
            Delivery, at("deliveries"), status=status, endpoint_id=endpoint_id, event_id=event_id, limit=page_size
        )

    @talks
    def get(self, id: str) -> Talk[Delivery]:
        """One with its attempts; NotFoundError when there is none."""
        return self._ask(get(at("deliveries", id), one(Delivery)))

    @talks
    def retry(self, id: str, *, idempotency_key: str | None = None) -> Talk[Delivery]:
        """Try it now, a finished one in a new round; ConflictError while it is in the air."""
        return self._ask(post(at("deliveries", id, "retry"), one(Delivery), key=idempotency_key))

    @talks
    def cancel(self, id: str, *, idempotency_key: str | None = None) -> Talk[Delivery]:
        """Give it up; one that is still `leased` then ends as delivered or cancelled. ConflictError when finished."""
        return self._ask(post(at("deliveries", id, "cancel"), one(Delivery), key=idempotency_key))
