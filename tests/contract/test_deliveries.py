"""Deliveries over HTTP: looked at, tried again, given up."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.core import deliveries as core
from app.domain.states import DeadReason, DeliveryStatus, Outcome
from tests.clock import Clock
from tests.contract.served import Api, number_of, subscribe
from tests.ledgers import TERMS, buried, claimed, ending, row


@pytest.fixture
def delivery(acme: httpx.Client) -> str:
    """A delivery that is due."""
    subscribe(acme)
    return posted(acme)


def posted(client: httpx.Client) -> str:
    event = client.post("/v1/events", json={"type": "a", "data": 1}).json()["id"]
    return str(client.get(f"/v1/events/{event}/deliveries").json()["data"][0]["id"])


def end(api: Api, delivery: str, outcome: Outcome = Outcome.DELIVERED, **fields: Any) -> None:
    (claim,) = claimed(api.runtime.engine, number_of(delivery))
    core.record(api.runtime.engine, [ending(claim, outcome, **fields)], max_age=TERMS.max_age)


def bury(api: Api, delivery: str) -> None:
    (claim,) = claimed(api.runtime.engine, number_of(delivery))
    core.record(api.runtime.engine, [buried(claim, DeadReason.REFUSED)], max_age=TERMS.max_age)


def test_a_delivery_that_waits(acme: httpx.Client, delivery: str) -> None:
    shown = acme.get(f"/v1/deliveries/{delivery}").json()
    assert shown == {
        "id": delivery,
        "event_id": acme.get("/v1/events").json()["data"][0]["id"],
        "endpoint_id": acme.get("/v1/endpoints").json()["data"][0]["id"],
        "status": "scheduled",
        "attempt": 0,
        "next_attempt_at": "2030-01-01T12:00:00.000000Z",
        "parked": False,
        "lease_until": None,
        "reason": None,
        "created_at": "2030-01-01T12:00:00.000000Z",
        "updated_at": "2030-01-01T12:00:00.000000Z",
        "delivered_at": None,
        "attempts": [],
    }
    shown.pop("attempts")
    assert acme.get("/v1/deliveries").json() == {"data": [shown], "next_cursor": None}


def test_attempts_are_shown_with_what_came_back(api: Api, acme: httpx.Client, delivery: str, clock: Clock) -> None:
    end(
        api,
        delivery,
        Outcome.THROTTLED,
        after=timedelta(seconds=90),
        status_code=429,
        address="127.0.0.1:9",
        key_ids=["key_1", "key_2"],
        excerpt=b"slow \xff\x00 down",
        location="/elsewhere",
        retry_after=timedelta(seconds=90),
    )
    shown = acme.get(f"/v1/deliveries/{delivery}").json()
    assert (shown["status"], shown["attempt"], shown["next_attempt_at"]) == (
        "scheduled",
        1,
        "2030-01-01T12:01:30.000000Z",
    )
    assert shown["attempts"] == [
        {
            "number": 1,
            "outcome": "throttled",
            "status_code": 429,
            "started_at": "2030-01-01T12:00:00.000000Z",
            "ended_at": "2030-01-01T12:00:00.000000Z",
            "address": "127.0.0.1:9",
            "key_ids": ["key_1", "key_2"],
            "error": None,
            "excerpt": "slow \ufffd\x00 down",
            "location": "/elsewhere",
            "retry_after": 90.0,
        }
    ]


def test_a_claim_without_a_record_is_an_abandoned_attempt(
    api: Api, acme: httpx.Client, delivery: str, clock: Clock
) -> None:
    claimed(api.runtime.engine, number_of(delivery))
    leased = acme.get(f"/v1/deliveries/{delivery}").json()
    assert (leased["status"], leased["lease_until"]) == ("leased", "2030-01-01T12:00:45.000000Z")
    assert (leased["next_attempt_at"], leased["attempts"]) == (None, [])
    clock.advance(seconds=45)
    end(api, delivery)
    done = acme.get(f"/v1/deliveries/{delivery}").json()
    assert [(each["number"], each["outcome"]) for each in done["attempts"]] == [(1, "abandoned"), (2, "delivered")]
    assert (done["status"], done["delivered_at"]) == ("delivered", "2030-01-01T12:00:45.000000Z")


def test_a_retry_begins_a_new_round_of_a_finished_one(
    api: Api, acme: httpx.Client, delivery: str, clock: Clock
) -> None:
    bury(api, delivery)
    assert acme.get(f"/v1/deliveries/{delivery}").json()["reason"] == "refused"
    clock.advance(days=20)
    answer = acme.post(f"/v1/deliveries/{delivery}/retry")
    assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (200, "scheduled", None)
    assert answer.json()["next_attempt_at"] == "2030-01-21T12:00:00.000000Z"
    kept = row(api.runtime.engine, "deliveries", "id", number_of(delivery))
    assert (kept["round"], kept["step"], kept["attempt"], kept["age_from"]) == (2, 0, 1, clock.now)
    end(api, delivery)
    assert [each["number"] for each in acme.get(f"/v1/deliveries/{delivery}").json()["attempts"]] == [1, 2]
    assert acme.post(f"/v1/deliveries/{delivery}/retry").json()["status"] == "scheduled", "a delivered one too"


def test_a_retry_of_a_waiting_one_is_only_sooner(api: Api, acme: httpx.Client, delivery: str) -> None:
    end(api, delivery, Outcome.FAILED, after=timedelta(hours=2))
    for _ in range(2):
        answer = acme.post(f"/v1/deliveries/{delivery}/retry")
        assert answer.json()["next_attempt_at"] == "2030-01-01T12:00:00.000000Z"
    kept = row(api.runtime.engine, "deliveries", "id", number_of(delivery))
    assert (kept["round"], kept["step"]) == (1, 1)
    assert claimed(api.runtime.engine, number_of(delivery))


def test_a_retry_in_the_air_is_409(api: Api, acme: httpx.Client, delivery: str) -> None:
    claimed(api.runtime.engine, number_of(delivery))
    assert acme.post(f"/v1/deliveries/{delivery}/retry").status_code == 409


def test_a_retry_that_has_no_round_left_is_409(api: Api, acme: httpx.Client, delivery: str) -> None:
    acme.post(f"/v1/deliveries/{delivery}/cancel")
    with api.runtime.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql("UPDATE duehook.deliveries SET round = 32767 WHERE id = %s", (number_of(delivery),))
    assert acme.post(f"/v1/deliveries/{delivery}/retry").status_code == 409


def test_a_cancel_ends_what_waits_and_is_repeatable(api: Api, acme: httpx.Client, delivery: str) -> None:
    first, again = (acme.post(f"/v1/deliveries/{delivery}/cancel") for _ in range(2))
    assert first.json() == again.json()
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")
    acme.post(f"/v1/deliveries/{delivery}/retry")
    end(api, delivery)
    assert acme.get(f"/v1/deliveries/{delivery}").json()["status"] == "delivered", "the cancel is forgotten"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.DELIVERED, "delivered"), (Outcome.FAILED, "cancelled"), (Outcome.UNKNOWN, "cancelled")],
)
def test_a_cancel_in_the_air_waits_for_what_comes_back(
    api: Api, acme: httpx.Client, delivery: str, outcome: Outcome, status: str
) -> None:
    (claim,) = claimed(api.runtime.engine, number_of(delivery))
    asked = acme.post(f"/v1/deliveries/{delivery}/cancel")
    assert (asked.status_code, asked.json()["status"]) == (202, "leased")
    core.record(api.runtime.engine, [ending(claim, outcome)], max_age=TERMS.max_age)
    assert acme.get(f"/v1/deliveries/{delivery}").json()["status"] == status


def test_a_cancel_of_a_finished_one_is_409(api: Api, acme: httpx.Client, delivery: str) -> None:
    end(api, delivery)
    assert acme.post(f"/v1/deliveries/{delivery}/cancel").status_code == 409
    dead = posted(acme)
    bury(api, dead)
    assert acme.post(f"/v1/deliveries/{dead}/cancel").status_code == 409


def test_filters_by_status_endpoint_and_event(api: Api, acme: httpx.Client) -> None:
    endpoints = [subscribe(acme) for _ in range(2)]
    deliveries = [posted(acme) for _ in range(3)]
    for each in deliveries:
        acme.post(f"/v1/deliveries/{each}/cancel")

    def found(**filters: str) -> list[tuple[str, str]]:
        data = acme.get("/v1/deliveries", params=filters).json()["data"]
        return [(each["id"], each["endpoint_id"]) for each in data]

    everything = found()
    assert len(everything) == 6
    assert [each for each in everything if each[0] in deliveries] == found(status=DeliveryStatus.CANCELLED)
    assert [id for id, _ in found(status="cancelled")] == deliveries[::-1]
    for endpoint in endpoints:
        mine = [each for each in everything if each[1] == endpoint]
        assert found(endpoint_id=endpoint) == mine
        both = found(endpoint_id=endpoint, status="scheduled")
        assert both == [each for each in mine if each[0] not in deliveries]
    event = acme.get(f"/v1/deliveries/{deliveries[1]}").json()["event_id"]
    assert found(event_id=event) == everything[2:4]
    assert found(event_id=event, endpoint_id=endpoints[0]) == [
        each for each in everything[2:4] if each[1] == endpoints[0]
    ]
    assert found(event_id="evt_1") == found(endpoint_id="end_1") == []
