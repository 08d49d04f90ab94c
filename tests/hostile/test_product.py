"""Hostile receivers and the whole of the service: from the API to the outcome that it shows."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from sqlalchemy import Engine

from app import settings
from app.core.clock import LedgerClock
from app.core.dispatch import Dispatcher
from app.runtime import make_dispatcher, open_runtime
from tests.contract.served import SECRETS_KEY, number_of, served, subscribe
from tests.hostile.cases import CHUNKED, EMPTY, MIB, head
from tests.hostile.proxying import CREDENTIALS, PASSWORD, read_connect
from tests.hostile.server import (
    OK,
    HostileServer,
    Script,
    drip,
    forever,
    hang,
    read_request,
    reset,
    send,
    serve_well,
)
from tests.waiting import wait_until

EVERY_BYTE = bytes(range(256))
# What the first attempt does, and what the API shows of it: outcome, status, how the error and the excerpt begin.
SHOWN: dict[str, tuple[Script, tuple[str, int | None, str | None, str | None]]] = {
    "well-behaved": ([serve_well()], ("delivered", 200, None, "ok")),
    "every byte": (
        [read_request(), send(head(b"500 No", b"content-length: 256") + EVERY_BYTE)],
        ("failed", 500, None, EVERY_BYTE.decode(errors="replace")),
    ),
    "NUL only": ([read_request(), send(head(b"400 No") + bytes(9999))], ("refused", 400, None, "\0" * 1024)),
    "half a surrogate pair": (
        [read_request(), send(head(b"404 No") + b"\xed\xa0\x80\xf0\x9f\x98")],
        ("refused", 404, None, b"\xed\xa0\x80\xf0\x9f\x98".decode(errors="replace")),
    ),
    "JSON that would break out": (
        [read_request(), send(head(b"422 No") + b'"}],"x":[{"')],
        ("refused", 422, None, '"}]'),
    ),
    "separators of lines": (
        [read_request(), send(head(b"403 No") + "\u2028\u2029\x85".encode())],
        ("rejected", 403, None, "\u2028\u2029\x85"),
    ),
    "gzip": (
        [read_request(), send(head(b"200 OK", b"content-encoding: gzip") + b"\x1f\x8b\xff")],
        ("delivered", 200, None, "\x1f\ufffd\ufffd"),
    ),
    "a gigabyte": ([read_request(), send(CHUNKED + b"3b9aca00\r\n"), forever(MIB)], ("delivered", 200, None, "xxx")),
    "redirect": ([read_request(), send(head(b"308 Go", b"location: /\xe9\0x", EMPTY))], ("redirected", 308, None, "")),
    "HTTP/2.0": (
        [read_request(), send(b"HTTP/2.0 200 OK\r\n\r\n"), hang()],
        ("unknown", None, "answer: response in HTTP/2.0", None),
    ),
    "garbage": ([read_request(), send(b"\0\xff" * 99), hang()], ("unknown", None, "answer: unreadable response", None)),
    "silence": ([read_request(), hang()], ("unknown", None, "answer: no complete response head", None)),
    "dripped head": ([read_request(), drip(OK, 0.2)], ("unknown", None, "answer: no complete response head", None)),
    "reset": ([read_request(), reset()], ("unknown", None, "answer: connection lost", None)),
}


@pytest.fixture
def owner(database_url: str, engine: Engine) -> Iterator[httpx.Client]:
    """An operator of the service that is served here; `engine` audits the ledger in the end."""
    with served(database_url) as api, api.client() as client:
        yield client


def dispatching(database_url: str, stack: ExitStack, **given: object) -> Dispatcher:
    loaded = settings.load(
        database_url=database_url,
        secrets_key=SECRETS_KEY,
        allowed_networks="127.0.0.0/8,::1/128",
        deadline_seconds=1,
        **given,
    )
    runtime = open_runtime(loaded, application_name="test", pool_size=4)
    stack.callback(runtime.close)
    made = make_dispatcher(runtime, LedgerClock(runtime.engine))
    stack.callback(made.stop)
    return made


def deliver(owner: httpx.Client, dispatcher: Dispatcher, count: int) -> dict[str, dict[str, object]]:
    """Posts one event, has its deliveries sent, and returns the first attempt at each endpoint, by its description."""
    event = owner.post("/v1/events", json={"type": "a", "data": "PAYLOAD"}).json()["id"]
    ids = [each["id"] for each in owner.get(f"/v1/events/{event}/deliveries", params={"limit": 100}).json()["data"]]
    assert len(ids) == count
    dispatcher.deliver([number_of(each) for each in ids])
    wait_until(lambda: all(_attempts(owner, each) for each in ids), deadline=20, what="each has been tried")
    names = {each["id"]: each["description"] for each in owner.get("/v1/endpoints").json()["data"]}
    return {names[_delivery(owner, each)["endpoint_id"]]: _attempts(owner, each)[0] for each in ids}


def _delivery(owner: httpx.Client, delivery: str) -> dict[str, object]:
    answer = owner.get(f"/v1/deliveries/{delivery}")
    shown: dict[str, object] = json.loads(answer.content.decode())  # strictly UTF-8, strictly JSON
    return shown


def _attempts(owner: httpx.Client, delivery: str) -> list[dict[str, object]]:
    attempts = _delivery(owner, delivery)["attempts"]
    assert isinstance(attempts, list)
    return attempts


def test_what_a_receiver_says_is_shown_whatever_its_bytes(owner: httpx.Client, database_url: str) -> None:
    with ExitStack() as stack:
        for name, (script, _) in SHOWN.items():
            server = stack.enter_context(HostileServer(script))
            subscribe(owner, url=f"http://127.0.0.1:{server.port}/", description=name)
        tried = deliver(owner, dispatching(database_url, stack), len(SHOWN))
    for name, (_, (outcome, status, error, excerpt)) in SHOWN.items():
        shown = tried[name]
        assert (shown["outcome"], shown["status_code"], shown["address"]) == (outcome, status, "127.0.0.1"), shown
        for member, begins in (("error", error), ("excerpt", excerpt)):
            assert shown[member] == begins or str(shown[member]).startswith(begins or "-"), (name, shown)
    assert tried["redirect"]["location"] == "/\xe9 x"


def test_trouble_of_the_proxy_is_told_from_trouble_of_the_receiver(owner: httpx.Client, database_url: str) -> None:
    with ExitStack() as stack:
        refuses = [read_connect(), send(b"HTTP/1.1 407 " + CREDENTIALS + b"\r\n\r\n"), hang()]
        proxy = stack.enter_context(HostileServer(refuses))
        subscribe(owner, url="http://127.0.0.1:9/", description="proxied")
        subscribe(owner, url="http://localhost:9/", description="by name")
        through = f"http://duehook:{PASSWORD}@127.0.0.1:{proxy.port}"
        tried = deliver(owner, dispatching(database_url, stack, egress_proxy=through), 2)
    for shown in tried.values():
        assert (shown["outcome"], shown["status_code"]) == ("unreached", None)
        assert shown["error"] == "proxy: the egress proxy wants other credentials: it answered 407"
    assert len(proxy.requests) >= 2 and not any(b"localhost" in request for request in proxy.requests)
