"""Endpoints: subscribe, look, change, switch on and off, try, send again. For operators' keys."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from app.client.calls import Call, at, get, given, post, write
from app.client.carriers import Pages
from app.client.nouns import Carrier, Noun, lists, talks
from app.client.reading import one
from app.client.shapes import UNSET, Accepted, Endpoint, Job, Rotated, Secret, Unset
from app.client.talks import Talk


class Endpoints(Noun[Carrier]):
    """Where events go, and which."""

    @talks
    def create(
        self,
        url: str,
        event_types: Sequence[str],
        *,
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
        signing: str | None = None,
        rate_per_second: float | None = None,
        max_in_flight: int | None = None,
        retry_schedule: Sequence[float] | None = None,
        idempotency_key: str | None = None,
    ) -> Talk[Endpoint]:
        """Subscribe a URL; the answer holds the secret that its receiver verifies signatures with."""
        members = {
            "url": url,
            "event_types": _list(event_types),
            "description": given(description),
            "headers": given(headers and dict(headers)),
            "secret": given(secret),
            "signing": given(signing),
            "rate_per_second": given(rate_per_second),
            "max_in_flight": given(max_in_flight),
            "retry_schedule": given(_list(retry_schedule)),
        }
        made = yield from self._ask(post(at("endpoints"), one(Endpoint), write(members), idempotency_key))
        return made if made.secret else replace(made, secret=(yield from self._secret(made.id)))

    @talks
    def get(self, id: str) -> Talk[Endpoint]:
        """One; NotFoundError when there is none."""
        return self._ask(get(at("endpoints", id), one(Endpoint)))

    @lists
    def list(self, *, page_size: int | None = None) -> Pages[Endpoint]:
        """All, newest first."""
        return self._pages(Endpoint, at("endpoints"), limit=page_size)

    @talks
    def change(
        self,
        id: str,
        *,
        url: str | Unset = UNSET,
        event_types: Sequence[str] | Unset = UNSET,
        description: str | Unset | None = UNSET,
        headers: Mapping[str, str] | Unset | None = UNSET,
        signing: str | Unset = UNSET,
        rate_per_second: float | Unset | None = UNSET,
        max_in_flight: int | Unset | None = UNSET,
        retry_schedule: Sequence[float] | Unset | None = UNSET,
    ) -> Talk[Endpoint]:
        """Change what is given; None takes a limit or a schedule away, `headers` are replaced as a whole.

        Safe to repeat, but for what somebody else has changed in between.
        """
        members = {
            "url": url,
            "event_types": _list(event_types),
            "description": description,
            "headers": dict(headers) if isinstance(headers, Mapping) else headers,
            "signing": signing,
            "rate_per_second": rate_per_second,
            "max_in_flight": max_in_flight,
            "retry_schedule": _list(retry_schedule),
        }
        return self._ask(Call("PATCH", at("endpoints", id), one(Endpoint), body=write(members)))

    @talks
    def delete(self, id: str) -> Talk[None]:
        """Delete it; what waits for it is cancelled. NotFoundError when there is none.

        When the answer to an earlier try was lost, that it is gone is a success.
        """
        return self._ask(Call("DELETE", at("endpoints", id), lambda _: None, absent_is_done=True))

    @talks
    def secret(self, id: str) -> Talk[str]:
        """What its receiver verifies the newest signatures with."""
        return self._secret(id)

    @talks
    def rotate_secret(
        self, id: str, *, overlap_seconds: float | None = None, idempotency_key: str | None = None
    ) -> Talk[Rotated]:
        """A new secret from the next attempt on; the live ones sign beside it, for a day unless told otherwise."""
        body = write({"overlap_seconds": given(overlap_seconds)})
        place = at("endpoints", id, "rotate-secret")
        rotated = yield from self._ask(post(place, one(Rotated), body, idempotency_key))
        return rotated if rotated.secret else replace(rotated, secret=(yield from self._secret(id)))

    @talks
    def enable(self, id: str, *, idempotency_key: str | None = None) -> Talk[Endpoint]:
        """Enable it; what has waited is sent, paced. Again is fine."""
        return self._ask(post(at("endpoints", id, "enable"), one(Endpoint), key=idempotency_key))

    @talks
    def disable(self, id: str, *, idempotency_key: str | None = None) -> Talk[Endpoint]:
        """Disable it; what waits for it goes on waiting. Again is fine."""
        return self._ask(post(at("endpoints", id, "disable"), one(Endpoint), key=idempotency_key))

    @talks
    def ping(self, id: str, *, idempotency_key: str | None = None) -> Talk[Accepted]:
        """Send it an event of type `ping`; what came back is in the event's delivery."""
        return self._ask(post(at("endpoints", id, "ping"), one(Accepted), key=idempotency_key))

    @talks
    def replay(
        self,
        id: str,
        *,
        since: datetime,
        until: datetime | None = None,
        status: Sequence[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Talk[Job]:
        """Send it again the events that were created in a window; a job. `status`: dead and cancelled unless told."""
        body = write({"since": since, "until": given(until), "status": given(_list(status))})
        return self._ask(post(at("endpoints", id, "replay"), one(Job), body, idempotency_key))

    def _secret(self, id: str) -> Generator[Any, Any, str]:
        """Asked for when a create or a rotation was answered a second time: a replayed answer holds no secret."""
        found = yield from self._ask(get(at("endpoints", id, "secret"), one(Secret)))
        return found.secret


def _list(values: Sequence[Any] | Unset | None) -> Any:
    return values if values is None or values is UNSET else [*values]
