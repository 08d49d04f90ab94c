"""Reservations: hold capacity until its time, confirm or release it."""

from datetime import datetime
from typing import Any

from app.client.calls import at, get, given, post, write
from app.client.carriers import Pages
from app.client.nouns import Carrier, Noun, lists, talks
from app.client.reading import one
from app.client.shapes import UNSET, Reservation
from app.client.talks import Talk


class Reservations(Noun[Carrier]):
    """Capacity that is held for somebody."""

    @talks
    def hold(
        self,
        resource: str,
        *,
        hold_seconds: float | None = None,
        expires_at: datetime | None = None,
        id: str | None = None,
        exclusive: bool = False,
        data: Any = UNSET,
        raw_data: str | None = None,
        idempotency_key: str | None = None,
    ) -> Talk[Reservation]:
        """Hold it until a time; give either `hold_seconds` or `expires_at`.

        A repeat with the same `id` and the same arguments answers the one that is there. ConflictError when the id
        has another, or an exclusive one holds the resource.
        """
        members = {
            "id": given(id),
            "resource": resource,
            "hold_seconds": given(hold_seconds),
            "expires_at": given(expires_at),
            "exclusive": exclusive or UNSET,
            "data": data,
        }
        body = write(members, raw_data=raw_data)
        return self._ask(post(at("reservations"), one(Reservation), body, idempotency_key))

    @talks
    def get(self, id: str) -> Talk[Reservation]:
        """One as it stands; NotFoundError when there is none."""
        return self._ask(get(at("reservations", id), one(Reservation)))

    @lists
    def list(
        self, *, status: str | None = None, resource: str | None = None, page_size: int | None = None
    ) -> Pages[Reservation]:
        """All that match, newest first."""
        return self._pages(Reservation, at("reservations"), status=status, resource=resource, limit=page_size)

    @talks
    def confirm(self, id: str, *, idempotency_key: str | None = None) -> Talk[Reservation]:
        """Confirm it; again is fine. ConflictError when another transition won: a late confirm always loses."""
        return self._ask(post(at("reservations", id, "confirm"), one(Reservation), key=idempotency_key))

    @talks
    def release(self, id: str, *, idempotency_key: str | None = None) -> Talk[Reservation]:
        """Give the capacity back, held or confirmed; again is fine. ConflictError when it has expired."""
        return self._ask(post(at("reservations", id, "release"), one(Reservation), key=idempotency_key))
