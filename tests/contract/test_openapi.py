"""The OpenAPI document against the API: every route, parameter, status and member, both ways."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api import (
    audit_shapes,
    auth,
    dead_letter_shapes,
    delivery_shapes,
    endpoint_shapes,
    event_shapes,
    job_shapes,
    reservation_shapes,
)
from app.api.problems import KINDS
from app.core.endpoints import GONE, REQUESTED
from app.domain.states import KeyScope
from tests.contract.documented import DOCUMENT, OPERATIONS, PROBLEM, check, flaws
from tests.contract.served import Api, served, subscribe
from tests.contract.test_deliveries import bury
from tests.contract.test_refusals import GOOD, is_problem

ROUTES = """
    POST /v1/reservations · GET /v1/reservations · GET /v1/reservations/{id}
    POST /v1/reservations/{id}/confirm · POST /v1/reservations/{id}/release
    POST /v1/events · GET /v1/events · GET /v1/events/{id} · GET /v1/events/{id}/deliveries
    POST /v1/events/{id}/cancel · POST /v1/events/{id}/erase
    POST /v1/endpoints · GET /v1/endpoints · GET /v1/endpoints/{id} · PATCH /v1/endpoints/{id}
    DELETE /v1/endpoints/{id} · GET /v1/endpoints/{id}/secret · POST /v1/endpoints/{id}/rotate-secret
    POST /v1/endpoints/{id}/enable · POST /v1/endpoints/{id}/disable
    GET /v1/deliveries · GET /v1/deliveries/{id} · POST /v1/deliveries/{id}/retry · POST /v1/deliveries/{id}/cancel
    POST /v1/endpoints/{id}/replay · POST /v1/endpoints/{id}/ping
    GET /v1/dead-letters · GET /v1/dead-letters/{id} · POST /v1/dead-letters/redrive
    POST /v1/dead-letters/{id}/redrive
    GET /v1/jobs · GET /v1/jobs/{id} · POST /v1/jobs/{id}/cancel
    GET /v1/audit · DELETE /v1/tenants/{tenant}
    GET /healthz · GET /readyz · GET /problems/{name}
"""
WANTED = {tuple(route.split()) for line in ROUTES.strip().splitlines() for route in line.split(" · ")}
KEYED = [route for route in OPERATIONS if route[1].startswith("/v1/")]
WITH_BODY = [route for route in KEYED if route[0] in ("POST", "PATCH")]
JSON = {"content-type": "application/json"}
PREFIX = {
    "reservations": "rsv",
    "events": "evt",
    "endpoints": "end",
    "deliveries": "dlv",
    "dead-letters": "dlv",
    "jobs": "job",
}


def documented(status: int) -> list[tuple[str, str]]:
    return [route for route in OPERATIONS if str(status) in OPERATIONS[route]["responses"]]


def send(client: httpx.Client, route: tuple[str, str], **request: Any) -> httpx.Response:
    """A request that is fine as far as it goes: about a thing that is not there."""
    method, path = route
    prefix = PREFIX.get(path.split("/")[2])
    if route in WITH_BODY:
        request = {"content": body_for(path), "headers": JSON, **request}
    return client.request(method, path.replace("{id}", f"{prefix}_1").replace("{tenant}", "nobody"), **request)


def body_for(path: str) -> str:
    match path.split("/")[2:]:
        case [nouns]:
            return json.dumps(GOOD.get(nouns[:-1], {}))
        case ["dead-letters", "redrive"] | ["endpoints", _, "replay"]:
            return json.dumps(GOOD[path.split("/")[-1]])
    return "{}"


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[httpx.Client]:
    with api.client("documented") as made:
        yield made


def test_the_document_names_every_route_and_no_other(client: httpx.Client) -> None:
    assert set(OPERATIONS) == WANTED
    assert client.get("/openapi.json").json() == DOCUMENT


def test_the_page_shows_every_route_and_member_and_fetches_nothing(client: httpx.Client) -> None:
    page = client.get("/docs").text
    assert "openapi.json" in page
    for method, path in OPERATIONS:
        assert f"<code>{method} {path}</code>" in page
        assert f'id="{OPERATIONS[method, path]["operationId"]}"' in page
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert f'id="{name}"' in page
        assert all(f"<code>{member}</code>" in page for member in schema.get("properties", ()))
    assert not [word for word in ("<script", "<link", " src=", "url(", "@import") if word in page]


@pytest.mark.parametrize("member", ["operationId", "summary"])
def test_every_operation_has_a_name_of_its_own(member: str) -> None:
    names = [operation[member] for operation in OPERATIONS.values()]
    assert len(names) == len(set(names))
    assert max(map(len, names)) < 90


def test_every_operation_says_what_it_does_and_takes() -> None:
    for route, operation in OPERATIONS.items():
        assert operation["description"], route
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (route, parameter)
        assert ("security" in operation) == (route in KEYED), route


def test_every_tag_is_described() -> None:
    described = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert {tag for operation in OPERATIONS.values() for tag in operation["tags"]} == described.keys()
    assert all(described.values())


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_the_scope_that_is_documented_is_the_one_it_takes(api: Api, route: tuple[str, str]) -> None:
    ((scope,),) = (each["key"] for each in OPERATIONS[route]["security"])
    with api.client("documented", KeyScope.PRODUCER) as producer:
        assert (send(producer, route).status_code == 403) == (scope == "operator")


def test_every_member_is_described() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, schema in schemas.items():
        for member, each in schema.get("properties", {}).items():
            described = each if "$ref" not in each else each | schemas[each["$ref"].rpartition("/")[2]]
            assert described.get("description"), f"{name}.{member}"


def test_every_reason_for_which_an_endpoint_is_disabled_is_told() -> None:
    told = DOCUMENT["components"]["schemas"]["EndpointView"]["properties"]["disabled_reason"]["description"]
    assert not [word for word in (REQUESTED, GONE, "failing: ", "Null while it is enabled") if word not in told]


def examples() -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Where, the schema, the example: of every body and every answer."""
    for (method, path), operation in OPERATIONS.items():
        contents = {"body": operation.get("requestBody", {}), **operation["responses"]}
        for what, told in contents.items():
            for content in told.get("content", {}).values():
                shown = content.get("examples", {"": {"value": content.get("example")}})
                for each in shown.values():
                    yield f"{method} {path} {what}", content["schema"], each["value"]


def test_every_body_and_every_answer_has_an_example_that_fits_its_schema() -> None:
    for where, schema, example in examples():
        assert example is not None, where
        assert not flaws(schema, example), where


def test_the_judge_of_answers_lets_nothing_pass_that_is_not_documented() -> None:
    live = ("GET", "http://x/healthz")
    for told in (
        httpx.Response(200, json={"status": "bad"}, request=httpx.Request(*live)),
        httpx.Response(200, json={"status": "ok", "more": 1}, request=httpx.Request(*live)),
        httpx.Response(200, json={}, request=httpx.Request(*live)),
        httpx.Response(200, text="{}", request=httpx.Request(*live)),
        httpx.Response(418, json={"status": "ok"}, request=httpx.Request(*live)),
        httpx.Response(200, json={}, request=httpx.Request("GET", "http://x/v1/nothing")),
        httpx.Response(
            401,
            content=json.dumps(OPERATIONS["GET", "/v1/jobs"]["responses"]["401"]["content"][PROBLEM]["example"]),
            headers={"content-type": PROBLEM},
            request=httpx.Request("GET", "http://x/v1/jobs"),
        ),
    ):
        with pytest.raises(AssertionError):
            check(told)
    check(httpx.Response(200, json={"status": "ok"}, request=httpx.Request(*live)))


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_every_failure_has_a_kind_a_schema_and_an_example(route: tuple[str, str]) -> None:
    for status, response in OPERATIONS[route]["responses"].items():
        if int(status) >= 400:
            content = response["content"]["application/problem+json"]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
            kind = KINDS[content["example"]["type"].removeprefix("/problems/")]
            assert (kind.status, kind.meaning) == (int(status), response["description"])


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_every_post_and_no_other_route_documents_its_idempotency_key(route: tuple[str, str]) -> None:
    operation = OPERATIONS[route]
    headers = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "header"]
    replayed = {
        status: "Idempotency-Replayed" in each.get("headers", {}) for status, each in operation["responses"].items()
    }
    if route[0] == "POST":
        assert headers == ["Idempotency-Key"]
        assert replayed == {status: status < "3" for status in operation["responses"]}
        assert {"409", "422", "429"} <= operation["responses"].keys()
    else:
        assert headers == []
        assert not any(replayed.values())
    assert "429" in operation["responses"]
    assert list(operation["responses"]) == sorted(operation["responses"])


def test_every_reference_leads_somewhere() -> None:
    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for each in node.values():
                yield from references(each)
        elif isinstance(node, list):
            for each in node:
                yield from references(each)

    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(references(DOCUMENT)) <= known


@pytest.mark.parametrize("route", WITH_BODY, ids=" ".join)
def test_every_body_has_a_schema_and_an_example_that_is_taken(client: httpx.Client, route: tuple[str, str]) -> None:
    body = OPERATIONS[route].get("requestBody")
    if body is None:
        assert send(client, route, content=b"").status_code == 404, "an action without members"
        return
    content = body["content"]["application/json"]
    assert content["schema"]
    for example in content["examples"].values():
        answer = send(client, route, content=json.dumps(example["value"]))
        assert answer.status_code in (200, 201, 202, 404), answer.text


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_every_route_answers_401_403_and_422_as_documented(
    api: Api, client: httpx.Client, route: tuple[str, str]
) -> None:
    assert {"401", "403", "422", "500", "503"} <= OPERATIONS[route]["responses"].keys()
    is_problem(send(client, route, headers={**JSON, "authorization": "Bearer x"}), 401, "no-key")
    is_problem(send(client, route, params={"tenant": "another"}), 403, "wrong-scope")
    with api.client("*") as everyone:
        unnamed = (route[0], route[1].replace("{tenant}", "-"))
        is_problem(send(everyone, unnamed), 422, "invalid")


@pytest.mark.parametrize("route", documented(404), ids=" ".join)
def test_what_is_documented_as_404_is(client: httpx.Client, route: tuple[str, str]) -> None:
    shown = OPERATIONS[route]["responses"]["404"]["content"][PROBLEM]["example"]
    if route in KEYED:
        assert is_problem(send(client, route), 404, "not-found") == shown
    else:
        assert client.get("/problems/nothing").json() == shown


@pytest.mark.parametrize("route", documented(409), ids=" ".join)
def test_the_example_of_a_409_is_about_the_thing_of_its_route(route: tuple[str, str]) -> None:
    detail = OPERATIONS[route]["responses"]["409"]["content"][PROBLEM]["example"]["detail"]
    plural = route[1].split("/")[2]
    noun = {"deliveries": "delivery", "dead-letters": "dead letter"}.get(plural, plural.removesuffix("s"))
    assert detail == f"the state of this {noun} does not allow it"


def test_the_example_of_a_job_is_of_the_kind_that_was_asked_for() -> None:
    told = {
        route: response["content"]["application/json"].get("example")
        for route, operation in OPERATIONS.items()
        for status, response in operation["responses"].items()
        if status == "202" and response["content"]["application/json"]["schema"].get("$ref", "").endswith("/JobView")
    }
    assert {route: (example["kind"], example["status"], example["result"]) for route, example in told.items()} == {
        ("POST", "/v1/dead-letters/redrive"): ("redrive", "queued", None),
        ("POST", "/v1/endpoints/{id}/replay"): ("replay", "queued", None),
        ("POST", "/v1/events/{id}/erase"): ("erase_event", "queued", None),
        ("DELETE", "/v1/tenants/{tenant}"): ("erase_tenant", "queued", None),
    }


@pytest.mark.parametrize("route", WITH_BODY, ids=" ".join)
def test_every_route_with_a_body_answers_400_413_and_415(client: httpx.Client, route: tuple[str, str]) -> None:
    assert {"400", "413", "415"} <= OPERATIONS[route]["responses"].keys()
    is_problem(send(client, route, content="{"), 400, "not-json")
    is_problem(send(client, route, headers={"content-type": "text/plain"}), 415, "not-declared")
    is_problem(send(client, route, content=b" " * (17 << 20)), 413, "too-large")


def test_no_other_route_documents_them() -> None:
    for status in (400, 413, 415):
        assert set(documented(status)) == set(WITH_BODY)


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_a_fault_is_a_problem_too_and_tells_nothing(
    client: httpx.Client, route: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a secret payload")

    monkeypatch.setattr(auth.KeyRing, "recall", broken)
    answer = send(client, route)
    assert "secret" not in str(is_problem(answer, 500, "broken"))
    assert "a secret payload" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def lost(template: str, postgres: Any) -> Iterator[httpx.Client]:
    """A client of an API whose database goes away."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE lost TEMPLATE {template}")
        with served(postgres.url_of("lost")) as running, running.client() as made:
            assert made.get("/readyz").status_code == 200
            connection.execute("DROP DATABASE lost WITH (FORCE)")
            yield made


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_a_lost_database_is_503_with_retry_after(lost: httpx.Client, route: tuple[str, str]) -> None:
    answer = send(lost, route)
    is_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "2"


def test_a_lost_database_is_not_ready_but_alive(lost: httpx.Client) -> None:
    ready = lost.get("/readyz")
    assert (ready.status_code, ready.json()["database"]) == (503, "unreachable")
    assert lost.get("/healthz").json() == {"status": "ok"}


def members(model: type[BaseModel]) -> set[str]:
    _, document = models_json_schema([(model, "validation")])
    return set(document["$defs"][model.__name__]["properties"])


def test_answers_have_the_documented_members(api: Api, acme: httpx.Client) -> None:
    endpoint = f"/v1/endpoints/{subscribe(acme)}"
    event = acme.post("/v1/events", json=GOOD["event"]).json()
    delivery = acme.get("/v1/deliveries").json()["data"][0]
    bury(api, delivery["id"])
    job = acme.post("/v1/dead-letters/redrive", json=GOOD["redrive"]).json()
    dry = {**GOOD["redrive"], "dry_run": True}
    pairs: list[tuple[type[BaseModel], Any]] = [
        (reservation_shapes.ReservationView, acme.post("/v1/reservations", json=GOOD["reservation"]).json()),
        (event_shapes.AcceptedView, event),
        (event_shapes.EventView, acme.get(f"/v1/events/{event['id']}").json()),
        (event_shapes.CancelledView, acme.post(f"/v1/events/{event['id']}/cancel").json()),
        (delivery_shapes.DeliveryView, delivery),
        (delivery_shapes.DeliveryWithAttempts, acme.get(f"/v1/deliveries/{delivery['id']}").json()),
        (endpoint_shapes.EndpointView, acme.get(endpoint).json()),
        (endpoint_shapes.CreatedView, acme.post("/v1/endpoints", json=GOOD["endpoint"]).json()),
        (endpoint_shapes.SecretView, acme.get(f"{endpoint}/secret").json()),
        (endpoint_shapes.RotatedView, acme.post(f"{endpoint}/rotate-secret").json()),
        (job_shapes.JobView, acme.post(f"/v1/events/{event['id']}/erase").json()),
        (audit_shapes.EntryView, acme.get("/v1/audit").json()["data"][0]),
        (job_shapes.JobView, job),
        (job_shapes.JobView, acme.post(f"/v1/jobs/{job['id']}/cancel").json()),
        (dead_letter_shapes.Matching, acme.post("/v1/dead-letters/redrive", json=dry).json()),
        (dead_letter_shapes.DeadLetterView, acme.get("/v1/dead-letters").json()["data"][0]),
        (dead_letter_shapes.DeadLetterWithAttempts, acme.get(f"/v1/dead-letters/{delivery['id']}").json()),
        (delivery_shapes.DeliveryWithAttempts, acme.post(f"/v1/dead-letters/{delivery['id']}/redrive").json()),
    ]
    for model, answer in pairs:
        assert members(model) == set(answer), model
        model.model_validate(answer)
