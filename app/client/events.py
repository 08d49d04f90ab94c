"""Events: post them, look where they are, cancel them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.client.calls import at, get, post, write_event
from app.client.carriers import Pages
from app.client.nouns import Carrier, Noun, lists, talks
from app.client.reading import many, one
from app.client.shapes import UNSET, Accepted, Cancelled, Delivery, Event, NewEvent
from app.client.talks import Talk


class Events(Noun[Carrier]):
    """What has happened, for the endpoints that want to know."""

    @talks
    def post(
        self,
        type: str,
        data: Any = UNSET,
        *,
        raw_data: str | None = None,
        key: str | None = None,
        deliver_at: datetime | None = None,
        delay_seconds: float | None = None,
        idempotency_key: str | None = None,
    ) -> Talk[Accepted]:
        """Post one. Either `data`, any JSON value, or `raw_data`, its text, which arrives byte for byte.

        `key` is its business identity: a repeat with the same key, type, data and time answers the event that is
        there, at any time later; ConflictError when the key has another.
        """
        event = NewEvent(type, data, raw_data=raw_data, key=key, deliver_at=deliver_at, delay_seconds=delay_seconds)
        return self._ask(post(at("events"), one(Accepted), write_event(event), idempotency_key))

    @talks
    def post_many(
        self, events: Sequence[NewEvent], *, idempotency_key: str | None = None
    ) -> Talk[tuple[Accepted, ...]]:
        """Post up to 1,000, all or nothing; the answers are in the same order."""
        body = f"[{','.join(map(write_event, events))}]"
        return self._ask(post(at("events"), many(Accepted, len(events)), body, idempotency_key))

    @talks
    def get(self, id: str) -> Talk[Event]:
        """One with its data; NotFoundError when there is none."""
        return self._ask(get(at("events", id), one(Event)))

    @lists
    def list(self, *, key: str | None = None, page_size: int | None = None) -> Pages[Event]:
        """All, newest first, the service's own too; or the one that was posted with this `key`, or none."""
        return self._pages(Event, at("events"), key=key, limit=page_size)

    @lists
    def deliveries(self, id: str, *, page_size: int | None = None) -> Pages[Delivery]:
        """The deliveries of one, that to the newest endpoint first."""
        return self._pages(Delivery, at("events", id, "deliveries"), limit=page_size)

    @talks
    def cancel(self, id: str, *, idempotency_key: str | None = None) -> Talk[Cancelled]:
        """End every delivery of it that is neither finished nor in the air; again is fine."""
        return self._ask(post(at("events", id, "cancel"), one(Cancelled), key=idempotency_key))
