"""Many clients at the same moment: one wins, the others get an ordinary answer, never a 5xx."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.contract.served import subscribe

MANY = 8


def at_once(act: Callable[[int], httpx.Response]) -> list[httpx.Response]:
    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(act, range(MANY)))


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


def test_one_event_comes_of_one_key(acme: httpx.Client) -> None:
    subscribe(acme)
    answers = at_once(lambda _: acme.post("/v1/events", json={"type": "a", "key": "k", "data": 1}))
    assert statuses(answers) == {202: 1, 200: MANY - 1}
    assert len({answer.text for answer in answers}) == 1


def test_lists_with_the_same_keys_in_any_order_all_come_through(acme: httpx.Client) -> None:
    keys = [{"type": "a", "key": str(number), "data": number} for number in range(50)]
    answers = at_once(lambda number: acme.post("/v1/events", json=keys[:: 1 if number % 2 else -1]))
    assert statuses(answers) == {202: MANY}
    ids = {frozenset(each["id"] for each in answer.json()["data"]) for answer in answers}
    assert len(ids) == 1


def test_one_reservation_comes_of_one_id(acme: httpx.Client) -> None:
    body = {"id": "rsv_1", "resource": "r", "hold_seconds": 60}
    assert statuses(at_once(lambda _: acme.post("/v1/reservations", json=body))) == {201: 1, 200: MANY - 1}


def test_one_exclusive_reservation_wins(acme: httpx.Client) -> None:
    body = {"resource": "r", "hold_seconds": 60, "exclusive": True}
    assert statuses(at_once(lambda _: acme.post("/v1/reservations", json=body))) == {201: 1, 409: MANY - 1}


def test_confirm_and_release_at_once_end_released(acme: httpx.Client) -> None:
    acme.post("/v1/reservations", json={"id": "rsv_1", "resource": "r", "hold_seconds": 60})
    actions = ("confirm", "release")
    answers = at_once(lambda number: acme.post(f"/v1/reservations/rsv_1/{actions[number % 2]}"))
    assert set(statuses(answers)) <= {200, 409}
    assert acme.get("/v1/reservations/rsv_1").json()["status"] == "released"


def test_rotations_at_once_never_leave_more_than_five_secrets(acme: httpx.Client) -> None:
    endpoint = f"/v1/endpoints/{subscribe(acme)}"
    assert statuses(at_once(lambda _: acme.post(f"{endpoint}/rotate-secret"))) == {200: 4, 409: MANY - 4}


def test_everything_about_one_delivery_at_once(acme: httpx.Client) -> None:
    endpoint = f"/v1/endpoints/{subscribe(acme)}"
    event = f"/v1/events/{acme.post('/v1/events', json={'type': 'a', 'data': 1}).json()['id']}"
    delivery = f"/v1/deliveries/{acme.get('/v1/deliveries').json()['data'][0]['id']}"
    actions: list[tuple[str, Any]] = [
        ("POST", f"{delivery}/retry"),
        ("POST", f"{delivery}/cancel"),
        ("POST", f"{event}/cancel"),
        ("POST", f"{endpoint}/disable"),
        ("POST", f"{endpoint}/enable"),
        ("DELETE", endpoint),
    ]
    for _ in range(3):
        answers = at_once(lambda number: acme.request(*actions[number % len(actions)]))
        assert set(statuses(answers)) <= {200, 204, 404, 409}
