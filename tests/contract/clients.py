"""The Python client against the API of these tests, or against a server that answers by script."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat

from app.client import AsyncClient, Client, Retries
from app.domain.states import KeyScope
from tests.contract.served import Api
from tests.hostile.server import Peer, Step

ONCE = Retries(tries=1, timeout=10)
QUICK = Retries(tries=4, seconds=20, timeout=5, first=0.01, longest=0.02)
KEY = "dhk_of_nobody"
PAGE = b"<!DOCTYPE html><title>Welcome</title>"
ACCEPTED = {
    "id": "evt_1",
    "type": "a",
    "key": None,
    "created_at": "2030-01-01T12:00:00.000000Z",
    "due_at": "2030-01-01T12:00:00.000000Z",
    "deliveries": 0,
}


def answer(status: int, body: object = None, *headers: str, media_type: str = "application/json") -> bytes:
    """A whole response."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-type: {media_type}", f"content-length: {len(text)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + text


def problem(status: int, name: str, *headers: str, **members: object) -> bytes:
    """What the service says no with."""
    body = {"type": f"/problems/{name}", "title": "T", "status": status, "detail": f"no: {name}", **members}
    return answer(status, body, *headers, media_type="application/problem+json")


GOOD = answer(202, ACCEPTED)


def take(peer: Peer) -> None:
    """Reads a request, with or without a body, and notes it."""
    while b"\r\n\r\n" not in peer.unread:
        peer.receive()
    if b"content-length" in bytes(peer.unread).lower():
        peer.server.requests.append(peer.read_request())
    else:
        peer.server.requests.append(bytes(peer.unread))
        peer.unread.clear()


def serve(*responses: bytes) -> list[Step]:
    """A connection on which each request gets its response, and the last goes on to be given."""

    def step(peer: Peer) -> None:
        for response in chain(responses, repeat(responses[-1])):
            take(peer)
            peer.sock.sendall(response)

    return [step]


def headers_of(request: bytes) -> dict[str, str]:
    """By their names in small letters."""
    lines = request.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


def client_of(api: Api, tenant: str, scope: KeyScope = KeyScope.OPERATOR) -> Client:
    """Of a tenant; the first failure counts."""
    return Client(api.url, api.key(tenant, scope), retries=ONCE)


def async_client_of(api: Api, tenant: str) -> AsyncClient:
    """The same, to be awaited."""
    return AsyncClient(api.url, api.key(tenant), retries=ONCE)


@contextmanager
def asking(port: int, retries: Retries = QUICK, key: str = KEY) -> Iterator[Client]:
    """Who asks a server of the test's own."""
    with Client(f"http://127.0.0.1:{port}", key, retries=retries) as client:
        yield client
