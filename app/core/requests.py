"""From claims to requests that are ready to go: the stored bytes, the endpoint's own headers, signed for now."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection
from sqlalchemy import Engine as Database

from app.domain.identity import public_id
from app.domain.signature import sign
from app.domain.signing_keys import SigningKey, signing_key
from app.domain.urls import EndpointUrl, Unacceptable, parse_url
from app.ledger import endpoints, events
from app.ledger.deliveries import Claim
from app.ledger.endpoints import Endpoint, SealedSecret
from app.ledger.sealing import Sealer, WrongKeyError
from app.sending.engine import Places, Send
from app.sending.transport import request_head

log = structlog.get_logger("duehook.delivery")
REMEMBERED = 10_000  # endpoints


@dataclass(frozen=True, slots=True)
class Request:
    """What a claim became; `schedule` is the endpoint's own, in seconds, None for the common ones."""

    claim: Claim
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
    url: EndpointUrl
    headers: tuple[tuple[str, str], ...]
    keys: tuple[_Key, ...]
    schedule: tuple[float, ...] | None

    def live_keys(self, now: datetime) -> list[_Key]:
        return [key for key in self.keys if key.expires_at is None or key.expires_at > now]


class Requests:
    """Makes requests out of claims; remembers endpoints by revision, so that a change is seen by the next attempt."""

    def __init__(
        self, database: Database, sealer: Sealer, places: Places, *, version: str, deadline: timedelta
    ) -> None:
        self._database = database
        self._sealer = sealer
        self._places = places
        self._user_agent = f"duehook/{version}"
        self.deadline = deadline
        self._targets: OrderedDict[int, _Target] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, claims: Sequence[Claim], now: datetime) -> tuple[list[Send[Request]], list[Claim]]:
        """Requests for `claims`, and the claims whose endpoint can't be read with our keys: lost infrastructure."""
        with self._database.begin() as connection:
            bodies = events.bodies(connection, list({claim.event for claim in claims}))
            targets = self._read(connection, claims)
        sends, unsendable = [], []
        for claim in claims:
            target = targets.get(claim.endpoint)
            if target is None:
                unsendable.append(claim)
            else:
                sends.append(self._send(claim, target, *bodies[claim.event], now))
        return sends, unsendable

    def _send(self, claim: Claim, target: _Target, event_id: str, body: bytes, now: datetime) -> Send[Request]:
        keys = target.live_keys(now)
        timestamp = int(now.timestamp())
        headers = (
            ("content-type", "application/json"),
            ("user-agent", self._user_agent),
            ("accept", "*/*"),
            ("accept-encoding", "identity"),
            ("webhook-id", event_id),
            ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", sign([key.key for key in keys], event_id, timestamp, body)),
            ("duehook-attempt", str(claim.attempt)),
            ("duehook-delivery-id", public_id("dlv", claim.delivery)),
            *target.headers,
        )
        head = request_head(target.url, headers, len(body))
        request = Request(claim, target.schedule, tuple(key.id for key in keys))
        return Send(request, claim.endpoint, target.url.origin, head, body)

    def _read(self, connection: Connection, claims: Sequence[Claim]) -> Mapping[int, _Target]:
        """The targets of these claims, read again where the claim was made under a newer revision."""
        wanted = {claim.endpoint: claim.revision for claim in claims}
        with self._lock:
            known = {seq: target for seq in wanted if (target := self._targets.get(seq))}
        stale = [seq for seq, revision in wanted.items() if seq not in known or known[seq].revision < revision]
        if not stale:
            return known
        secrets = endpoints.secrets(connection, stale)
        for endpoint in endpoints.load(connection, stale):
            known.pop(endpoint.seq, None)
            try:
                known[endpoint.seq] = self._target(endpoint, [s for s in secrets if s.endpoint == endpoint.seq])
            except WrongKeyError:
                log.error("endpoint_sealed_under_another_key", endpoint=endpoint.id)
            self._places.limit(endpoint.seq, endpoint.max_in_flight)
        with self._lock:
            self._targets.update((seq, known[seq]) for seq in stale if seq in known)
            while len(self._targets) > REMEMBERED:
                self._targets.popitem(last=False)
        return known

    def _target(self, endpoint: Endpoint, secrets: Sequence[SealedSecret]) -> _Target:
        url = parse_url(endpoint.url)
        assert not isinstance(url, Unacceptable), "urls are checked when they are stored"
        return _Target(
            endpoint.revision,
            url,
            tuple(self._sealer.open_headers(endpoint.headers).items()),
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
