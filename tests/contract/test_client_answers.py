"""The Python client and answers: its results, what the service refuses, and what was never the service's."""

import gzip
import json
from typing import Any

import pytest

from app.client import (
    BrokenError,
    Client,
    ConflictError,
    InvalidError,
    NewEvent,
    NotFoundError,
    RefusedError,
    UnexpectedAnswerError,
)
from tests.contract.clients import ACCEPTED, GOOD, PAGE, QUICK, answer, asking, headers_of, problem, serve
from tests.contract.served import Api
from tests.hostile.server import HostileServer

STRANGE: dict[str, bytes] = {
    "a page": answer(200, PAGE, media_type="text/html"),
    "JSON declared as a page": answer(202, ACCEPTED, media_type="text/html; charset=utf-8"),
    "no type": b"HTTP/1.1 202 X\r\ncontent-length: 2\r\n\r\n{}",
    "a page declared as JSON": answer(200, PAGE),
    "nothing": answer(200, b""),
    "no content": b"HTTP/1.1 204 X\r\n\r\n",
    "half of it": answer(202, json.dumps(ACCEPTED).encode()[:-3]),
    "more than it": answer(202, json.dumps(ACCEPTED).encode() + b"{}"),
    "a list": answer(202, [ACCEPTED]),
    "text": answer(202, "x"),
    "deep": answer(202, b"[" * 100_000),
    "deep in a member": answer(202, b'{"id":' + b'{"a":' * 100_000),
    "a member missing": answer(202, {name: each for name, each in ACCEPTED.items() if name != "due_at"}),
    "another's shape": answer(202, {"status": "ok"}),
    "a member of another type": answer(202, {**ACCEPTED, "deliveries": "3"}),
    "true for a number": answer(202, {**ACCEPTED, "deliveries": True}),
    "null for text": answer(202, {**ACCEPTED, "id": None}),
    "no time": answer(202, {**ACCEPTED, "due_at": "tomorrow"}),
    "a time without a zone": answer(202, {**ACCEPTED, "due_at": "2030-01-01T12:00:00"}),
    "not UTF-8": answer(202, json.dumps(ACCEPTED).encode().replace(b"evt", b"\xff\xfe")),
    "compressed": answer(202, gzip.compress(json.dumps(ACCEPTED).encode()), "content-encoding: gzip"),
    "a redirect that calls itself a problem": problem(307, "conflict"),
    "a redirect": answer(307, b"", "location: http://127.0.0.1:1/"),
    "not found by somebody else": answer(404, PAGE, media_type="text/html"),
    "forbidden by somebody else": answer(403, {"detail": "Forbidden"}),
    "a problem that is none": answer(409, b"[]", media_type="application/problem+json"),
    "a problem that is no JSON": answer(409, b"{", media_type="application/problem+json"),
    "a deep problem": answer(409, b'{"detail":' + b"[" * 100_000, media_type="application/problem+json"),
    "a problem without words": answer(409, {"type": "/problems/conflict"}, media_type="application/problem+json"),
    "a problem that is fine": answer(200, {"detail": "fine"}, media_type="application/problem+json"),
    "a status of its own": answer(999, ACCEPTED),
    "not implemented": answer(501, b""),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_an_answer_that_is_not_the_services_is_told_as_such_and_once(strange: str) -> None:
    script = serve(STRANGE[strange])
    with HostileServer(script) as server, asking(server.port) as client, pytest.raises(UnexpectedAnswerError) as raised:
        client.events.post("a", 1)
    assert len(server.requests) == 1
    error = raised.value
    assert error.status == int(STRANGE[strange][9:12])
    assert str(error).startswith(f"POST /v1/events was answered {error.status} by something that doesn't speak as")
    assert "Welcome" not in str(error)
    assert error.idempotency_key == headers_of(server.requests[0])["idempotency-key"]
    assert error.__cause__ is None


@pytest.mark.parametrize("number", [0, 2])
def test_a_list_that_is_not_answered_one_by_one_is_none_of_the_services_answers(number: int) -> None:
    with HostileServer(serve(answer(202, {"data": [ACCEPTED] * number}))) as server, asking(server.port) as client:
        with pytest.raises(UnexpectedAnswerError) as raised:
            client.events.post_many([NewEvent("a", 1)])
        assert raised.value.may_have_happened


def test_a_redirect_is_not_followed_for_the_key_would_go_along() -> None:
    with HostileServer(serve(GOOD)) as elsewhere:
        moved = answer(308, b"", f"location: http://127.0.0.1:{elsewhere.port}/v1/events")
        with HostileServer(serve(moved)) as server, asking(server.port) as client, pytest.raises(UnexpectedAnswerError):
            client.events.post("a", 1)
    assert elsewhere.connections == 0


REFUSALS: dict[str, tuple[bytes, type[RefusedError]]] = {
    "conflict": (problem(409, "conflict"), ConflictError),
    "invalid": (problem(422, "invalid", errors=[{"pointer": "/a", "detail": "b"}, 7, {"detail": None}]), InvalidError),
    "broken": (problem(500, "broken"), BrokenError),
    "a type to come": (problem(404, "erased"), NotFoundError),
    "a status to come": (problem(451, "lawyers"), RefusedError),
    "a type elsewhere": (problem(409, "x", type="about:blank"), ConflictError),
    "members of other types": (problem(409, "conflict", title=7, type=[], errors="all"), ConflictError),
    "many words": (problem(409, "conflict", detail="no " * 100_000), ConflictError),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_the_service_refuses_is_not_asked_again(name: str) -> None:
    response, kind = REFUSALS[name]
    with HostileServer(serve(response)) as server, asking(server.port) as client, pytest.raises(kind) as refused:
        client.events.post("a", 1)
    assert len(server.requests) == 1
    assert type(refused.value) is kind
    assert str(refused.value).startswith("no") and len(str(refused.value)) <= 2000
    assert refused.value.idempotency_key == headers_of(server.requests[0])["idempotency-key"]


def test_what_a_later_version_adds_is_passed_over() -> None:
    more = answer(202, {**ACCEPTED, "erased_at": None, "data": [], "links": {"self": "/"}, "type": "new.kind"})
    with HostileServer(serve(more)) as server, asking(server.port) as client:
        assert client.events.post("a", 1).type == "new.kind"


def test_a_create_that_was_answered_before_gets_its_secret_all_the_same(api: Api) -> None:
    """As the contract says: a replayed answer carries no secret."""
    with Client(api.url, api.key("replayed"), retries=QUICK) as client:
        made = client.endpoints.create("http://127.0.0.1:9/", ["a"])
    members: dict[str, Any] = {
        "id": made.id,
        "url": made.url,
        "event_types": ["a"],
        "description": None,
        "headers": {},
        "signing": "hmac",
        "status": "enabled",
        "disabled_reason": None,
        "disabled_at": None,
        "flagged": False,
        "rate_per_second": None,
        "max_in_flight": None,
        "retry_schedule": None,
        "created_at": "2030-01-01T12:00:00Z",
        "secret": None,
    }
    replayed = answer(201, members, "idempotency-replayed: true")
    secret = answer(200, {"secret": "whsec_x"})
    rotated = answer(200, {"secret": None, "previous_expires_at": None})
    with HostileServer(serve(replayed, secret, rotated, secret)) as server, asking(server.port) as client:
        assert client.endpoints.create(made.url, ["a"]).secret == "whsec_x"
        assert client.endpoints.rotate_secret(made.id).secret == "whsec_x"
    assert server.requests[1].startswith(f"GET /v1/endpoints/{made.id}/secret ".encode())


def test_health_is_told_as_it_is_and_not_tried_again() -> None:
    sick = answer(503, {"status": "not ready", "database": "unreachable", "broker": "ok"})
    with HostileServer(serve(sick)) as server, asking(server.port) as client:
        ready = client.health.ready()
        assert (ready.is_ready, ready.database) == (False, "unreachable")
    page = serve(answer(503, PAGE, media_type="text/html"))
    with HostileServer(page) as other, asking(other.port) as client:
        for look in (client.health.live, client.health.ready):
            with pytest.raises(UnexpectedAnswerError):
                look()
    assert (len(server.requests), len(other.requests)) == (1, 2)
