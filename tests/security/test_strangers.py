"""Whoever has no key, or not the right one, gets nothing of anybody, changes nothing, and takes nothing down."""

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import httpx
import psycopg
import pytest
from psycopg import sql

from app.api import connections
from app.api.problems import KINDS
from app.core import keys
from app.domain.states import KeyScope
from app.local.postgres import Postgres
from tests.contract.documented import OPERATIONS
from tests.contract.served import NO_TLS, Api, served, subscribe
from tests.waiting import wait_until

MARK = "KEEP-THIS-TO-YOURSELF"
OPEN = {"/healthz", "/readyz", "/metrics", "/problems/{name}"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
MALFORMED = {
    "none at all": None,
    "no scheme": "dh_0000",
    "another scheme": "Basic YTpi",
    "no word": "Bearer",
    "two words": "Bearer a b",
    "a long one": "Bearer " + "x" * 8000,
    "not ASCII": "Bearer \u00e9\u00ff",
    "SQL": "Bearer ' OR '1'='1",
    "a path": "Bearer ../../etc/passwd",
    "one that was never made": f"Bearer dhk_{'0' * 48}",
    "percent": "Bearer %00%0d%0a",
    "the hash of nothing": "Bearer e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}
# Each is one exchange. What is not one request, plainly, is refused, and nothing in it is answered as another.
HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
BEGIN = b"POST /v1/events HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = {
    "both lengths": BEGIN + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "both, the other way": BEGIN + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n" + HIDDEN,
    "two lengths": BEGIN + b"Content-Length: 0\r\nContent-Length: 36\r\n\r\n" + HIDDEN,
    "a length with a sign": BEGIN + b"Content-Length: +0\r\n\r\n" + HIDDEN,
    "a length in hexadecimal": BEGIN + b"Content-Length: 0x0\r\n\r\n" + HIDDEN,
    "a list of lengths": BEGIN + b"Content-Length: 0, 36\r\n\r\n" + HIDDEN,
    "a negative length": BEGIN + b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "a coding nobody knows": BEGIN + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunked twice": BEGIN + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a blank before the colon": BEGIN + b"Content-Length : 36\r\n\r\n" + HIDDEN,
    "a folded line": BEGIN + b"X: a\r\n Content-Length: 36\r\n\r\n" + HIDDEN,
    "NUL in a value": BEGIN + b"X: a\0b\r\n\r\n" + HIDDEN,
    "a chunk without a size": BEGIN + b"Transfer-Encoding: chunked\r\n\r\n\r\n" + HIDDEN,
    "a chunk beyond numbers": BEGIN + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + HIDDEN,
    "CR alone": b"GET /v1/events HTTP/1.1\rHost: x\r\r" + HIDDEN,
    "two hosts": b"GET /v1/events HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + HIDDEN,
    "no host": b"GET /v1/events HTTP/1.1\r\n\r\n" + HIDDEN,
}
GARBAGE = {
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "Redis": b"*1\r\n$4\r\nPING\r\n",
    "PostgreSQL": bytes.fromhex("0000000804d2162f"),
    "bytes": bytes(range(256)) * 40,
    "HTTP/0.9": b"GET /\r\n",
    "CONNECT": b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a proxy's GET": b"GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "a path that climbs": b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "the same, encoded": b"GET /v1/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "with a backslash": b"GET /v1\\..\\..\\etc HTTP/1.1\r\nHost: x\r\n\r\n",
    "NUL in a path": b"GET /v1/events/%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "lines in a path": b"GET /v1/x%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: x\r\n\r\n",
    "a WebSocket": b"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "HTTP/2 by upgrade": b"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    "a method in another's place": b"GET /v1/events HTTP/1.1\r\nHost: x\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
    "a forwarded address": b"GET /v1/events HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n",
    "a cookie": b"GET /v1/events HTTP/1.1\r\nHost: x\r\nCookie: session=operator; key=dh_1\r\n\r\n",
    "a key in the query": b"GET /v1/events?key=dh_1&authorization=Bearer%20x HTTP/1.1\r\nHost: x\r\n\r\n",
}


@dataclass
class Kept:
    """A service with something to lose."""

    api: Api
    authorizations: dict[str, str | None]
    producer: str
    things: dict[str, str]  # an id of each noun

    def ask(self, client: httpx.Client, method: str, path: str, authorization: str | None) -> httpx.Response:
        headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
        return client.request(method, self.api.url + path, headers=headers)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def kept(postgres: Postgres, template: str) -> Iterator[Kept]:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE strangers TEMPLATE {template}")
    with served(postgres.url_of("strangers")) as api:
        with api.client() as owner:
            subscribe(owner, url=f"http://127.0.0.1:9/{MARK}", headers={"x": MARK}, description=MARK)
            owner.post("/v1/events", json={"type": "a", "data": MARK, "key": MARK}).raise_for_status()
            hold = {"resource": MARK, "hold_seconds": 9000, "data": MARK}
            owner.post("/v1/reservations", json=hold).raise_for_status()
            nouns = ("reservations", "events", "endpoints", "deliveries")
            things = {noun: owner.get(f"/v1/{noun}").json()["data"][0]["id"] for noun in nouns}
        revoked, producer = api.key(), api.key(scope=KeyScope.PRODUCER)
        with api.runtime.engine.begin() as database:
            found = keys.find(database, revoked)
            assert found is not None and keys.revoke(database, keys.public_id(found)) is not None
        yield Kept(api, {**MALFORMED, "a revoked one": f"Bearer {revoked}"}, f"Bearer {producer}", things)


@pytest.fixture(autouse=True)
def unchanged(kept: Kept) -> Iterator[None]:
    """Every table has the same rows before and after each test of this file."""
    before = contents(kept.api.database_url)
    assert len(before) > 20 and before["events"][0] == 1
    yield
    assert contents(kept.api.database_url) == before


@pytest.fixture(scope="module")
def anybody() -> Iterator[httpx.Client]:
    with httpx.Client(verify=NO_TLS, timeout=30) as client:
        yield client


def contents(database_url: str) -> dict[str, tuple[int, str]]:
    """Of each table the number of its rows, and the digest of all of them."""
    found = {}
    with psycopg.connect(database_url) as db:
        names = db.execute(
            """SELECT relname FROM pg_class WHERE relnamespace = 'duehook'::regnamespace AND relkind IN ('r', 'p')
                  AND relname <> 'service'"""
        ).fetchall()
        for (name,) in names:
            count = "SELECT count(*), coalesce(md5(string_agg(t::text, '' ORDER BY t::text)), '') FROM duehook.{} t"
            row = db.execute(sql.SQL(count).format(sql.Identifier(name))).fetchone()
            assert row is not None
            found[name] = row
    return found


def is_refusal(answer: httpx.Response, status: int) -> None:
    """A problem of the one shape, which says nothing of anybody."""
    assert answer.status_code == status, f"{answer.request.method} {answer.request.url}: {answer.status_code}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert MARK not in answer.text + str(answer.headers)
    if answer.request.method != "HEAD":
        problem = answer.json()
        assert list(problem) == ["type", "title", "status", "detail"]
        assert problem["type"].removeprefix("/problems/") in KINDS and problem["status"] == status
    assert (answer.headers.get("www-authenticate") == "Bearer") is (status == 401)


def url_of(path: str) -> str:
    prefix = next(
        (
            part
            for part in ("reservations", "events", "deliveries", "dead-letters", "endpoints", "jobs")
            if part in path
        ),
        "",
    )
    by_noun = {"reservations": "rsv_1", "events": "evt_1", "endpoints": "end_1", "jobs": "job_1"}
    return re.sub(r"\{[a-z_]+\}", by_noun.get(prefix, "dlv_1" if prefix else "acme"), path)


def exchange(port: int, request: bytes, *, seconds: float = 10, silence: float = 0.5) -> bytes:
    """All that comes back, until the other side closes or says no more."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as stream:
        stream.sendall(request)
        stream.settimeout(silence)
        try:
            while some := stream.recv(65536):
                got += some
        except (TimeoutError, ConnectionResetError):
            pass
    return got


@pytest.mark.parametrize("path", sorted({path for _, path in OPERATIONS} - OPEN))
def test_without_a_good_key_every_method_of_every_path_is_refused_alike(
    kept: Kept, anybody: httpx.Client, path: str
) -> None:
    url = url_of(path)
    fitting = [each for each in OPERATIONS if re.fullmatch(re.sub(r"\{[a-z_]+\}", "[^/]+", each[1]), url)]
    allowed = {method for method, _ in fitting} | ({"HEAD"} if any(method == "GET" for method, _ in fitting) else set())
    for method, authorization in product(METHODS, kept.authorizations.values()):
        is_refusal(kept.ask(anybody, method, url, authorization), 401 if method in allowed else 405)


@pytest.mark.parametrize(("method", "path"), sorted(each for each in OPERATIONS if each[1] not in OPEN))
def test_a_stranger_is_told_the_same_whether_a_thing_exists_or_not(
    kept: Kept, anybody: httpx.Client, method: str, path: str
) -> None:
    for noun, thing in kept.things.items():
        if f"/{noun}/" in path:
            real, unreal = (re.sub(r"\{[a-z_]+\}", each, path) for each in (thing, f"{thing[:-1]}x"))
            for authorization in ("Bearer nonsense", None):
                answers = [kept.ask(anybody, method, each, authorization) for each in (real, unreal)]
                assert answers[0].content == answers[1].content
                for answer in answers:
                    is_refusal(answer, 401)


OPERATORS = [
    (method, path)
    for (method, path), operation in OPERATIONS.items()
    if any("producer" not in scopes for each in operation.get("security", ()) for scopes in each.values())
]


@pytest.mark.parametrize(("method", "path"), OPERATORS)
def test_a_producers_key_opens_nothing_of_an_operators(
    kept: Kept, anybody: httpx.Client, method: str, path: str
) -> None:
    is_refusal(kept.ask(anybody, method, url_of(path), kept.producer), 403)


def test_there_are_operators_routes() -> None:
    assert len(OPERATORS) > 15


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs", "/problems/no-key", "/problems/x"])
def test_what_is_open_to_all_tells_nothing_of_anybody(kept: Kept, anybody: httpx.Client, path: str) -> None:
    for authorization in kept.authorizations.values():
        answer = kept.ask(anybody, "GET", path, authorization)
        assert answer.status_code in (200, 404)
        told = answer.text + str(answer.headers)
        for secret in (MARK, "acme-", "postgresql://", str(kept.api.port), "psycopg", "Traceback", "site-packages"):
            assert secret not in told, secret
        assert "server" not in answer.headers
    if path == "/healthz":
        assert answer.json() == {"status": "ok"}
    if path == "/readyz":
        assert set(answer.json()) == {"status", "database", "broker"}


@pytest.mark.parametrize("bytes_", SMUGGLED.values(), ids=SMUGGLED)
def test_nothing_hidden_in_a_request_is_answered_as_another(kept: Kept, bytes_: bytes) -> None:
    got = exchange(kept.api.port, bytes_)
    assert got.startswith(b"HTTP/1.1 400 "), got[:200]
    assert got.count(b"HTTP/1.1 ") == 1, got
    assert json.loads(got.partition(b"\r\n\r\n")[2])["type"] == "/problems/not-http"


@pytest.mark.parametrize("bytes_", GARBAGE.values(), ids=GARBAGE)
def test_garbage_on_the_socket_is_the_clients_fault(kept: Kept, anybody: httpx.Client, bytes_: bytes) -> None:
    got = exchange(kept.api.port, bytes_)
    assert re.match(rb"HTTP/1\.[01] 4\d\d ", got) or not got, got[:200]
    assert MARK.encode() not in got and b"set-cookie" not in got.lower()
    assert anybody.get(f"{kept.api.url}/healthz").status_code == 200


def test_http_1_0_needs_no_host_and_is_refused_like_any_other(kept: Kept) -> None:
    got = exchange(kept.api.port, b"GET /v1/events HTTP/1.0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 401 ") and b"www-authenticate: Bearer" in got
    assert exchange(kept.api.port, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begin", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"GET / HTTP/1.1\r\nHost: "])
def test_a_head_without_an_end_is_cut_before_it_fills_the_memory(kept: Kept, begin: bytes) -> None:
    sent, most = 0, 8 * 1024 * 1024
    with socket.create_connection(("127.0.0.1", kept.api.port), timeout=10) as stream:
        stream.sendall(begin)
        try:
            while sent < most:
                sent += stream.send(b"x" * 65536)
        except OSError:
            pass
    assert sent < most, "it took all of it"


def test_thousands_of_headers_are_cut_too(kept: Kept) -> None:
    lines = b"".join(b"X-%d: y\r\n" % count for count in range(20_000))
    got = exchange(kept.api.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
    assert got.startswith(b"HTTP/1.1 400 ") or not got
    assert b"200 OK" not in got


@pytest.mark.parametrize("begin", [b"", b"GET /healthz HTTP/1.1\r\nHo", b"\r\n", HIDDEN + b"G", HIDDEN + HIDDEN + b"G"])
def test_a_head_that_never_comes_holds_no_connection(kept: Kept, monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", kept.api.port), timeout=60) as stream:
        stream.sendall(begin)
        got = b""
        while some := stream.recv(65536):  # ends when the other side closes
            got += some
    assert got.count(b"200 OK") == begin.count(HIDDEN)


CHUNKED = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: %b\r\nContent-Type: application/json\r\n"
CHUNKED += b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n"
LENGTH = CHUNKED.replace(b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n", b"Content-Length: 1000\r\n\r\n[")


@pytest.mark.parametrize("begin", [b"0\r\nX: ", b"1;"], ids=["a trailer", "what a chunk is called"])
@pytest.mark.parametrize("piece", [b"x" * 65536, b"abc: d\r\n" * 8192], ids=["in one", "in lines"])
def test_trailers_are_as_bounded_as_heads(kept: Kept, begin: bytes, piece: bytes) -> None:
    """The server's parser keeps them all, and the one it is reading at the price of its square."""
    sent, most = 0, 8 * 1024 * 1024
    with socket.create_connection(("127.0.0.1", kept.api.port), timeout=10) as stream:
        stream.sendall(CHUNKED % kept.producer.encode() + begin)
        try:
            while sent < most:
                sent += stream.send(piece)
        except OSError:
            pass
    assert sent < most, "it took all of it"


@pytest.mark.parametrize("begin", [CHUNKED, LENGTH], ids=["in chunks", "of a length"])
def test_a_body_that_never_ends_holds_no_connection(kept: Kept, monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.3)
    assert b"its body has not ended within 0.3 s" in exchange(kept.api.port, begin % kept.producer.encode(), silence=10)


def test_a_large_body_in_large_pieces_is_no_trailer(kept: Kept) -> None:
    body = b'{"type": "a", "data": "%b"}' % (b"x" * 2_000_000)
    head = LENGTH.replace(
        b"Content-Length: 1000\r\n\r\n[", b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    )
    got = exchange(kept.api.port, head % kept.producer.encode() + body)
    assert got.startswith(b"HTTP/1.1 413 ") and got.count(b"HTTP/1.1 ") == 1


def test_of_two_authorizations_neither_counts(kept: Kept) -> None:
    one = b"Authorization: %b\r\n" % kept.producer.encode()
    got = exchange(kept.api.port, b"GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + one + one + b"\r\n")
    assert got.startswith(b"HTTP/1.1 401 ") and b"given twice" in got


def test_heads_and_bodies_have_times_that_a_client_on_a_slow_line_keeps() -> None:
    assert (connections.HEAD_SECONDS, connections.BODY_SECONDS) == (30, 120)


def test_empty_lines_after_an_answer_hold_no_connection(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", kept.api.port), timeout=20) as stream:
        stream.sendall(HIDDEN)
        assert b"200 OK" in stream.recv(65536)
        stream.sendall(b"\r\n")
        assert stream.recv(65536) == b"", "it is closed before the 30 s that an idle one has"


def test_a_head_that_drips_is_cut_however_often_something_comes(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", kept.api.port), timeout=10) as stream:
        stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ")
        stream.settimeout(0.02)

        def is_cut() -> bool:
            try:
                stream.sendall(b"x")
                return stream.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(is_cut, deadline=20, what="it is cut")


def test_a_client_that_takes_its_time_between_requests_is_still_served(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", kept.api.port), timeout=10) as stream:
        for _ in range(3):
            stream.sendall(HIDDEN)
            assert b"200 OK" in stream.recv(65536)
            time.sleep(0.5)  # idle on purpose, for longer than a head may take
