"""The process: what it does with odd bytes, with much of them, with its end."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import psycopg
import pytest

from app.api.problems import KINDS
from app.core import keys
from app.domain.states import KeyScope
from app.ledger.database import connect_engine
from tests.contract.served import SECRETS_KEY, Api, served
from tests.waiting import wait_until

SERVE = """
import sys
from app.api.server import serve
from app.runtime import open_runtime
from app.settings import load
runtime = open_runtime(load(), application_name="test-serve")
serve(runtime, "127.0.0.1", int(sys.argv[1]))
runtime.close()
"""


def exchange(port: int, request: bytes, *, then: bytes = b"") -> bytes:
    """All that comes back for these bytes, up to the end of the first answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
        stream.sendall(request)
        got = b""
        while b"\r\n\r\n" not in got or not _whole(got):
            if not (some := stream.recv(65536)):
                break
            got += some
            if then and b"100 Continue" in got:
                stream.sendall(then)
                then, got = b"", b""
        return got


def _whole(got: bytes) -> bool:
    head, _, body = got.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
    return bool(length) and len(body) >= int(length)


def head(api: Api, *lines: str, path: str = "/v1/events") -> bytes:
    start = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key()}\r\n"
    return (start + "".join(f"{line}\r\n" for line in ("Content-Type: application/json", *lines)) + "\r\n").encode()


def test_a_body_that_is_declared_too_large_is_refused_unread(api: Api) -> None:
    got = exchange(api.port, head(api, f"Content-Length: {17 << 20}"))
    assert got.startswith(b"HTTP/1.1 413 ")


def test_nobody_is_told_to_go_on_with_a_body_that_is_too_large(api: Api) -> None:
    got = exchange(api.port, head(api, f"Content-Length: {10**12}", "Expect: 100-continue"))
    assert got.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in got.lower()


def test_one_that_waits_to_be_told_is_told(api: Api) -> None:
    body = b'{"type":"a","data":1}'
    got = exchange(api.port, head(api, f"Content-Length: {len(body)}", "Expect: 100-continue"), then=body)
    assert got.startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize("begin", [b'{"type":"a","data":"', b"[", b" "])
def test_a_body_without_an_end_is_refused_when_it_is_too_large(api: Api, begin: bytes) -> None:
    def endless() -> Iterator[bytes]:
        yield begin
        while True:
            yield b" " * 65536

    with api.client() as client:
        answer = client.post("/v1/events", content=endless(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")


def test_a_batch_may_be_larger_than_an_event(api: Api) -> None:
    events = [{"type": "a", "data": "x" * 1_000_000}] * 16
    with api.client() as client:
        assert client.post("/v1/events", json=events).status_code == 202
        assert client.post("/v1/events", json=[*events, *events]).status_code == 413
        assert client.post("/v1/events", json={"type": "a", "data": ["x" * 600_000] * 2}).status_code == 413


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /v1/events/\xff\xfe HTTP/1.1",
        b"GET /v1/events?cursor=\xff HTTP/1.1",
        b"GET /v1/events/%E2%28%A1 HTTP/1.1",
        b"GET //v1/events HTTP/1.1",
        b"GET http://x/v1/nothing HTTP/1.1",
        b"GET /v1/events\r\nBad Header: x HTTP/1.1",
        b"GET /v1/events HTTP/9.9",
        b"GET /v1/events/" + b"x" * 10_000 + b" HTTP/1.1",
        b"NONSENSE /v1/events HTTP/1.1",
        b"\x00\x01\x02",
    ],
)
def test_odd_request_lines_are_the_clients_fault(api: Api, request_line: bytes) -> None:
    key = api.key().encode()
    got = exchange(api.port, request_line + b"\r\nHost: x\r\nAuthorization: Bearer " + key + b"\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 4"), got
    told, _, body = got.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in told, "also where the server can't read it as HTTP"
    problem = json.loads(body)
    assert (problem["status"], problem["type"] in {kind.type for kind in KINDS.values()}) == (int(got[9:12]), True)


@pytest.mark.parametrize("path", ["/healthz", "/v1/events", "/docs", "/v1/events/nonsense"])
def test_head_is_get_without_the_body(api: Api, path: str) -> None:
    with api.client() as client:
        got, told = client.get(path), client.head(path)
    assert (told.status_code, told.headers["content-type"]) == (got.status_code, got.headers["content-type"])
    assert (told.headers["content-length"], told.content) == (got.headers["content-length"], b"")


def test_a_client_that_hangs_up_in_its_body_harms_nobody(api: Api) -> None:
    with socket.create_connection(("127.0.0.1", api.port)) as stream:
        stream.sendall(head(api, "Content-Length: 100") + b'{"type"')
    with api.client() as client:
        assert client.get("/healthz").status_code == 200


def test_readiness_names_the_broker(database_url: str, broker_url: str) -> None:
    with served(database_url, broker_url=broker_url) as running:
        ready = httpx.get(f"{running.url}/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "database": "ok", "broker": "ok"})
    with served(database_url, broker_url="redis://127.0.0.1:9/0") as running:
        ready = httpx.get(f"{running.url}/readyz")
        assert (ready.status_code, ready.json()["broker"]) == (200, "unreachable")


@pytest.fixture
def process(database_url: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The API as `duehook api` runs it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"DUEHOOK_DATABASE_URL": database_url, "DUEHOOK_SECRETS_KEY": SECRETS_KEY}
    running = subprocess.Popen([sys.executable, "-c", SERVE, str(port)], env={**os.environ, **settings})
    try:
        wait_until(lambda: _answers(port), what="the process answers", deadline=30)
        yield running, port
    finally:
        running.kill()
        running.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_sigterm_finishes_what_is_being_answered_and_exits_0(
    process: tuple[subprocess.Popen[bytes], int], database_url: str
) -> None:
    running, port = process
    engine = connect_engine(database_url, application_name="test")
    with engine.begin() as connection:
        key = keys.create(connection, "acme", KeyScope.PRODUCER)[1]
    engine.dispose()
    answers: list[httpx.Response] = []

    def post() -> None:
        url, headers = f"http://127.0.0.1:{port}/v1/events", {"authorization": f"Bearer {key}"}
        answers.append(httpx.post(url, json={"type": "a", "key": "k", "data": 1}, headers=headers, timeout=30))

    with psycopg.connect(database_url) as blocker:
        blocker.execute("INSERT INTO duehook.events (tenant, type, key, data) VALUES ('acme', 'b', 'k', '1')")
        thread = threading.Thread(target=post)
        thread.start()
        wait_until(lambda: _waiting(database_url), what="the request waits for the lock")
        running.send_signal(signal.SIGTERM)
        wait_until(lambda: not _answers(port), what="no new connection is accepted")
        blocker.rollback()
    thread.join(20)
    assert [answer.status_code for answer in answers] == [202]
    assert running.wait(20) == 0


def _waiting(database_url: str) -> bool:
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
        return bool(found and found[0])
