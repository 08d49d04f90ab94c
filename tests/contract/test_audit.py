"""The audit log over HTTP: no route that changes something forgets it, and no entry tells too much."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest

from app.core.jobs import advance
from app.domain.auditing import Action
from app.domain.states import KeyScope
from tests.clock import Clock
from tests.contract.documented import OPERATIONS
from tests.contract.served import Api, number_of, subscribe
from tests.contract.test_deliveries import bury, posted
from tests.contract.test_paging import flat, pages
from tests.contract.test_refusals import GOOD, is_problem
from tests.ledgers import row, rows

Route = tuple[str, str]
SECRET = "whsec_" + "QUJD" * 8
ADA = {"name": "Ada"}


def an_endpoint(api: Api, client: httpx.Client) -> str:
    return subscribe(client)


def a_delivery(api: Api, client: httpx.Client) -> str:
    subscribe(client)
    return posted(client)


def a_dead_letter(api: Api, client: httpx.Client) -> str:
    delivery = a_delivery(api, client)
    bury(api, delivery)
    return delivery


def an_event(api: Api, client: httpx.Client) -> str:
    return str(client.post("/v1/events", json={"type": "a", "data": ADA}).json()["id"])


def a_job(api: Api, client: httpx.Client) -> str:
    return str(client.post("/v1/dead-letters/redrive", json=GOOD["redrive"]).json()["id"])


def nothing(api: Api, client: httpx.Client) -> str:
    return ""


Making = Callable[[Api, httpx.Client], str]
# What is there before, what is sent, and what the log tells then.
CHANGES: dict[Route, tuple[Making, Any, Action]] = {
    ("POST", "/v1/endpoints"): (nothing, {**GOOD["endpoint"], "secret": SECRET}, Action.ENDPOINT_CREATED),
    ("PATCH", "/v1/endpoints/{id}"): (
        an_endpoint,
        {"url": "https://shop.example/?token=t0ken", "headers": {"x-a": "t0ken"}},
        Action.ENDPOINT_CHANGED,
    ),
    ("DELETE", "/v1/endpoints/{id}"): (an_endpoint, None, Action.ENDPOINT_DELETED),
    ("GET", "/v1/endpoints/{id}/secret"): (an_endpoint, None, Action.SECRET_READ),
    ("POST", "/v1/endpoints/{id}/rotate-secret"): (an_endpoint, {}, Action.SECRET_ROTATED),
    ("POST", "/v1/endpoints/{id}/enable"): (an_endpoint, {}, Action.ENDPOINT_ENABLED),
    ("POST", "/v1/endpoints/{id}/disable"): (an_endpoint, {}, Action.ENDPOINT_DISABLED),
    ("POST", "/v1/endpoints/{id}/ping"): (an_endpoint, {}, Action.ENDPOINT_PINGED),
    ("POST", "/v1/endpoints/{id}/replay"): (an_endpoint, GOOD["replay"], Action.ENDPOINT_REPLAYED),
    ("POST", "/v1/events/{id}/cancel"): (an_event, {}, Action.EVENT_CANCELLED),
    ("POST", "/v1/events/{id}/erase"): (an_event, {}, Action.EVENT_ERASURE_ASKED),
    ("POST", "/v1/deliveries/{id}/retry"): (a_dead_letter, {}, Action.DELIVERY_RETRIED),
    ("POST", "/v1/deliveries/{id}/cancel"): (a_delivery, {}, Action.DELIVERY_CANCELLED),
    ("POST", "/v1/dead-letters/redrive"): (nothing, GOOD["redrive"], Action.REDRIVE_ASKED),
    ("POST", "/v1/dead-letters/{id}/redrive"): (a_dead_letter, {}, Action.DELIVERY_REDRIVEN),
    ("POST", "/v1/jobs/{id}/cancel"): (a_job, {}, Action.JOB_CANCELLED),
    ("DELETE", "/v1/tenants/{tenant}"): (nothing, None, Action.TENANT_ERASURE_ASKED),
}
# What producers do: the ledger itself tells of it, in rows that nobody can rewrite.
UNTOLD = {
    ("POST", "/v1/reservations"),
    ("POST", "/v1/reservations/{id}/confirm"),
    ("POST", "/v1/reservations/{id}/release"),
    ("POST", "/v1/events"),
}


def entries(api: Api, tenant: str) -> list[dict[str, Any]]:
    with psycopg.connect(api.database_url) as connection:
        found = connection.execute(
            "SELECT actor, action, subject, details FROM duehook.audit_log WHERE tenant = %s ORDER BY seq", [tenant]
        )
        return [dict(zip(("actor", "action", "subject", "details"), each, strict=True)) for each in found]


def test_every_route_that_changes_something_is_here() -> None:
    changing = {route for route in OPERATIONS if route[0] != "GET"} | {("GET", "/v1/endpoints/{id}/secret")}
    assert changing == CHANGES.keys() | UNTOLD


@pytest.mark.parametrize("route", CHANGES, ids=" ".join)
def test_every_change_leaves_one_entry_that_names_the_key_and_holds_no_value(
    api: Api, acme: httpx.Client, tenant: str, route: Route
) -> None:
    making, body, action = CHANGES[route]
    method, path = route
    thing = making(api, acme)
    before = entries(api, tenant)
    with api.client("*") as everyone:
        client = everyone if "{tenant}" in path else acme
        answer = client.request(method, path.format(id=thing, tenant=tenant), json=body)
        used = client.headers["authorization"].removeprefix("Bearer ")
    assert answer.is_success, answer.text
    (entry,) = entries(api, tenant)[len(before) :]
    ours = "SELECT seq FROM duehook.api_keys WHERE hash = sha256(CAST(:key AS bytea))"
    (key,) = rows(api.runtime.engine, ours, key=used)
    assert (entry["actor"], entry["action"]) == (f"key_{key:x}", action)
    assert entry["subject"] == (tenant if "{tenant}" in path else thing or answer.json()["id"])
    told = json.dumps(entry)
    assert not [word for word in ("whsec_", SECRET, "http", "t0ken", "Ada", used) if word in told]


@pytest.mark.parametrize("route", CHANGES, ids=" ".join)
def test_a_change_whose_entry_can_t_be_written_is_not_made(
    api: Api, acme: httpx.Client, tenant: str, route: Route
) -> None:
    making, body, _ = CHANGES[route]
    method, path = route
    thing = making(api, acme)
    tables = ("endpoints", "secrets", "events", "deliveries", "jobs", "api_keys")

    def everything() -> list[Any]:
        return [rows(api.runtime.engine, f"SELECT t::text FROM duehook.{name} t ORDER BY 1") for name in tables]

    with api.client("*") as everyone, psycopg.connect(api.database_url, autocommit=True) as owner:
        before = everything()
        owner.execute("ALTER TABLE duehook.audit_log ADD CONSTRAINT nothing CHECK (false) NOT VALID")
        try:
            client = everyone if "{tenant}" in path else acme
            answer = client.request(method, path.format(id=thing, tenant=tenant), json=body)
        finally:
            owner.execute("ALTER TABLE duehook.audit_log DROP CONSTRAINT nothing")
        is_problem(answer, 500, "broken")
        assert everything() == before


def test_what_producers_do_and_what_was_refused_leaves_none(
    api: Api, acme: httpx.Client, producer: httpx.Client, tenant: str
) -> None:
    held = producer.post("/v1/reservations", json=GOOD["reservation"]).json()["id"]
    assert producer.post(f"/v1/reservations/{held}/confirm").status_code == 200
    assert producer.post(f"/v1/reservations/{held}/release").status_code == 200
    an_event(api, producer)
    for method, path, status in (
        ("POST", "/v1/endpoints/end_1/disable", 404),
        ("PATCH", "/v1/endpoints/end_1", 404),
        ("POST", "/v1/deliveries/dlv_1/retry", 404),
        ("POST", "/v1/events/evt_1/erase", 404),
        ("POST", "/v1/jobs/job_1/cancel", 404),
    ):
        assert acme.request(method, path, json={}).status_code == status
    assert producer.post("/v1/dead-letters/redrive", json=GOOD["redrive"]).status_code == 403
    dry = {**GOOD["redrive"], "dry_run": True}
    assert acme.post("/v1/dead-letters/redrive", json=dry).status_code == 200
    delivery = a_delivery(api, acme)
    assert acme.post(f"/v1/dead-letters/{delivery}/redrive").status_code == 409
    assert [each["action"] for each in entries(api, tenant)] == ["endpoint.created"]


def test_the_log_is_listed_newest_first_with_pages_and_filters(
    api: Api, acme: httpx.Client, rival: httpx.Client, tenant: str
) -> None:
    one, two = subscribe(acme), subscribe(acme)
    acme.patch(f"/v1/endpoints/{one}", json={"description": "mine", "rate_per_second": 5})
    acme.delete(f"/v1/endpoints/{two}")
    subscribe(rival)
    shown = acme.get("/v1/audit").json()
    assert shown["next_cursor"] is None
    assert [(each["action"], each["subject"]) for each in shown["data"]] == [
        ("endpoint.deleted", two),
        ("endpoint.changed", one),
        ("endpoint.created", two),
        ("endpoint.created", one),
    ]
    actors = {each["actor"] for each in shown["data"]}
    assert len(actors) == 1 and actors.pop().startswith("key_")
    assert shown["data"][1] == {
        "id": shown["data"][1]["id"],
        "at": "2030-01-01T12:00:00.000000Z",
        "actor": shown["data"][0]["actor"],
        "action": "endpoint.changed",
        "subject": one,
        "details": {"members": ["description", "rate_per_second"]},
    }
    assert flat(pages(acme, "/v1/audit", limit=1)) == [each["id"] for each in shown["data"]]
    created = acme.get("/v1/audit", params={"action": "endpoint.created"}).json()["data"]
    assert created == shown["data"][2:]
    assert acme.get("/v1/audit", params={"subject": two}).json()["data"] == shown["data"][::2]
    is_problem(acme.get("/v1/audit", params={"action": "endpoint.made"}), 422, "invalid")
    with api.client(tenant, KeyScope.PRODUCER) as producer:
        is_problem(producer.get("/v1/audit"), 403, "wrong-scope")


def test_an_erased_event_is_shown_without_its_data_and_its_key_is_taken_still(
    api: Api, acme: httpx.Client, clock: Clock
) -> None:
    delivery = a_dead_letter(api, acme)
    event = acme.get(f"/v1/deliveries/{delivery}").json()["event_id"]
    keyed = {"type": "a", "key": "one", "data": ADA}
    other = acme.post("/v1/events", json=keyed).json()["id"]
    for each in (event, other):
        answer = acme.post(f"/v1/events/{each}/erase")
        assert (answer.status_code, answer.json()["kind"], answer.json()["status"]) == (202, "erase_event", "queued")
        job = answer.json()["id"]
        while acme.get(f"/v1/jobs/{job}").json()["status"] in ("queued", "running"):
            advance(api.runtime.engine, [number_of(job)])
        shown = acme.get(f"/v1/events/{each}").json()
        assert (shown["data"], shown["erased_at"]) == (None, "2030-01-01T12:00:00.000000Z")
    assert acme.get("/v1/events").json()["data"][0]["type"] == "job.completed"
    again = acme.post("/v1/events", json=keyed)
    assert (again.status_code, again.json()["id"]) == (200, other)
    is_problem(acme.post("/v1/events", json={**keyed, "data": {"name": "Bob"}}), 409, "conflict")
    for path in (f"/v1/deliveries/{delivery}/retry", f"/v1/dead-letters/{delivery}/redrive"):
        problem = is_problem(acme.post(path), 409, "conflict")
        assert problem["detail"] == f"{delivery} can't be sent again; its event was erased"


def test_only_a_key_of_all_tenants_erases_one(api: Api, acme: httpx.Client, tenant: str, clock: Clock) -> None:
    subscribe(acme)
    path = f"/v1/tenants/{tenant}"
    is_problem(acme.delete(path), 403, "wrong-scope")
    with api.client("*") as everyone:
        is_problem(everyone.delete("/v1/tenants/a.b"), 422, "invalid")
        answer = everyone.delete(path)
        job = answer.json()
        assert (answer.status_code, job["kind"], job["status"]) == (202, "erase_tenant", "queued")
        assert everyone.delete(path).json() == job, "a repeat finds it"
        is_problem(everyone.post("/v1/events", json=GOOD["event"], params={"tenant": tenant}), 409, "conflict")
        seq = number_of(job["id"])
        while row(api.runtime.engine, "jobs", "seq", seq)["status"] in ("queued", "running"):
            advance(api.runtime.engine, [seq])
            clock.advance(seconds=1)
        ended = everyone.get(f"/v1/jobs/{job['id']}", params={"tenant": tenant}).json()
        assert (ended["status"], ended["result"]["erased"]["endpoints"]) == ("completed", 1)
        log = everyone.get("/v1/audit", params={"tenant": tenant}).json()["data"]
        assert [each["action"] for each in log] == [
            "tenant.erased",
            "tenant.erasure_asked",
            "endpoint.created",
        ]
        assert everyone.post("/v1/events", json=GOOD["event"], params={"tenant": tenant}).status_code == 202
