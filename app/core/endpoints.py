"""Endpoints: what their owner makes of them, and what follows for their secrets and their deliveries.

Every change of what is sent, where, or how often is a new revision: whoever keeps an endpoint in memory reads it
again, and an outcome of the older one says nothing about it any more.
"""

import secrets as randomness
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from app.core.reservations import Refused
from app.domain.signing_keys import Ed25519Key, ed25519_secret, hmac_secret, signing_key
from app.domain.states import Outcome
from app.ledger import by_hand, endpoints, paces, parking, pings, service
from app.ledger import endpoint_changes as changes
from app.ledger.endpoints import Endpoint
from app.ledger.sealing import Sealer

MOST_SECRETS = 5
AT_ONCE = 10_000  # of its newest deliveries a change of the endpoint's state looks at as many itself
OVERLAP = timedelta(days=1)
REQUESTED = "requested"  # why an endpoint is disabled: its owner asked for it
GONE = "gone"  # or its receiver answered 410
# What may change without anybody who sends having to know.
_UNSENT = {"description", "event_types"}
# What makes another receiver of it, or lets this one judge anew.
_TO_WHOM = {"url", "headers", "signing"}
_HOW_FAST = {"rate_per_second", "max_in_flight"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An endpoint as its owner asks for it, vetted (`app.core.vetting`); without a secret it gets one."""

    url: str = field(repr=False)
    event_types: Sequence[str]
    description: str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    signing: str = "hmac"
    rate_per_second: float | None = None
    max_in_flight: int | None = None
    retry_schedule: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A new endpoint, and what its receiver verifies signatures with."""

    endpoint: Endpoint
    secret: str = field(repr=False)


def has(connection: Connection, tenant: str, count: int) -> bool:
    """Whether the tenant has so many endpoints; nobody else asks until this transaction has ended."""
    endpoints.lock_number(connection, tenant)
    return endpoints.count(connection, tenant, most=count) >= count


def create(connection: Connection, sealer: Sealer, tenant: str, wanted: Wanted) -> Created:
    """A new enabled endpoint; it gets what is made from now on, and scheduled events that fan out from now on."""
    endpoint = endpoints.insert(
        connection,
        tenant,
        url=wanted.url,
        event_types=wanted.event_types,
        description=wanted.description,
        headers=sealer.seal_headers(wanted.headers or {}),
        signing=wanted.signing,
        rate_per_second=wanted.rate_per_second,
        max_in_flight=wanted.max_in_flight,
        retry_schedule=wanted.retry_schedule,
    )
    secret = wanted.secret or _new_secret(wanted.signing)
    endpoints.add_secret(connection, endpoint.seq, sealer.seal(secret))
    return Created(endpoint, shown(secret))


def change(
    connection: Connection, sealer: Sealer, tenant: str, seq: int, members: Mapping[str, Any]
) -> Endpoint | Refused | None:
    """Set the vetted `members`, headers as a whole; None when there is no such endpoint.

    Another way of signing brings a secret of its kind; the old ones sign beside it for a day, and it is `Refused`
    when that would be one too many.
    """
    before = changes.lock(connection, tenant, seq)
    if before is None or not members:
        return before
    settings = {name: value for name, value in members.items() if name != "headers"}
    if "headers" in members:
        settings["headers"] = sealer.seal_headers(members["headers"] or {})
    after = replace(before, **settings)
    if after.signing != before.signing:
        replaced = _replace_secret(connection, sealer, after, OVERLAP)
        if isinstance(replaced, Refused):
            return replaced
    changed = changes.update(connection, after, sent_differently=bool(members.keys() - _UNSENT))
    if members.keys() & _TO_WHOM:
        _begin_anew(connection, seq)
    elif members.keys() & _HOW_FAST:
        if before.max_in_flight is None and after.max_in_flight is not None:
            paces.seat_all(connection, seq, most=AT_ONCE)
        _look_now(connection, seq)
    return changed


def _begin_anew(connection: Connection, seq: int, *, keep_hint: bool = False) -> None:
    """What is known of the receiver's pace counts no more, and what is parked for it goes on."""
    paces.reset(connection, seq, keep_hint=keep_hint)
    _look_now(connection, seq)


def _look_now(connection: Connection, seq: int) -> None:
    parking.look_at(connection, {seq: service.now(connection)})


def secret(connection: Connection, sealer: Sealer, tenant: str, seq: int) -> str | None:
    """What a receiver verifies the endpoint's newest signatures with; None without such an endpoint or a secret."""
    if endpoints.find(connection, tenant, seq) is None:
        return None
    live = endpoints.secrets(connection, [seq])
    return shown(sealer.open(live[0].sealed)) if live else None


@dataclass(frozen=True, slots=True)
class Rotated:
    """The new secret, and when the last of the old ones stops signing beside it."""

    secret: str = field(repr=False)
    previous_expires_at: datetime | None


def rotate(
    connection: Connection, sealer: Sealer, tenant: str, seq: int, overlap: timedelta
) -> Rotated | Refused | None:
    """A new secret from the next attempt on; the live ones sign beside it for `overlap` at most.

    Not a repeatable call: each makes a secret. `Refused` when that would be one too many; None without an endpoint.
    """
    endpoint = changes.lock(connection, tenant, seq)
    return None if endpoint is None else _replace_secret(connection, sealer, endpoint, overlap)


def _replace_secret(
    connection: Connection, sealer: Sealer, endpoint: Endpoint, overlap: timedelta
) -> Rotated | Refused:
    if overlap and len(endpoints.secrets(connection, [endpoint.seq])) >= MOST_SECRETS:
        return Refused(f"{endpoint.id} has {MOST_SECRETS} live secrets; rotate with overlap_seconds 0, or later")
    ends_at = endpoints.expire_secrets(connection, endpoint.seq, overlap)
    secret = _new_secret(endpoint.signing)
    endpoints.add_secret(connection, endpoint.seq, sealer.seal(secret))
    endpoints.touch(connection, endpoint.seq)
    return Rotated(shown(secret), ends_at)


def shown(secret: str) -> str:
    """What of a secret its owner is told: all of a shared one, of a key pair the public half, which is enough."""
    key = signing_key(secret)
    return key.public.text if isinstance(key, Ed25519Key) else secret


def _new_secret(signing: str) -> str:
    random = randomness.token_bytes(32)
    return ed25519_secret(random) if signing == "ed25519" else hmac_secret(random)


def enable(connection: Connection, tenant: str, seq: int) -> Endpoint | None:
    """Enable an endpoint, clear its flag and its failures, and let what waits for it go on; None when there is none.

    It goes on as any backlog does: a few at a time, and one alone first if the receiver fails still. A repeat changes
    nothing.
    """
    if changes.lock(connection, tenant, seq) is None:
        return None
    enabled = changes.enable(connection, seq)
    _begin_anew(connection, seq, keep_hint=True)
    return enabled


def disable(connection: Connection, tenant: str, seq: int) -> Endpoint | None:
    """Disable an endpoint: what waits for it goes on waiting; None when there is none. A repeat changes nothing."""
    endpoint = changes.lock(connection, tenant, seq)
    return None if endpoint is None else changes.disable(connection, seq, REQUESTED) or endpoint


def delete(connection: Connection, tenant: str, seq: int) -> bool:
    """Delete an endpoint and cancel its newest deliveries; whether there was one.

    Should it have more than `AT_ONCE`, the claim that meets an older one cancels it when it falls due.
    """
    if changes.lock(connection, tenant, seq) is None:
        return False
    changes.delete(connection, seq)
    by_hand.cancel(connection, tenant, changes.open_deliveries(connection, seq, most=AT_ONCE))
    _look_now(connection, seq)
    return True


def hear(connection: Connection, endpoint: int, revision: int, outcome: Outcome, *, event: int) -> None:
    """What an outcome says about the endpoint itself: gone disables it, but for a ping's; rejected flags it.

    Only while the endpoint is at the revision that was sent to. In a transaction of its own, after the record: the
    record holds deliveries locked, and an owner's change locks the endpoint before them. Lost in a crash between the
    two, the next delivery's outcome says it again.
    """
    if outcome is Outcome.GONE and not pings.is_ping(connection, event):
        changes.disable(connection, endpoint, GONE, revision=revision)
    elif outcome is Outcome.REJECTED:
        changes.flag(connection, endpoint, revision)
