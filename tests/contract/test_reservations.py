"""Reservations over HTTP: held, confirmed, released, expired, each exactly once."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, event, text

from tests.clock import Clock
from tests.contract.served import Api


def hold(client: httpx.Client, **members: Any) -> httpx.Response:
    return client.post("/v1/reservations", json={"resource": "seat", "hold_seconds": 60, **members})


def test_a_hold_answers_201_with_every_member(acme: httpx.Client, clock: Clock) -> None:
    answer = hold(acme, id="rsv_1", data={"cart": 7})
    assert answer.status_code == 201
    assert answer.json() == {
        "id": "rsv_1",
        "resource": "seat",
        "status": "held",
        "version": 1,
        "expires_at": "2030-01-01T12:01:00.000000Z",
        "overdue": False,
        "exclusive": False,
        "data": {"cart": 7},
        "created_at": "2030-01-01T12:00:00.000000Z",
        "updated_at": "2030-01-01T12:00:00.000000Z",
    }
    assert acme.get("/v1/reservations/rsv_1").json() == answer.json()
    assert acme.get("/v1/reservations").json() == {"data": [answer.json()], "next_cursor": None}


def test_an_expiry_may_be_given_in_any_zone(acme: httpx.Client, clock: Clock) -> None:
    members = {"resource": "seat", "expires_at": "2030-01-01t15:00:00.1234567+02:30"}
    answer = acme.post("/v1/reservations", json=members)
    assert (answer.status_code, answer.json()["expires_at"]) == (201, "2030-01-01T12:30:00.123456Z")
    assert answer.json()["data"] is None


def test_the_same_id_and_members_are_a_repeat_in_any_order(acme: httpx.Client, clock: Clock) -> None:
    first = hold(acme, id="rsv_1", data=[1])
    clock.advance(seconds=5)
    body = '{ "data":[1] ,"id":"rsv_1", "hold_seconds": 60,"resource":"s\\u0065at"}'
    again = acme.post("/v1/reservations", content=body, headers={"content-type": "application/json"})
    assert (again.status_code, again.json()) == (200, first.json())


@pytest.mark.parametrize(
    "other", [{"data": [1, 2]}, {"hold_seconds": 61}, {"resource": "other"}, {"exclusive": True}, {"exclusive": False}]
)
def test_the_same_id_with_other_members_is_409(acme: httpx.Client, other: dict[str, Any]) -> None:
    hold(acme, id="rsv_1", data=[1])
    answer = hold(acme, **{"id": "rsv_1", "data": [1], **other})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")


def test_ids_are_unique_per_tenant(acme: httpx.Client, rival: httpx.Client) -> None:
    assert hold(acme, id="rsv_1").status_code == hold(rival, id="rsv_1", data={}).status_code == 201


def test_one_exclusive_reservation_per_resource(acme: httpx.Client, rival: httpx.Client, clock: Clock) -> None:
    assert hold(acme, id="rsv_1", exclusive=True).status_code == 201
    assert hold(acme, id="rsv_2", exclusive=True).status_code == 409
    assert hold(acme, id="rsv_3").status_code == 201
    assert hold(rival, id="rsv_4", exclusive=True).status_code == 201
    assert hold(acme, id="rsv_1", exclusive=True).status_code == 200, "a repeat of the holder"
    clock.advance(seconds=60)
    assert hold(acme, id="rsv_5", exclusive=True).status_code == 201, "the overdue holder has lost it"
    assert acme.get("/v1/reservations/rsv_1").json()["status"] == "expired"
    acme.post("/v1/reservations/rsv_5/confirm")
    assert hold(acme, id="rsv_6", exclusive=True).status_code == 409


def test_confirm_and_release_are_repeatable(acme: httpx.Client) -> None:
    hold(acme, id="rsv_1")
    for transition, status, version in (("confirm", "confirmed", 2), ("release", "released", 3)):
        first, again = (acme.post(f"/v1/reservations/rsv_1/{transition}") for _ in range(2))
        assert first.status_code == again.status_code == 200
        assert first.json() == again.json()
        assert (first.json()["status"], first.json()["version"]) == (status, version)
    assert acme.post("/v1/reservations/rsv_1/confirm").status_code == 409


def test_a_late_confirm_is_409_and_expires_it_on_the_spot(acme: httpx.Client, clock: Clock) -> None:
    hold(acme, id="rsv_1")
    clock.advance(seconds=60)
    assert acme.get("/v1/reservations/rsv_1").json()["overdue"] is True
    late = acme.post("/v1/reservations/rsv_1/confirm")
    assert (late.status_code, late.json()["detail"]) == (409, "rsv_1 is expired and can't become confirmed")
    expired = acme.get("/v1/reservations/rsv_1").json()
    assert (expired["status"], expired["overdue"], expired["version"]) == ("expired", False, 2)
    (expiry,) = acme.get("/v1/events").json()["data"]
    assert (expiry["type"], expiry["key"]) == ("reservation.expired", "reservation.expired:rsv_1:v2")
    assert expiry["data"] == expired


def test_a_repeat_of_a_hold_finds_what_became_of_it(acme: httpx.Client, clock: Clock) -> None:
    hold(acme, id="rsv_1")
    acme.post("/v1/reservations/rsv_1/confirm")
    answer = hold(acme, id="rsv_1")
    assert (answer.status_code, answer.json()["status"]) == (200, "confirmed")


def test_filters_by_status_and_resource(acme: httpx.Client) -> None:
    for number in range(6):
        hold(acme, id=f"rsv_{number}", resource=f"seat-{number % 2}")
        if number < 3:
            acme.post(f"/v1/reservations/rsv_{number}/confirm")

    def found(query: str) -> list[str]:
        return [each["id"] for each in acme.get(f"/v1/reservations?{query}").json()["data"]]

    assert found("") == ["rsv_5", "rsv_4", "rsv_3", "rsv_2", "rsv_1", "rsv_0"]
    assert found("status=confirmed") == ["rsv_2", "rsv_1", "rsv_0"]
    assert found("resource=seat-1") == ["rsv_5", "rsv_3", "rsv_1"]
    assert found("status=held&resource=seat-0") == ["rsv_4"]
    assert found("status=expired") == []


def test_a_lock_that_somebody_keeps_is_503_and_nothing_is_changed(api: Api, acme: httpx.Client, tenant: str) -> None:
    def hurry(begun: Connection) -> None:
        begun.exec_driver_sql("SET LOCAL lock_timeout = 100")

    hold(acme, id="rsv_1")
    with api.runtime.engine.begin() as connection:
        connection.execute(
            text("SELECT FROM duehook.reservations WHERE tenant = :tenant FOR UPDATE"), {"tenant": tenant}
        )
        event.listen(api.engine, "begin", hurry)
        answer = acme.post("/v1/reservations/rsv_1/confirm")
    event.remove(api.engine, "begin", hurry)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert acme.post("/v1/reservations/rsv_1/confirm").status_code == 200


def test_times_are_in_utc_with_microseconds(acme: httpx.Client) -> None:
    held = hold(acme, hold_seconds=1.5).json()
    created, expires = (datetime.fromisoformat(held[name]) for name in ("created_at", "expires_at"))
    assert abs(expires - created - timedelta(seconds=1.5)) < timedelta(seconds=0.1)
    assert held["created_at"].endswith("Z")
    assert len(held["created_at"]) == len("2030-01-01T12:00:00.000000Z")


def test_what_is_over_already_is_refused_but_a_repeat_of_what_was_not(acme: httpx.Client, clock: Clock) -> None:
    soon = {"id": "rsv_soon", "resource": "seat", "expires_at": "2030-01-01T12:00:01Z"}
    assert acme.post("/v1/reservations", json=soon).status_code == 201
    clock.advance(seconds=1)
    assert acme.post("/v1/reservations", json=soon).status_code == 200
    refused = acme.post("/v1/reservations", json={**soon, "id": "rsv_late"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/expires_at")
    assert acme.get("/v1/reservations/rsv_late").status_code == 404
