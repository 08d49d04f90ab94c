"""Signatures of Standard Webhooks 1.0.0: made by the sender, checked by the receiver.

What is signed is `id.timestamp.body`. A dot in the id would let one signature stand for two messages (`a`, `1`,
`2.x` and `a.1`, `2`, `x`), so neither side has anything to do with such an id.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from app.domain.signing_keys import CheckingKey, SigningKey

_MOST_SIGNATURES: Final = 16  # an endpoint has five secrets at most, and each signature costs a pass over the body
_message_id: Final = re.compile(r"[0-9A-Za-z_-]{1,256}")
_timestamp: Final = re.compile(r"0|[1-9][0-9]{0,10}")  # to the year 5138


class Refusal(StrEnum):
    """Why a message is not to be believed."""

    BAD_ID = "bad_id"
    BAD_TIMESTAMP = "bad_timestamp"
    TOO_OLD = "too_old"
    TOO_NEW = "too_new"
    NO_MATCH = "no_match"


@dataclass(frozen=True, slots=True)
class Verified:
    """One of the keys signed exactly these bytes, under this id, at this time."""

    message_id: str
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class Refused:
    """Not signed by any of the keys, or not now."""

    reason: Refusal


def sign(keys: Iterable[SigningKey], message_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of an attempt: one signature per live secret, in their order.

    `timestamp` in whole seconds since 1970, as in `webhook-timestamp`. Raises ValueError for what a receiver
    would have to refuse.
    """
    seconds = str(timestamp)
    if not _message_id.fullmatch(message_id) or not _timestamp.fullmatch(seconds):
        raise ValueError("a message id has no dot, a timestamp is whole seconds since 1970")
    head = f"{message_id}.{seconds}.".encode()
    signatures = [f"{key.version},{key.sign(head, body)}" for key in keys]
    if not signatures:
        raise ValueError("nothing is sent unsigned")
    return " ".join(signatures)


def verify(
    keys: Sequence[CheckingKey],
    message_id: str,
    timestamp: str,
    signatures: str,
    body: bytes,
    *,
    now: datetime,
    tolerance: timedelta,
) -> Verified | Refused:
    """Whether the message is from one who holds a key, sent within `tolerance` of `now`, and whole.

    The three texts are the values of `webhook-id`, `-timestamp` and `-signature`, of which unknown versions are
    passed over. Every signature is compared with every key of its version, in constant time. Never raises.
    """
    if not _message_id.fullmatch(message_id):
        return Refused(Refusal.BAD_ID)
    if not _timestamp.fullmatch(timestamp):
        return Refused(Refusal.BAD_TIMESTAMP)
    sent_at = datetime.fromtimestamp(int(timestamp), UTC)
    if abs(now - sent_at) > tolerance:
        return Refused(Refusal.TOO_OLD if sent_at < now else Refusal.TOO_NEW)
    head = f"{message_id}.{timestamp}.".encode()
    matches = [
        key.accepts(signature, head, body)
        for version, signature in _split(signatures)
        for key in keys
        if key.version == version
    ]
    return Verified(message_id, sent_at) if any(matches) else Refused(Refusal.NO_MATCH)


def _split(signatures: str) -> list[tuple[str, str]]:
    """The header's signatures with their versions; none of a header that no sender makes."""
    items = [item.partition(",") for item in signatures.split(" ")]
    return [(version, signature) for version, _, signature in items] if len(items) <= _MOST_SIGNATURES else []
