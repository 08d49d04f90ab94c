"""Endpoints over HTTP: subscribed, changed, rotated, switched off and on, deleted."""

import base64
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.core import deliveries, pacing
from app.core.pacing import News
from app.domain.pacing import Heard
from app.domain.signing_keys import Ed25519Key, signing_key
from app.domain.states import Outcome
from app.ledger import endpoints
from app.ledger.sealing import Sealer
from tests.clock import Clock
from tests.contract.served import Api, number_of, subscribe
from tests.ledgers import claimed, row, rows

WHSEC = "whsec_" + base64.b64encode(b"k" * 24).decode()


def revision(api: Api, endpoint: str) -> int:
    return int(row(api.runtime.engine, "endpoints", "seq", number_of(endpoint))["revision"])


def live_secrets(api: Api, endpoint: str) -> list[str]:
    with api.runtime.engine.connect() as connection:
        return [api.runtime.sealer.open(each.sealed) for each in endpoints.secrets(connection, [number_of(endpoint)])]


def test_an_endpoint_answers_201_with_every_member_and_its_secret(acme: httpx.Client) -> None:
    asked = {
        "url": "https://shop.example/hooks?token=t",
        "event_types": ["order.*", "reservation.expired"],
        "description": "the shop",
        "headers": {"X-Token": "a very secret value"},
        "rate_per_second": 5,
        "max_in_flight": 2,
        "retry_schedule": [1, 2.5],
    }
    answer = acme.post("/v1/endpoints", json=asked)
    made = answer.json()
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    assert made == {
        **asked,
        "id": made["id"],
        "headers": {"X-Token": "********"},
        "signing": "hmac",
        "status": "enabled",
        "disabled_reason": None,
        "paced_until": None,
        "paced_reason": None,
        "disabled_at": None,
        "flagged": False,
        "created_at": "2030-01-01T12:00:00.000000Z",
    }
    assert acme.get(f"/v1/endpoints/{made['id']}").json() == made
    assert acme.get("/v1/endpoints").json() == {"data": [made], "next_cursor": None}
    assert acme.get(f"/v1/endpoints/{made['id']}/secret").json() == {"secret": secret}


def test_a_secret_may_be_given(acme: httpx.Client) -> None:
    endpoint = subscribe(acme, secret=WHSEC)
    assert acme.get(f"/v1/endpoints/{endpoint}/secret").json() == {"secret": WHSEC}


def test_ed25519_tells_the_public_half_alone(api: Api, acme: httpx.Client) -> None:
    endpoint = subscribe(acme, signing="ed25519")
    (private,) = live_secrets(api, endpoint)
    key = signing_key(private)
    assert isinstance(key, Ed25519Key)
    assert acme.get(f"/v1/endpoints/{endpoint}/secret").json() == {"secret": key.public.text}


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"url": "https://other.example/"}, {}),
        ({"headers": {"x-a": "1", "x-b": "2"}}, {"headers": {"x-a": "********", "x-b": "********"}}),
        ({"headers": None}, {"headers": {}}),
        ({"rate_per_second": 0.5}, {}),
        ({"max_in_flight": 7}, {}),
        ({"retry_schedule": []}, {}),
        ({"retry_schedule": None}, {}),
    ],
)
def test_a_change_of_how_it_is_sent_is_a_new_revision(
    api: Api, acme: httpx.Client, change: dict[str, Any], shown: dict[str, Any]
) -> None:
    endpoint = subscribe(acme, headers={"x-old": "1"}, retry_schedule=[1])
    before = acme.get(f"/v1/endpoints/{endpoint}").json()
    answer = acme.patch(f"/v1/endpoints/{endpoint}", json=change)
    assert (answer.status_code, answer.json()) == (200, {**before, **change, **shown})
    assert revision(api, endpoint) == 2


def test_a_change_of_what_it_wants_is_none(api: Api, acme: httpx.Client) -> None:
    endpoint = subscribe(acme)
    for change in ({"event_types": ["a.*"]}, {"description": "x"}, {"description": None}, {}):
        answer = acme.patch(f"/v1/endpoints/{endpoint}", json=change)
        assert answer.status_code == 200
        assert answer.json().items() >= change.items()
    assert revision(api, endpoint) == 1


def test_a_masked_header_is_refused_and_left_as_it_is(api: Api, acme: httpx.Client) -> None:
    endpoint = subscribe(acme, headers={"x-a": "secret"})
    shown = acme.get(f"/v1/endpoints/{endpoint}").json()["headers"]
    answer = acme.patch(f"/v1/endpoints/{endpoint}", json={"headers": shown})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/headers")
    sealed = row(api.runtime.engine, "endpoints", "seq", number_of(endpoint))["headers"]
    assert api.runtime.sealer.open_headers(bytes(sealed)) == {"x-a": "secret"}


def test_a_whole_number_may_be_written_with_a_point(acme: httpx.Client) -> None:
    body = '{"url": "http://127.0.0.1:9/", "event_types": ["*"], "max_in_flight": 20.0}'
    made = acme.post("/v1/endpoints", content=body, headers={"content-type": "application/json"})
    assert (made.status_code, made.json()["max_in_flight"]) == (201, 20)
    assert acme.patch(f"/v1/endpoints/{made.json()['id']}", json={"max_in_flight": 20.5}).status_code == 422


def test_another_way_of_signing_brings_its_own_secret(api: Api, acme: httpx.Client) -> None:
    endpoint = subscribe(acme)
    acme.patch(f"/v1/endpoints/{endpoint}", json={"signing": "ed25519"})
    assert [secret.split("_")[0] for secret in live_secrets(api, endpoint)] == ["whsk", "whsec"]
    assert acme.get(f"/v1/endpoints/{endpoint}/secret").json()["secret"].startswith("whpk_")


def test_a_rotation_keeps_the_old_secret_for_a_while(api: Api, acme: httpx.Client, clock: Clock) -> None:
    endpoint = subscribe(acme, secret=WHSEC)
    rotated = acme.post(f"/v1/endpoints/{endpoint}/rotate-secret", json={"overlap_seconds": 60})
    assert rotated.json() == {"secret": rotated.json()["secret"], "previous_expires_at": "2030-01-01T12:01:00.000000Z"}
    assert live_secrets(api, endpoint) == [rotated.json()["secret"], WHSEC]
    assert revision(api, endpoint) == 2
    clock.advance(seconds=60)
    assert live_secrets(api, endpoint) == [rotated.json()["secret"]]


def test_a_rotation_overlaps_by_a_day_unless_told(acme: httpx.Client) -> None:
    rotated = acme.post(f"/v1/endpoints/{subscribe(acme)}/rotate-secret")
    assert rotated.json()["previous_expires_at"] == "2030-01-02T12:00:00.000000Z"


def test_at_most_five_secrets_live_but_one_can_always_end_them(api: Api, acme: httpx.Client) -> None:
    rotate = f"/v1/endpoints/{(endpoint := subscribe(acme))}/rotate-secret"
    assert [acme.post(rotate).status_code for _ in range(5)] == [200, 200, 200, 200, 409]
    assert acme.patch(f"/v1/endpoints/{endpoint}", json={"signing": "ed25519"}).status_code == 409
    last = acme.post(rotate, json={"overlap_seconds": 0})
    assert last.status_code == 200
    assert live_secrets(api, endpoint) == [last.json()["secret"]]


def test_disable_and_enable_are_repeatable_and_told_to_others(api: Api, acme: httpx.Client) -> None:
    subscribe(acme, event_types=["endpoint.disabled"])
    endpoint = subscribe(acme)
    first, again = (acme.post(f"/v1/endpoints/{endpoint}/disable").json() for _ in range(2))
    assert first == again
    assert (first["status"], first["disabled_reason"]) == ("disabled", "requested")
    assert first["disabled_at"] == "2030-01-01T12:00:00.000000Z"
    (told,) = acme.get("/v1/events").json()["data"]
    assert (told["type"], told["key"], told["deliveries"]) == (
        "endpoint.disabled",
        f"endpoint.disabled:{endpoint}:v2",
        1,
    )
    assert told["data"] == {key: first[key] for key in ("id", "disabled_reason", "disabled_at")}
    enabled = [acme.post(f"/v1/endpoints/{endpoint}/enable").json() for _ in range(2)]
    assert enabled[0] == enabled[1]
    assert (enabled[0]["status"], enabled[0]["disabled_at"], revision(api, endpoint)) == ("enabled", None, 3)


def test_enabling_has_what_waits_looked_at(api: Api, acme: httpx.Client, clock: Clock) -> None:
    endpoint = subscribe(acme)
    acme.post(f"/v1/endpoints/{endpoint}/disable")
    event = acme.post("/v1/events", json={"type": "a", "data": 1}).json()["id"]
    (delivery,) = acme.get(f"/v1/events/{event}/deliveries").json()["data"]
    engine, number = api.runtime.engine, number_of(delivery["id"])
    deliveries.park(engine, [number])
    pacing.attend(engine, {number_of(endpoint): 1})
    due = "SELECT ref FROM duehook.outbox WHERE look_at <= duehook.now() AND endpoint = :endpoint"
    clock.advance(seconds=60)
    assert rows(engine, due, endpoint=number_of(endpoint)) == []
    acme.post(f"/v1/endpoints/{endpoint}/enable")
    assert rows(engine, due, endpoint=number_of(endpoint)) == [number_of(endpoint)]
    assert claimed(engine, number)


def test_an_endpoint_shows_until_when_it_is_sent_nothing_and_why(api: Api, acme: httpx.Client, clock: Clock) -> None:
    endpoint = subscribe(acme)
    told = News(number_of(endpoint), 1, Heard(Outcome.THROTTLED, clock.now, timedelta(minutes=1)), "throttled (429)")
    assert acme.get(f"/v1/endpoints/{endpoint}").json()["paced_until"] is None
    pacing.hear(api.runtime.engine, [told], timedelta(days=5))
    shown = acme.get(f"/v1/endpoints/{endpoint}").json()
    until = (clock.now + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert (shown["paced_until"], shown["paced_reason"]) == (until, "retry_after")
    assert shown in acme.get("/v1/endpoints").json()["data"]
    changed = acme.patch(f"/v1/endpoints/{endpoint}", json={"url": "https://new.example/"}).json()
    assert (changed["paced_until"], changed["paced_reason"]) == (None, None), "another receiver has asked for nothing"


def test_a_deleted_endpoint_is_gone_and_its_deliveries_are_cancelled(api: Api, acme: httpx.Client) -> None:
    endpoint, other = subscribe(acme), subscribe(acme)
    events = [acme.post("/v1/events", json={"type": "a", "data": 1}).json()["id"] for _ in range(2)]
    flying = next(
        each["id"]
        for each in acme.get(f"/v1/events/{events[0]}/deliveries").json()["data"]
        if each["endpoint_id"] == endpoint
    )
    claimed(api.runtime.engine, number_of(flying))
    assert acme.delete(f"/v1/endpoints/{endpoint}").status_code == 204
    assert acme.delete(f"/v1/endpoints/{endpoint}").status_code == 404
    assert acme.get(f"/v1/endpoints/{endpoint}").status_code == 404
    assert [each["id"] for each in acme.get("/v1/endpoints").json()["data"]] == [other]

    def states(of: str) -> list[str]:
        return [each["status"] for each in acme.get(f"/v1/deliveries?endpoint_id={of}").json()["data"]]

    assert states(endpoint) == ["cancelled", "leased"]
    assert states(other) == ["scheduled", "scheduled"]
    assert acme.post("/v1/events", json={"type": "a", "data": 1}).json()["deliveries"] == 1
    retried = acme.get(f"/v1/deliveries?endpoint_id={endpoint}&status=cancelled").json()["data"][0]["id"]
    assert acme.post(f"/v1/deliveries/{retried}/retry").status_code == 409


def test_headers_that_can_not_be_opened_hide_no_other_endpoint(api: Api, acme: httpx.Client) -> None:
    readable, sealed = subscribe(acme, headers={"x-a": "1"}), subscribe(acme, headers={"x-b": "2"})
    foreign = Sealer(["another key of at least thirty-two characters"]).seal_headers({"x-b": "2"})
    with api.runtime.engine.begin() as connection:
        statement = text("UPDATE duehook.endpoints SET headers = :headers WHERE seq = :seq")
        connection.execute(statement, {"headers": foreign, "seq": number_of(sealed)})
    shown = {each["id"]: each["headers"] for each in acme.get("/v1/endpoints").json()["data"]}
    assert shown == {readable: {"x-a": "********"}, sealed: None}
    assert acme.get(f"/v1/endpoints/{sealed}").json()["headers"] is None
    acme.patch(f"/v1/endpoints/{sealed}", json={"headers": {"x-b": "3"}})
    assert acme.get(f"/v1/endpoints/{sealed}").json()["headers"] == {"x-b": "********"}
