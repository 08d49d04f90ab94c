"""Limits per tenant: 429 with Retry-After beyond what the settings say, and nobody else is held up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.domain.states import KeyScope
from tests.contract.served import Api, served, subscribe
from tests.contract.test_openapi import KEYED, send
from tests.contract.test_refusals import GOOD, is_problem
from tests.ledgers import rows

EVENT = GOOD["event"]
SLOWLY = 0.001  # one at once, and the next in a quarter of an hour: no test is that slow


@pytest.fixture(scope="module")
def few_requests(contract_url: str) -> Iterator[Api]:
    with served(contract_url, tenant_requests_per_second=SLOWLY) as running:
        yield running


@pytest.fixture(scope="module")
def few_things(contract_url: str) -> Iterator[Api]:
    with served(contract_url, tenant_events_per_second=SLOWLY, tenant_endpoints=3) as running:
        yield running


def is_too_many(answer: httpx.Response, after: int) -> None:
    problem = is_problem(answer, 429, "too-many")
    assert problem["type"] == "/problems/too-many"
    assert after - 60 <= int(answer.headers["retry-after"]) <= after


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_every_route_counts_as_a_request(few_requests: Api, tenant: str, route: tuple[str, str]) -> None:
    whose, sent = ("*", (route[0], f"/v1/tenants/{tenant}")) if "{tenant}" in route[1] else (tenant, route)
    with few_requests.client(whose) as client:
        assert send(client, sent).status_code not in (429, 500)
        is_too_many(send(client, sent), after=1000)


def test_a_tenant_s_keys_share_its_limit_and_other_tenants_have_their_own(few_requests: Api, tenant: str) -> None:
    with (
        few_requests.client(tenant) as operator,
        few_requests.client(tenant, KeyScope.PRODUCER) as producer,
        few_requests.client("*") as everyone,
        few_requests.client(f"{tenant}-rival") as rival,
    ):
        assert operator.get("/v1/events").status_code == 200
        for client, query in ((operator, {}), (producer, {}), (everyone, {"tenant": tenant})):
            is_too_many(client.get("/v1/events", params=query), after=1000)
        assert rival.get("/v1/events").status_code == 200


def test_whoever_has_no_key_is_not_counted(few_requests: Api, tenant: str) -> None:
    with few_requests.client(tenant) as client:
        for _ in range(3):
            is_problem(client.get("/v1/events", headers={"authorization": "Bearer x"}), 401, "no-key")
        assert client.get("/v1/events").status_code == 200
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200


def test_a_list_counts_its_events_and_is_never_too_long_for_ever(few_things: Api, tenant: str) -> None:
    with few_things.client(tenant) as client:
        first = client.post("/v1/events", json=[EVENT] * 3)
        assert first.status_code == 202
        is_too_many(client.post("/v1/events", json=EVENT), after=3000)
        is_too_many(client.post("/v1/events", json=[EVENT] * 1000), after=3000)
    assert len(rows(few_things.runtime.engine, "SELECT 1 FROM duehook.events WHERE tenant = :t", t=tenant)) == 3


def test_events_that_are_not_valid_are_not_counted(few_things: Api, tenant: str) -> None:
    with few_things.client(tenant) as client:
        assert client.post("/v1/events", json=[EVENT, {"type": "a"}]).status_code == 422
        assert client.post("/v1/events", json=[{**EVENT, "key": "k"}] * 2).status_code == 422
        assert client.post("/v1/events", json=EVENT).status_code == 202


def test_events_of_sql_are_not_limited(few_things: Api, tenant: str) -> None:
    with few_things.runtime.engine.begin() as connection:
        for _ in range(5):
            connection.exec_driver_sql(
                "INSERT INTO duehook.events (tenant, type, data) VALUES (%s, 'a', '1')", (tenant,)
            )
    with few_things.client(tenant) as client:
        assert client.post("/v1/events", json=EVENT).status_code == 202


def test_endpoints_are_limited_by_their_number(few_things: Api, tenant: str) -> None:
    with few_things.client(tenant) as client, few_things.client(f"{tenant}-rival") as rival:
        subscribe(rival)
        key = {"idempotency-key": "k"}
        client.post("/v1/endpoints", json=GOOD["endpoint"], headers=key)
        made = [subscribe(client) for _ in range(2)]
        is_too_many(client.post("/v1/endpoints", json=GOOD["endpoint"]), after=3600)
        again = client.post("/v1/endpoints", json=GOOD["endpoint"], headers=key)
        assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
        assert client.post(f"/v1/endpoints/{made[1]}/disable").status_code == 200
        is_too_many(client.post("/v1/endpoints", json=GOOD["endpoint"]), after=3600)
        assert client.delete(f"/v1/endpoints/{made[1]}").status_code == 204
        subscribe(client)


def test_a_tenant_with_more_endpoints_than_a_new_limit_is_told_the_limit(
    few_things: Api, acme: httpx.Client, tenant: str
) -> None:
    for _ in range(5):
        subscribe(acme)
    with few_things.client(tenant) as client:
        told = is_problem(client.post("/v1/endpoints", json=GOOD["endpoint"]), 429, "too-many")
    assert told["detail"] == "this tenant may have 3 endpoints; delete some first"


def test_endpoints_made_at_once_are_not_one_too_many(few_things: Api, tenant: str) -> None:
    with few_things.client(tenant) as client, ThreadPoolExecutor(8) as many:
        answers = list(many.map(lambda _: client.post("/v1/endpoints", json=GOOD["endpoint"]), range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [429] * 5


def test_without_settings_there_is_no_limit(acme: httpx.Client) -> None:
    assert {acme.post("/v1/events", json=[EVENT] * 10).status_code for _ in range(50)} == {202}
