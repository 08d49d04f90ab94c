"""Requests as they really go out: made over the API, sent by the engine, taken from the socket."""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

from app.core.clock import LedgerClock
from app.runtime import make_dispatcher
from tests.contract.served import Api, served, subscribe
from tests.ledgers import rows
from tests.receivers import Received, Receiver
from tests.waiting import wait_until

BODIES = {
    "plain": '{"total": 12}',
    "emoji": '"😀 👩‍👩‍👧‍👦"',
    "line separators": '"\u2028\u2029"',
    "combining": '"e\u0301 \ufeff \U0010ffff"',
    "1.0": "1.0",
    "exponent": "1E+2",
    "huge": "1e400",
    "negative zero": "-0.0",
    "duplicate keys": '{"a":1,"a":2}',
    "order of keys": '{"b":1,"a":2}',
    "lone surrogates": r'"\ud800 \udfff\ud83d"',
    "escaped": r'"\u0000\u0041\/\ud83d\ude00"',
    "blanks": '{ "a" :\t[ ] ,\r\n "b":{} }',
    "null": "null",
    "large": '"' + "é" * 100_000 + '"',
}


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint with all that its receivers may verify with, the newest first."""

    name: str
    id: str
    hmac: tuple[str, ...] = ()
    ed25519: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.hmac + self.ed25519


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was received, what its body holds, and the delivery as the API shows it."""

    target: Target
    body_name: str
    headers: dict[str, str]
    body: bytes
    delivery: Mapping[str, Any]


def signatures(headers: Mapping[str, str], version: str) -> list[bytes]:
    """The signatures of this version in a request, as bytes."""
    found = [item.partition(",") for item in headers["webhook-signature"].split(" ")]
    return [b64decode(signature, validate=True) for each, _, signature in found if each == version]


@contextmanager
def requests_sent(database_url: str) -> Iterator[list[Sent]]:
    """Every body to every kind of endpoint, delivered once."""
    receiver = Receiver()
    receiver.verify = lambda _body, _headers: None
    with served(database_url) as api, api.client() as client:
        targets = {target.name: target for target in _targets(client, receiver.url)}
        names = {_post(client, data): name for name, data in BODIES.items()}
        deliver(api)
        wait_until(lambda: len(receiver.received) == len(targets) * len(names), deadline=60)
        wait_until(lambda: rows(api.runtime.engine, "SELECT DISTINCT status FROM duehook.deliveries") == ["delivered"])
        yield [_sent(client, each, targets, names) for each in receiver.received]
    receiver.close()


def _targets(client: httpx.Client, url: str) -> Iterator[Target]:
    one = _target(client, url, "one secret")
    yield replace(one, hmac=(_secret(client, one),))
    five = _target(client, url, "five secrets")
    secrets = [_secret(client, five), *(_rotated(client, five) for _ in range(4))]
    yield replace(five, hmac=tuple(reversed(secrets)))
    asymmetric = _target(client, url, "ed25519", signing="ed25519")
    yield replace(asymmetric, ed25519=(_secret(client, asymmetric),))
    both = _target(client, url, "both kinds")
    hmac = _secret(client, both)
    assert client.patch(f"/v1/endpoints/{both.id}", json={"signing": "ed25519"}).status_code == 200
    public = _secret(client, both)
    yield replace(both, hmac=(hmac,), ed25519=(_rotated(client, both), public))


def _target(client: httpx.Client, url: str, name: str, **members: Any) -> Target:
    return Target(name, subscribe(client, **{"headers": {"x-target": name}, "url": url, **members}))


def _secret(client: httpx.Client, target: Target) -> str:
    return str(client.get(f"/v1/endpoints/{target.id}/secret").json()["secret"])


def _rotated(client: httpx.Client, target: Target) -> str:
    return str(client.post(f"/v1/endpoints/{target.id}/rotate-secret").json()["secret"])


def _post(client: httpx.Client, data: str) -> str:
    """The id of an event with exactly this text for its data."""
    body = '{"type":"order.placed","data":%s}' % data  # noqa: UP031
    answer = client.post("/v1/events", content=body.encode(), headers={"content-type": "application/json"})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def deliver(api: Api) -> None:
    """Send everything that there is, once."""
    engine = api.runtime.engine
    dispatcher = make_dispatcher(api.runtime, LedgerClock(engine))
    dispatcher.deliver(rows(engine, "SELECT id FROM duehook.deliveries"))
    dispatcher.stop()


def _sent(client: httpx.Client, each: Received, targets: Mapping[str, Target], names: Mapping[str, str]) -> Sent:
    delivery = client.get(f"/v1/deliveries/{each.delivery_id}").json()
    return Sent(targets[each.headers["x-target"]], names[each.event_id], each.headers, each.body, delivery)
