"""Who may do what: keys, scopes, tenants."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.api import auth
from app.core import keys
from app.domain.states import KeyScope
from tests.contract.served import Api, subscribe
from tests.contract.test_refusals import ACTIONS, GOOD, LISTS, is_problem

ONLY_OPERATORS = [
    *((method, path, prefix) for method, path, prefix in ACTIONS if prefix in ("end", "dlv", "job")),
    ("GET", "/v1/endpoints", ""),
    ("GET", "/v1/deliveries", ""),
    ("POST", "/v1/endpoints", ""),
    ("PATCH", "/v1/endpoints/{}", "end"),
    ("POST", "/v1/endpoints/{}/replay", "end"),
    ("GET", "/v1/dead-letters", ""),
    ("POST", "/v1/dead-letters/redrive", ""),
    ("GET", "/v1/jobs", ""),
]


@pytest.fixture
def things(acme: httpx.Client) -> dict[str, str]:
    """One thing of each kind, by the prefix of its id."""
    made = {"end": subscribe(acme)}
    made["rsv"] = acme.post("/v1/reservations", json=GOOD["reservation"]).json()["id"]
    made["evt"] = acme.post("/v1/events", json=GOOD["event"]).json()["id"]
    made["dlv"] = acme.get("/v1/deliveries").json()["data"][0]["id"]
    made["job"] = acme.post("/v1/dead-letters/redrive", json=GOOD["redrive"]).json()["id"]
    return made


@pytest.fixture
def anybody(api: Api) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=api.url) as client:
        yield client


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer nonsense", "Bearer dhk_" + "0" * 48, "Basic YTpi", "Bearer dhk_\xff"],
)
@pytest.mark.parametrize("path", LISTS)
def test_without_a_valid_key_it_is_401(anybody: httpx.Client, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
    answer = anybody.get(path, headers=headers)  # type: ignore[arg-type]
    is_problem(answer, 401, "no-key")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_nobody_reads_the_body_of_a_stranger(anybody: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 65536

    assert anybody.post("/v1/events", content=endless()).status_code == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/docs"])
def test_some_paths_need_no_key(anybody: httpx.Client, path: str) -> None:
    assert anybody.get(path).status_code == 200


@pytest.mark.parametrize(("method", "path", "prefix"), ONLY_OPERATORS)
def test_a_producer_may_not_do_what_is_an_operators(
    producer: httpx.Client, things: dict[str, str], method: str, path: str, prefix: str
) -> None:
    is_problem(producer.request(method, path.format(things.get(prefix))), 403, "wrong-scope")


def test_a_producer_may_hold_confirm_post_and_cancel(producer: httpx.Client, things: dict[str, str]) -> None:
    assert producer.post("/v1/reservations", json=GOOD["reservation"]).status_code == 201
    for action in ("confirm", "release"):
        assert producer.post(f"/v1/reservations/{things['rsv']}/{action}").status_code == 200
    assert producer.post("/v1/events", json=GOOD["event"]).status_code == 202
    assert producer.get(f"/v1/events/{things['evt']}").status_code == 200
    assert producer.get(f"/v1/events/{things['evt']}/deliveries").status_code == 200
    assert producer.post(f"/v1/events/{things['evt']}/cancel").status_code == 200


@pytest.mark.parametrize(("method", "path", "prefix"), ACTIONS)
def test_what_is_another_tenants_is_404_and_stays_as_it_is(
    acme: httpx.Client, rival: httpx.Client, things: dict[str, str], method: str, path: str, prefix: str
) -> None:
    def state() -> list[Any]:
        return [acme.get(each).json() for each in LISTS]

    before = state()
    is_problem(rival.request(method, path.format(things[prefix])), 404, "not-found")
    assert state() == before


def test_lists_show_nothing_of_another_tenant(rival: httpx.Client, things: dict[str, str]) -> None:
    queries = [
        *LISTS,
        f"/v1/deliveries?endpoint_id={things['end']}",
        f"/v1/deliveries?event_id={things['evt']}",
        f"/v1/deliveries?event_id={things['evt']}&endpoint_id={things['end']}",
    ]
    for query in queries:
        assert rival.get(query).json() == {"data": [], "next_cursor": None}
    assert rival.patch(f"/v1/endpoints/{things['end']}", json={"description": "x"}).status_code == 404


def test_an_event_of_one_tenant_goes_to_no_other(acme: httpx.Client, rival: httpx.Client) -> None:
    subscribe(acme)
    assert rival.post("/v1/events", json=GOOD["event"]).json()["deliveries"] == 0


def test_a_key_of_all_tenants_names_one(api: Api, acme: httpx.Client, tenant: str, things: dict[str, str]) -> None:
    with api.client("*") as everyone:
        for path in LISTS:
            assert everyone.get(path, params={"tenant": tenant}).json() == acme.get(path).json()
            assert everyone.get(path, params={"tenant": "nobody"}).json()["data"] == []
        problem = is_problem(everyone.get("/v1/events"), 422, "invalid")
        assert problem["errors"][0]["pointer"] == "/tenant"
        for name in ("", "*", "a b", "-a", "\0", "x" * 65):
            is_problem(everyone.get("/v1/events", params={"tenant": name}), 422, "invalid")
        made = everyone.post("/v1/events", params={"tenant": tenant}, json=GOOD["event"])
        assert acme.get(f"/v1/events/{made.json()['id']}").status_code == 200
    assert acme.get("/v1/events", params={"tenant": tenant}).status_code == 200
    is_problem(acme.get("/v1/events", params={"tenant": "other"}), 403, "wrong-scope")


def test_a_revoked_key_stops_within_seconds(
    api: Api, tenant: str, acme: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert acme.get("/v1/events").status_code == 200
    with api.runtime.engine.begin() as connection:
        ours = next(key for key in keys.newest(connection) if key.tenant == tenant)
        revoked = keys.revoke(connection, keys.public_id(ours))
        assert revoked is not None
        assert keys.revoke(connection, keys.public_id(ours)) == revoked
        assert keys.revoke(connection, "key_1") is keys.revoke(connection, "nonsense") is None
    assert auth.REMEMBERED_SECONDS <= 3
    now = time.monotonic()
    monkeypatch.setattr(auth, "monotonic", lambda: now + auth.REMEMBERED_SECONDS)
    is_problem(acme.get("/v1/events"), 401, "no-key")


def test_a_key_is_kept_as_a_hash_only(api: Api) -> None:
    with api.runtime.engine.begin() as connection:
        key, secret = keys.create(connection, "acme", KeyScope.PRODUCER)
        assert keys.find(connection, secret) == key
        assert keys.find(connection, secret[:-1] + "g") is None
        kept = connection.exec_driver_sql(f"SELECT k::text FROM duehook.api_keys k WHERE seq = {key.seq}").scalar_one()
    assert secret not in kept
    assert len(secret.removeprefix("dhk_")) * 4 >= 160, "bits"
