"""From claims to requests that are ready to go: the stored bytes, the endpoint's own headers, signed for now."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection
from sqlalchemy import Engine as Database

from app.domain.identity import public_id
from app.domain.signature import sign
from app.domain.signing_keys import SigningKey, signing_key
from app.domain.urls import Origin, Unacceptable, parse_headers, parse_url
from app.ledger import endpoints, events
from app.ledger.deliveries import Claim
from app.ledger.endpoints import Endpoint, SealedSecret
from app.ledger.sealing import Sealer, WrongKeyError
from app.sending.engine import Places, Send
from app.sending.transport import begin_head, end_head

log = structlog.get_logger("duehook.delivery")
REMEMBERED = 10_000  # endpoints
LONGEST_STEP = 10 * 366 * 24 * 3600  # seconds


@dataclass(frozen=True, slots=True)
class Request:
    """What a claim became, at which revision of its endpoint.

    `schedule` is the endpoint's own, in seconds, None for the common ones.
    """

    claim: Claim
    revision: int
    schedule: tuple[float, ...] | None
    key_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Key:
    id: str
    key: SigningKey
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Target:
    """An endpoint as one revision of it is sent to."""

    revision: int
    origin: Origin = field(repr=False)
    head: bytes = field(repr=False)  # what all its requests begin with
    keys: tuple[_Key, ...]
    schedule: tuple[float, ...] | None

    def live_keys(self, now: datetime) -> list[_Key]:
        return [key for key in self.keys if key.expires_at is None or key.expires_at > now]


@dataclass(frozen=True, slots=True)
class _Unusable:
    """An endpoint whose row nobody could send to: damaged from outside, for everything we store is checked."""

    revision: int
    why: str


_NO_SECRET = "the endpoint has no live secret to sign with"
_NO_ENDPOINT = _Unusable(0, "the endpoint is gone")


@dataclass(slots=True)
class Prepared:
    """What claims became: requests, claims that none of our keys opens, and those that can never be sent, and why.

    `erased` are claims of events that were erased meanwhile; the erasure has asked for them to end as cancelled.
    """

    sends: list[Send[Request]] = field(default_factory=list)
    sealed: list[Claim] = field(default_factory=list)
    erased: list[Claim] = field(default_factory=list)
    unsendable: list[tuple[Claim, str]] = field(default_factory=list)


class Requests:
    """Makes requests out of claims; remembers endpoints by revision, so that a change is seen by the next attempt."""

    def __init__(
        self, database: Database, sealer: Sealer, places: Places, *, version: str, deadline: timedelta
    ) -> None:
        self._database = database
        self._sealer = sealer
        self._places = places
        self._common = (
            ("content-type", "application/json"),
            ("user-agent", f"duehook/{version}"),
            ("accept", "*/*"),
            ("accept-encoding", "identity"),
        )
        self.deadline = deadline
        self._targets: OrderedDict[int, _Target] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, claims: Sequence[Claim], now: datetime) -> Prepared:
        """A request for each of `claims`; one that can't be made never stands in the way of the others."""
        with self._database.begin() as connection:
            bodies = events.bodies(connection, list({claim.event for claim in claims}))
            targets = self._read(connection, claims)
        prepared = Prepared()
        for claim in claims:
            target = targets.get(claim.endpoint, _NO_ENDPOINT)
            event_id, body = bodies.get(claim.event, (None, None))
            if isinstance(target, WrongKeyError):
                prepared.sealed.append(claim)
            elif isinstance(target, _Unusable):
                prepared.unsendable.append((claim, target.why))
            elif event_id is None:
                prepared.unsendable.append((claim, "the event is gone"))
            elif body is None:
                prepared.erased.append(claim)
            elif not (keys := target.live_keys(now)):
                prepared.unsendable.append((claim, _NO_SECRET))
            else:
                prepared.sends.append(self._send(claim, target, keys, event_id, body, now))
        return prepared

    def _send(
        self, claim: Claim, target: _Target, keys: Sequence[_Key], event_id: str, body: bytes, now: datetime
    ) -> Send[Request]:
        timestamp = int(now.timestamp())
        headers = (
            ("webhook-id", event_id),
            ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", sign([key.key for key in keys], event_id, timestamp, body)),
            ("duehook-attempt", str(claim.attempt)),
            ("duehook-delivery-id", public_id("dlv", claim.delivery)),
        )
        head = end_head(target.head, headers, len(body))
        request = Request(claim, target.revision, target.schedule, tuple(key.id for key in keys))
        return Send(request, claim.endpoint, target.origin, head, body)

    def _read(
        self, connection: Connection, claims: Sequence[Claim]
    ) -> Mapping[int, _Target | _Unusable | WrongKeyError]:
        """The targets of these claims, read again where the claim was made under a newer revision."""
        wanted = {claim.endpoint: claim.revision for claim in claims}
        with self._lock:
            known = {seq: target for seq in wanted if (target := self._targets.get(seq))}
        stale = [seq for seq, revision in wanted.items() if seq not in known or known[seq].revision < revision]
        if not stale:
            return known
        # The endpoints first: were a rotation to commit in between, the other way round would remember the old
        # secrets under the new revision, for ever.
        loaded = endpoints.load(connection, stale)
        secrets = endpoints.secrets(connection, stale)
        read = {
            endpoint.seq: self._target_or_not(endpoint, [each for each in secrets if each.endpoint == endpoint.seq])
            for endpoint in loaded
        }
        self._remember({seq: target for seq, target in read.items() if isinstance(target, _Target)})
        return {**known, **read}

    def _remember(self, targets: Mapping[int, _Target]) -> None:
        with self._lock:
            self._targets.update(targets)
            while len(self._targets) > REMEMBERED:
                self._targets.popitem(last=False)

    def _target_or_not(
        self, endpoint: Endpoint, secrets: Sequence[SealedSecret]
    ) -> _Target | _Unusable | WrongKeyError:
        self._places.limit(endpoint.seq, endpoint.max_in_flight)
        try:
            return self._target(endpoint, secrets)
        except WrongKeyError as error:
            log.error("endpoint_sealed_under_another_key", endpoint=endpoint.id)
            return error
        except UnicodeError:  # which quotes what it can't read or write
            return _unusable(endpoint, "the endpoint's secret or a header holds characters that can't be sent")
        except ValueError as error:
            return _unusable(endpoint, str(error))

    def _target(self, endpoint: Endpoint, secrets: Sequence[SealedSecret]) -> _Target:
        url = parse_url(endpoint.url)
        if isinstance(url, Unacceptable):
            raise ValueError(url.sentence)
        headers = parse_headers(self._sealer.open_headers(endpoint.headers))
        if isinstance(headers, Unacceptable):
            raise ValueError(headers.sentence)
        if not secrets:
            raise ValueError(_NO_SECRET)
        if not all(0 <= seconds <= LONGEST_STEP for seconds in endpoint.retry_schedule or ()):  # nor not a number
            raise ValueError("the endpoint's retry schedule holds no time that can be waited")
        return _Target(
            endpoint.revision,
            url.origin,
            begin_head(url, (*self._common, *headers.items())),
            tuple(
                _Key(
                    public_id("key", secret.seq),
                    signing_key(self._sealer.open(secret.sealed)),
                    secret.expires_at,
                )
                for secret in secrets
            ),
            endpoint.retry_schedule,
        )


def _unusable(endpoint: Endpoint, why: str) -> _Unusable:
    log.error("endpoint_unusable", endpoint=endpoint.id, error=why)
    return _Unusable(endpoint.revision, why)
