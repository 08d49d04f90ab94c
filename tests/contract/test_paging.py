"""Lists: every row once, newest first, whatever arrives meanwhile."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.api import paging
from app.ledger import listings
from tests.contract.served import subscribe


def a_reservation(client: httpx.Client) -> str:
    return str(client.post("/v1/reservations", json={"resource": "r", "hold_seconds": 9}).json()["id"])


def an_event(client: httpx.Client) -> str:
    return str(client.post("/v1/events", json={"type": "a", "data": 1}).json()["id"])


MAKE: dict[str, Callable[[httpx.Client], str]] = {
    "/v1/reservations": a_reservation,
    "/v1/events": an_event,
    "/v1/endpoints": subscribe,
}


def pages(client: httpx.Client, path: str, between: Callable[[], Any] = lambda: None, **query: Any) -> list[list[str]]:
    """The ids of each page; `between` runs before every next one."""
    found: list[list[str]] = []
    while True:
        page = client.get(path, params=query).json()
        found.append([each["id"] for each in page["data"]])
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]
        between()


def flat(found: list[list[str]]) -> list[str]:
    return list(chain.from_iterable(found))


@pytest.mark.parametrize("path", MAKE)
def test_rows_of_one_instant_are_shown_once_while_others_arrive(acme: httpx.Client, path: str) -> None:
    made = [MAKE[path](acme) for _ in range(11)]
    found = pages(acme, path, between=lambda: MAKE[path](acme), limit=3)
    assert [len(page) for page in found] == [3, 3, 3, 2]
    assert flat(found) == made[::-1]


@pytest.mark.parametrize("path", MAKE)
def test_a_page_is_fifty_rows_unless_told(acme: httpx.Client, path: str) -> None:
    made = [MAKE[path](acme) for _ in range(51)]
    assert [len(page) for page in pages(acme, path)] == [50, 1]
    assert pages(acme, path, limit=500) == [made[::-1]]
    assert [len(page) for page in pages(acme, path, limit=51)] == [51]


def test_deliveries_are_shown_once_while_others_arrive(acme: httpx.Client) -> None:
    endpoints = [subscribe(acme) for _ in range(3)]
    events = [an_event(acme) for _ in range(7)]
    rows = acme.get("/v1/deliveries", params={"limit": 500}).json()["data"]
    everything = [each["id"] for each in rows]
    assert len(set(everything)) == 21
    assert flat(pages(acme, "/v1/deliveries", lambda: an_event(acme), limit=4)) == everything
    for endpoint in endpoints:
        wanted = acme.get("/v1/deliveries", params={"endpoint_id": endpoint}).json()["data"]
        found = flat(pages(acme, "/v1/deliveries", lambda: an_event(acme), limit=2, endpoint_id=endpoint))
        assert found == [each["id"] for each in wanted]
        assert set(found) >= {each["id"] for each in rows if each["endpoint_id"] == endpoint}
    of_one = pages(acme, f"/v1/events/{events[2]}/deliveries", limit=1)
    assert [len(page) for page in of_one] == [1, 1, 1]
    assert flat(of_one) == flat(pages(acme, "/v1/deliveries", limit=2, event_id=events[2]))


def test_events_that_nobody_wanted_hide_no_deliveries(acme: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "STRETCH", 4)
    endpoint = subscribe(acme)
    wanted = [an_event(acme) for _ in range(2)]
    acme.delete(f"/v1/endpoints/{endpoint}")
    for _ in range(20):
        an_event(acme)
    found = pages(acme, "/v1/deliveries", limit=2)
    assert len(flat(found)) == len(wanted)
    assert len(found) > 5, "short pages with a cursor, each of a bounded stretch"


@pytest.mark.parametrize("stretch", [1, 4, 5, 6, 100])
def test_a_filter_looks_through_a_bounded_stretch(
    acme: httpx.Client, monkeypatch: pytest.MonkeyPatch, stretch: int
) -> None:
    monkeypatch.setattr(listings, "STRETCH", stretch)
    subscribe(acme)
    reservations = [a_reservation(acme) for _ in range(12)]
    for each in (reservations[0], reservations[7], reservations[11]):
        acme.post(f"/v1/reservations/{each}/confirm")
    found = flat(pages(acme, "/v1/reservations", limit=2, status="confirmed"))
    assert found == [reservations[11], reservations[7], reservations[0]]
    deliveries = flat(pages(acme, "/v1/deliveries"))
    assert len(deliveries) == 3
    acme.post(f"/v1/deliveries/{deliveries[2]}/cancel")
    assert flat(pages(acme, "/v1/deliveries", limit=1, status="cancelled")) == [deliveries[2]]
    endpoint = acme.get("/v1/endpoints").json()["data"][0]["id"]
    by_endpoint = pages(acme, "/v1/deliveries", limit=1, status="cancelled", endpoint_id=endpoint)
    assert flat(by_endpoint) == [deliveries[2]]


def test_a_page_of_much_data_is_cut_short(acme: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_BYTES", 50_000)
    monkeypatch.setattr(paging, "AT_ONCE", 2)
    made = []
    for _ in range(7):
        answer = acme.post("/v1/events", json={"type": "a", "data": "x" * 20_000})
        made.append(answer.json()["id"])
    found = pages(acme, "/v1/events")
    assert [len(page) for page in found] == [4, 3]
    assert flat(found) == made[::-1]


def test_a_cursor_is_good_for_its_own_list_only(acme: httpx.Client) -> None:
    for path in reversed(MAKE):
        for _ in range(2):
            MAKE[path](acme)
    cursors = {path: acme.get(path, params={"limit": 1}).json()["next_cursor"] for path in [*MAKE, "/v1/deliveries"]}
    for path in cursors:
        for other, cursor in cursors.items():
            assert acme.get(path, params={"cursor": cursor}).status_code == (200 if path == other else 422)


def test_pages_read_an_index_and_never_a_table(api: Any, acme: httpx.Client) -> None:
    statements = {
        "reservations_newest": listings._RESERVATIONS,
        "events_newest": listings._EVENTS,
        "endpoints_live": listings._ENDPOINTS,
        "deliveries_newest": listings._OF_ENDPOINT,
        "deliveries_event_endpoint_key": listings._OF_EVENTS,
    }
    every = {"tenant": "acme", "below": 2**62, "event": 2**62, "endpoint": 5, "only": None, "to": None, "status": "x"}
    with api.runtime.engine.connect() as connection:
        for index, statement in statements.items():
            plan = "\n".join(
                connection.execute(
                    text(f"EXPLAIN {statement.text}"),
                    {**every, "resource": None, "most": 51, "stretch": 5000, "walk": 5000, "newest": 2**62},
                ).scalars()
            )
            assert index in plan, plan
            assert "Seq Scan" not in plan, plan
