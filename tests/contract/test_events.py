"""Events over HTTP: posted once or many at a time, found again by key, cancelled."""

from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.core.events import fan_out
from app.domain.wakeups import Answer
from tests.contract.served import Api, number_of, subscribe
from tests.contract.test_refusals import is_problem
from tests.ledgers import claimed


def post(client: httpx.Client, body: Any = None, **members: Any) -> httpx.Response:
    one = {"type": "order.placed", "data": {}, **members}
    return client.post("/v1/events", json=one if body is None else body)


def test_an_event_answers_202_with_its_deliveries(acme: httpx.Client, producer: httpx.Client) -> None:
    subscribe(acme, event_types=["order.*"])
    subscribe(acme, event_types=["invoice.*"])
    answer = post(producer, key="order-1", data={"order": 1})
    event = answer.json()
    assert (answer.status_code, event) == (
        202,
        {
            "id": event["id"],
            "type": "order.placed",
            "key": "order-1",
            "created_at": "2030-01-01T12:00:00.000000Z",
            "due_at": "2030-01-01T12:00:00.000000Z",
            "deliveries": 1,
        },
    )
    whole = {**event, "cancelled_at": None, "erased_at": None, "data": {"order": 1}}
    assert producer.get(f"/v1/events/{event['id']}").json() == whole
    assert producer.get("/v1/events").json() == {"data": [whole], "next_cursor": None}


def test_the_same_event_is_200_and_another_of_its_key_409(producer: httpx.Client) -> None:
    first = post(producer, key="k", delay_seconds=5)
    again = post(producer, key="k", delay_seconds=5)
    assert (again.status_code, again.json()) == (200, first.json())
    others: list[dict[str, Any]] = [
        {"delay_seconds": 6},
        {"delay_seconds": None},
        {"delay_seconds": 5, "data": {"a": 1}},
        {"delay_seconds": 5, "type": "order.paid"},
        {"deliver_at": "2020-01-01T00:00:00Z"},
    ]
    for other in others:
        assert post(producer, **{"key": "k", **other}).status_code == 409, other
    assert len(producer.get("/v1/events").json()["data"]) == 1


def test_data_that_differs_by_a_blank_is_another_event(producer: httpx.Client) -> None:
    for data, status in (("{}", 202), ("{}", 200), ("{ }", 409)):
        body = f'{{"type":"a","key":"k","data":{data}}}'
        answer = producer.post("/v1/events", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status


def test_events_without_a_key_are_each_their_own(producer: httpx.Client) -> None:
    assert post(producer).json()["id"] != post(producer).json()["id"]


def test_keys_of_the_service_are_a_space_apart(producer: httpx.Client) -> None:
    assert post(producer, key="reservation.expired:rsv_1:v2").status_code == 202


def test_a_list_is_answered_in_order_old_and_new_alike(producer: httpx.Client) -> None:
    known = post(producer, key="key-5").json()
    body = [{"type": f"t{number}", "key": f"key-{9 - number}", "data": number} for number in range(4)]
    body.append({"type": "order.placed", "key": "key-5", "data": {}})
    answer = post(producer, body)
    events = answer.json()["data"]
    assert answer.status_code == 202
    assert [each["type"] for each in events] == ["t0", "t1", "t2", "t3", "order.placed"]
    assert events[-1] == known
    assert post(producer, body).json() == answer.json()


def test_a_list_is_stored_whole_or_not_at_all(producer: httpx.Client) -> None:
    post(producer, key="taken", data=1)
    body = [{"type": "a", "data": 1}, {"type": "order.placed", "key": "taken", "data": 2}]
    answer = post(producer, body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (409, "/1/key")
    assert len(producer.get("/v1/events").json()["data"]) == 1


def test_a_list_of_a_thousand(acme: httpx.Client, producer: httpx.Client) -> None:
    subscribe(acme)
    answer = post(producer, [{"type": "a", "key": str(number), "data": number} for number in range(1000)])
    assert [each["key"] for each in answer.json()["data"]] == [str(number) for number in range(1000)]
    assert {each["deliveries"] for each in answer.json()["data"]} == {1}


@pytest.mark.parametrize(
    ("time", "due_at"),
    [
        ({"deliver_at": "2030-01-01T13:00:00.5+01:00"}, "2030-01-01T12:00:00.500000Z"),
        ({"deliver_at": "1999-01-01T00:00:00Z"}, "2030-01-01T12:00:00.000000Z"),
        ({"deliver_at": "2040-01-01T12:00:00Z"}, "2040-01-01T12:00:00.000000Z"),
        ({"delay_seconds": 0}, "2030-01-01T12:00:00.000000Z"),
        ({"delay_seconds": 0.25}, "2030-01-01T12:00:00.250000Z"),
        ({"delay_seconds": 315576000}, "2040-01-02T00:00:00.000000Z"),
    ],
)
def test_when_an_event_is_due(producer: httpx.Client, time: dict[str, Any], due_at: str) -> None:
    answer = post(producer, **time)
    assert (answer.status_code, answer.json()["due_at"]) == (202, due_at)


def test_an_event_beyond_the_horizon_has_no_deliveries_yet(acme: httpx.Client, producer: httpx.Client) -> None:
    subscribe(acme)
    assert post(producer, delay_seconds=5).json()["deliveries"] == 1
    assert post(producer, delay_seconds=60).json()["deliveries"] == 0


def test_more_than_ten_years_ahead_is_422_with_its_place(producer: httpx.Client) -> None:
    one = post(producer, deliver_at="2040-01-03T00:00:00Z")
    assert (one.status_code, one.json()["errors"][0]["pointer"]) == (422, "/deliver_at")
    many = post(producer, [{"type": "a", "data": 1}, {"type": "a", "data": 1, "deliver_at": "2050-01-03T00:00:00Z"}])
    assert (many.status_code, many.json()["errors"][0]["pointer"]) == (422, "/1/deliver_at")


def test_two_of_one_key_in_a_list_are_422(producer: httpx.Client) -> None:
    answer = post(producer, [{"type": "a", "key": key, "data": 1} for key in ("x", "y", "x")])
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/2/key")


def test_a_cancel_ends_what_waits_and_asks_what_is_in_the_air(
    api: Api, acme: httpx.Client, producer: httpx.Client
) -> None:
    for _ in range(3):
        subscribe(acme)
    event = f"/v1/events/{post(producer).json()['id']}"
    in_the_air = producer.get(f"{event}/deliveries").json()["data"][0]["id"]
    claimed(api.runtime.engine, number_of(in_the_air))
    first, again = (producer.post(f"{event}/cancel").json() for _ in range(2))
    assert first == {"cancelled": 2, "in_flight": 1, "finished": 0}
    assert again == {"cancelled": 0, "in_flight": 1, "finished": 2}
    assert producer.get(event).json()["cancelled_at"] is not None
    shown = producer.get(f"{event}/deliveries").json()["data"]
    assert sorted(each["status"] for each in shown) == ["cancelled", "cancelled", "leased"]


def test_a_cancelled_event_that_waits_never_fans_out(api: Api, acme: httpx.Client, producer: httpx.Client) -> None:
    subscribe(acme)
    event = post(producer, delay_seconds=5_000).json()["id"]
    nothing = {"cancelled": 0, "in_flight": 0, "finished": 0}
    assert producer.post(f"/v1/events/{event}/cancel").json() == nothing
    assert fan_out(api.runtime.engine, [number_of(event)]).answers == {number_of(event): Answer.GONE}


def test_a_list_is_filtered_by_a_producer_s_key_exactly(
    api: Api, acme: httpx.Client, rival: httpx.Client, tenant: str
) -> None:
    made = [acme.post("/v1/events", json={"type": "a", "key": key, "data": 1}).json()["id"] for key in ("k", "K", "k2")]
    rival.post("/v1/events", json={"type": "a", "key": "k", "data": 1})
    rival.post("/v1/events", json={"type": "a", "key": "theirs", "data": 1})
    with api.runtime.engine.begin() as connection:
        own = text("""INSERT INTO duehook.events (tenant, origin, type, key, data)
                      VALUES (:tenant, 'service', 'ping', :key, '1')""")
        connection.execute(own, [{"tenant": tenant, "key": key} for key in ("k", "own")])
    page = acme.get("/v1/events", params={"key": "k"}).json()
    assert ([each["id"] for each in page["data"]], page["next_cursor"]) == ([made[0]], None)
    for other in ("theirs", "own", "k%", " k", "k "):
        assert acme.get("/v1/events", params={"key": other}).json() == {"data": [], "next_cursor": None}
    newest = acme.get("/v1/events", params={"key": "k", "limit": 1}).json()
    assert newest == page


@pytest.mark.parametrize("key", ["", "k" * 256, "a\0b"])
def test_a_key_that_no_event_can_have_is_refused(acme: httpx.Client, key: str) -> None:
    problem = is_problem(acme.get("/v1/events", params={"key": key}), 422, "invalid")
    assert [each["pointer"] for each in problem["errors"]] == ["/key"]
