"""Whether a request is what somebody who knows the secret has just sent."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from app.domain import signature
from app.domain.signature import Refused
from app.domain.signing_keys import checking_key

TOLERANCE = timedelta(minutes=5)  # as the Standard Webhooks libraries have it

_ATTEMPT = re.compile(r"[0-9]{1,10}")


class UnverifiedError(Exception):
    """Not what somebody who knows the secret has just sent: answer 401, change nothing.

    The text is the reason: bad_id, bad_timestamp, too_old, too_new (compare the clocks) or no_match (compare the
    secrets, and pass the body's bytes exactly as they came).
    """


@dataclass(frozen=True)
class Event:
    """A verified request. `body` is the event as its sender stored it; the rest is read from that when asked for.

    `attempt` is not covered by the signature: for logs only.
    """

    id: str
    attempt: int | None
    body: bytes = field(repr=False)

    @cached_property
    def members(self) -> dict[str, Any]:
        """All of the body; raises ValueError for what Python can't hold, such as a number of 5,000 digits."""
        members = json.loads(self.body)
        if not isinstance(members, dict):
            raise ValueError("the body is not an event")
        return members

    @cached_property
    def _head(self) -> dict[str, Any]:
        """The same with numbers as their text: what stands beside `data` has none, and `data` may hold any."""
        members = json.loads(self.body, parse_int=str, parse_float=str)
        if not isinstance(members, dict):
            raise ValueError("the body is not an event")
        return members

    @property
    def type(self) -> str:
        """Such as `reservation.expired`."""
        return str(self._head["type"])

    @property
    def key(self) -> str | None:
        """What it is about, as its producer calls it; None when it has no name."""
        key: str | None = self._head["key"]
        return key

    @property
    def data(self) -> Any:
        """What its producer sent."""
        return self.members["data"]


def verify(
    headers: Mapping[str, str], body: bytes, secrets: str | Iterable[str], *, tolerance: timedelta = TOLERANCE
) -> Event:
    """The event, when one of `secrets` signed exactly these bytes within `tolerance` of this machine's time.

    Secrets are `whsec_…`, or the public `whpk_…` of an endpoint that signs with Ed25519; several, so that one can be
    rotated. Raises `UnverifiedError`; ValueError when there is no secret, or one that is none; TypeError when the body
    is not bytes.
    """
    if not isinstance(body, bytes):
        raise TypeError(f"pass the body's bytes as they came, not {type(body).__name__}")
    keys = [checking_key(text) for text in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        raise ValueError("at least one secret is needed")
    given = {name.lower(): value for name, value in headers.items()}
    message_id, sent_at, signatures = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    found = signature.verify(keys, message_id, sent_at, signatures, body, now=datetime.now(UTC), tolerance=tolerance)
    if isinstance(found, Refused):
        raise UnverifiedError(found.reason.value)
    attempt = given.get("duehook-attempt", "")
    return Event(message_id, int(attempt) if _ATTEMPT.fullmatch(attempt) else None, body)
