"""Long work over HTTP: asked for, looked at, cancelled; dead letters, redrive, replay, ping."""

import json
from typing import Any

import httpx
import pytest

from app.core import deliveries as core
from app.core import endpoints
from app.core.jobs import advance
from app.domain.states import DeadReason, KeyScope, Outcome
from tests.clock import Clock
from tests.contract.served import Api, number_of, subscribe
from tests.contract.test_deliveries import bury, end, posted
from tests.contract.test_paging import flat, pages
from tests.contract.test_refusals import is_problem
from tests.ledgers import TERMS, buried, claimed, row, rows

NOON = "2030-01-01T12:00:00.000000Z"


def a_dead_letter(api: Api, client: httpx.Client) -> str:
    delivery = posted(client)
    bury(api, delivery)
    return delivery


def work(api: Api, clock: Clock, job: str) -> None:
    """What workers do until it has ended."""
    while advance(api.runtime.engine, [number_of(job)]).answers[number_of(job)] != "gone":
        clock.advance(seconds=1)


def events_of(client: httpx.Client, event_type: str) -> list[dict[str, Any]]:
    return [each for each in client.get("/v1/events").json()["data"] if each["type"] == event_type]


def test_a_redrive_is_a_job_that_shows_how_far_it_has_come(api: Api, acme: httpx.Client, clock: Clock) -> None:
    subscribe(acme, event_types=["a"])
    dead = [a_dead_letter(api, acme) for _ in range(3)]
    answer = acme.post("/v1/dead-letters/redrive", json={"filter": {}, "rate_per_second": 1})
    job = answer.json()
    assert answer.status_code == 202
    assert job == {
        "id": job["id"],
        "kind": "redrive",
        "status": "queued",
        "done": 0,
        "total": None,
        "result": None,
        "created_at": NOON,
        "updated_at": NOON,
    }
    advance(api.runtime.engine, [number_of(job["id"])])
    assert acme.get(f"/v1/jobs/{job['id']}").json() == {
        **job,
        "status": "running",
        "done": 1,
        "total": 3,
        "result": {"reopened": 1, "made": 0, "skipped": {}},
    }
    work(api, clock, job["id"])
    ended = acme.get(f"/v1/jobs/{job['id']}").json()
    assert (ended["status"], ended["done"], ended["total"]) == ("completed", 3, 3)
    assert acme.get("/v1/jobs").json() == {"data": [ended], "next_cursor": None}
    assert acme.get("/v1/dead-letters").json()["data"] == []
    kept = row(api.runtime.engine, "deliveries", "id", number_of(dead[0]))
    assert (kept["round"], kept["step"], kept["attempt"]) == (2, 0, 1)


def test_its_end_is_an_event_with_the_job_as_it_is_shown(api: Api, acme: httpx.Client, clock: Clock) -> None:
    job = acme.post("/v1/dead-letters/redrive", json={"filter": {"reason": "gone"}}).json()["id"]
    work(api, clock, job)
    (event,) = events_of(acme, "job.completed")
    assert event["key"] == f"job.completed:{job}"
    shown = acme.get(f"/v1/jobs/{job}")
    assert event["data"] == shown.json()
    assert list(event["data"]) == list(shown.json()), "in the same order"
    (text,) = rows(
        api.runtime.engine, "SELECT data::text FROM duehook.events WHERE seq = :seq", seq=number_of(event["id"])
    )
    assert text == shown.text, "byte for byte"


def test_a_dry_run_counts_and_does_nothing(api: Api, acme: httpx.Client, rival: httpx.Client) -> None:
    one, other = subscribe(acme), subscribe(acme)
    for _ in range(3):
        for delivery in acme.get(f"/v1/events/{acme_event(acme)}/deliveries").json()["data"]:
            bury(api, delivery["id"])

    def matching(client: httpx.Client = acme, **filter: Any) -> Any:
        answer = client.post("/v1/dead-letters/redrive", json={"filter": filter, "dry_run": True})
        assert answer.status_code == 200
        return answer.json()

    assert matching() == {"matching": 6, "more": False}
    assert matching(reason="refused", endpoint_id=one) == {"matching": 3, "more": False}
    assert matching(until=NOON) == matching(since=NOON) == matching()
    assert matching(since="2030-01-01T12:00:01Z") == matching(until="2030-01-01T11:00:00Z") == matching(reason="gone")
    assert matching(endpoint_id="end_1")["matching"] == matching(client=rival)["matching"] == 0
    assert matching(client=rival, endpoint_id=other)["matching"] == 0
    assert acme.get("/v1/jobs").json()["data"] == []
    assert len(acme.get("/v1/dead-letters").json()["data"]) == 6


def acme_event(client: httpx.Client) -> str:
    return str(client.post("/v1/events", json={"type": "a", "data": 1}).json()["id"])


def test_dead_letters_are_listed_exactly_while_they_are_dead(
    api: Api, acme: httpx.Client, rival: httpx.Client, clock: Clock
) -> None:
    subscribe(acme)
    delivery = posted(acme)
    assert acme.get("/v1/dead-letters").json()["data"] == []
    assert acme.get(f"/v1/dead-letters/{delivery}").status_code == 404
    bury(api, delivery)
    shown = acme.get(f"/v1/deliveries/{delivery}").json()
    letter = acme.get(f"/v1/dead-letters/{delivery}").json()
    assert letter == {**shown, "died_at": NOON}
    letter.pop("attempts")
    assert acme.get("/v1/dead-letters").json() == {"data": [letter], "next_cursor": None}
    assert rival.get("/v1/dead-letters").json()["data"] == []
    assert rival.get(f"/v1/dead-letters/{delivery}").status_code == 404
    assert acme.post(f"/v1/dead-letters/{delivery}/redrive").status_code == 202
    assert acme.get("/v1/dead-letters").json()["data"] == []
    clock.advance(seconds=1)
    bury(api, delivery)
    (again,) = acme.get("/v1/dead-letters").json()["data"]
    assert (again["id"], again["died_at"]) == (delivery, "2030-01-01T12:00:01.000000Z")
    end_by_hand(api, acme, delivery)
    assert acme.get("/v1/dead-letters").json()["data"] == []


def end_by_hand(api: Api, client: httpx.Client, delivery: str) -> None:
    client.post(f"/v1/deliveries/{delivery}/retry")
    end(api, delivery)


def test_dead_letters_by_reason_and_endpoint(api: Api, acme: httpx.Client) -> None:
    one = subscribe(acme)
    a_dead_letter(api, acme)
    other = subscribe(acme)
    event = acme_event(acme)
    for delivery in acme.get(f"/v1/events/{event}/deliveries").json()["data"]:
        (claim,) = claimed(api.runtime.engine, number_of(delivery["id"]))
        core.record(api.runtime.engine, [buried(claim, DeadReason.GONE)], max_age=TERMS.max_age)

    def found(**filters: str) -> list[str]:
        return [each["endpoint_id"] for each in acme.get("/v1/dead-letters", params=filters).json()["data"]]

    assert sorted(found()) == sorted([one, one, other])
    assert found(reason="refused") == [one]
    assert sorted(found(reason="gone")) == sorted([one, other])
    assert found(reason="gone", endpoint_id=other) == [other]
    assert found(endpoint_id="end_1") == found(reason="poison") == []
    is_problem(acme.get("/v1/dead-letters?reason=boredom"), 422, "invalid")


def test_dead_letters_of_one_instant_are_paged_once_each(api: Api, acme: httpx.Client) -> None:
    subscribe(acme)
    made = [a_dead_letter(api, acme) for _ in range(11)]
    found = pages(acme, "/v1/dead-letters", between=lambda: a_dead_letter(api, acme), limit=3)
    assert [len(page) for page in found] == [3, 3, 3, 2]
    assert flat(found) == made[::-1]


def test_one_dead_letter_is_tried_again_now(api: Api, acme: httpx.Client, rival: httpx.Client, clock: Clock) -> None:
    subscribe(acme)
    delivery = a_dead_letter(api, acme)
    clock.advance(days=20)
    path = f"/v1/dead-letters/{delivery}/redrive"
    is_problem(rival.post(path), 404, "not-found")
    answer = acme.post(path)
    shown = answer.json()
    assert (answer.status_code, shown["status"], shown["reason"]) == (202, "scheduled", None)
    assert shown["next_attempt_at"] == "2030-01-21T12:00:00.000000Z"
    assert [each["number"] for each in shown["attempts"]] == [1]
    problem = is_problem(acme.post(path), 409, "conflict")
    assert problem["detail"] == f"{delivery} is scheduled and no dead letter"
    claimed(api.runtime.engine, number_of(delivery))
    is_problem(acme.post(path), 409, "conflict")


def test_a_job_is_cancelled_once_and_for_good(api: Api, acme: httpx.Client, clock: Clock) -> None:
    subscribe(acme, event_types=["a"])
    for _ in range(3):
        a_dead_letter(api, acme)
    job = acme.post("/v1/dead-letters/redrive", json={"filter": {}, "rate_per_second": 1}).json()["id"]
    advance(api.runtime.engine, [number_of(job)])
    first, again = (acme.post(f"/v1/jobs/{job}/cancel") for _ in range(2))
    assert (first.status_code, first.json()["status"], first.json()["done"]) == (200, "cancelled", 1)
    assert again.json() == first.json()
    work(api, clock, job)
    assert len(acme.get("/v1/dead-letters").json()["data"]) == 2
    assert [each["data"]["status"] for each in events_of(acme, "job.completed")] == ["cancelled"]


def test_a_completed_job_can_t_be_cancelled(api: Api, acme: httpx.Client, clock: Clock) -> None:
    job = acme.post("/v1/dead-letters/redrive", json={"filter": {}}).json()["id"]
    work(api, clock, job)
    problem = is_problem(acme.post(f"/v1/jobs/{job}/cancel"), 409, "conflict")
    assert problem["detail"] == f"{job} is completed and can't be cancelled"


def test_jobs_are_their_tenant_s_and_their_operator_s(
    api: Api, acme: httpx.Client, rival: httpx.Client, producer: httpx.Client, tenant: str
) -> None:
    subscribe(acme)
    a_dead_letter(api, acme)
    job = acme.post("/v1/dead-letters/redrive", json={"filter": {}}).json()["id"]
    assert rival.get("/v1/jobs").json()["data"] == []
    for request in (("GET", f"/v1/jobs/{job}"), ("POST", f"/v1/jobs/{job}/cancel")):
        is_problem(rival.request(*request), 404, "not-found")
        is_problem(producer.request(*request), 403, "wrong-scope")
    with api.client("*", KeyScope.OPERATOR) as everybody:
        assert everybody.get("/v1/jobs", params={"tenant": tenant}).json()["data"][0]["id"] == job
        other = everybody.post(
            "/v1/dead-letters/redrive", params={"tenant": tenant}, json={"filter": {}, "dry_run": True}
        )
        assert other.json()["matching"] == 1
        is_problem(everybody.get("/v1/jobs"), 422, "invalid")
    assert acme.post(f"/v1/jobs/{job}/cancel").status_code == 200


def test_jobs_are_paged_newest_first(acme: httpx.Client) -> None:
    made = [acme.post("/v1/dead-letters/redrive", json={"filter": {}}).json()["id"] for _ in range(5)]
    found = pages(acme, "/v1/jobs", between=lambda: acme.post("/v1/dead-letters/redrive", json={"filter": {}}), limit=2)
    assert flat(found) == made[::-1]


REDRIVES: list[tuple[Any, str]] = [
    ({}, "/filter"),
    ({"filter": None}, "/filter"),
    ({"filter": []}, "/filter"),
    ({"filter": {"reason": "boredom"}}, "/filter/reason"),
    ({"filter": {"reason": 1}}, "/filter/reason"),
    ({"filter": {"endpoint_id": 1}}, "/filter/endpoint_id"),
    ({"filter": {"endpoint_id": "nonsense"}}, "/filter/endpoint_id"),
    ({"filter": {"status": "dead"}}, "/filter/status"),
    ({"filter": {"since": "yesterday"}}, "/filter/since"),
    ({"filter": {"since": "2030-01-02T00:00:00Z", "until": "2030-01-01T00:00:00Z"}}, "/filter/until"),
    ({"filter": {}, "rate_per_second": 0}, "/rate_per_second"),
    ({"filter": {}, "rate_per_second": 0.009}, "/rate_per_second"),
    ({"filter": {}, "rate_per_second": 100_001}, "/rate_per_second"),
    ({"filter": {}, "rate_per_second": "5"}, "/rate_per_second"),
    ({"filter": {}, "dry_run": 1}, "/dry_run"),
    ({"filter": {}, "dry": True}, "/dry"),
]
REPLAYS: list[tuple[Any, str]] = [
    ({}, "/since"),
    ({"since": "2030-01-01"}, "/since"),
    ({"since": NOON, "until": "2030-01-01T11:00:00Z"}, "/until"),
    ({"since": NOON, "status": "dead"}, "/status"),
    ({"since": NOON, "status": ["scheduled"]}, "/status/0"),
    ({"since": NOON, "status": ["dead"] * 4}, "/status"),
    ({"since": NOON, "rate": 1}, "/rate"),
]


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        *(("/v1/dead-letters/redrive", *each) for each in REDRIVES),
        *(("/v1/endpoints/end_1/replay", *each) for each in REPLAYS),
    ],
)
def test_what_is_wrong_with_the_question_is_named(acme: httpx.Client, path: str, body: Any, pointer: str) -> None:
    problem = is_problem(acme.post(path, json=body), 422, "invalid")
    assert [each["pointer"] for each in problem["errors"]] == [pointer]
    assert acme.get("/v1/jobs").json()["data"] == []


def test_a_replay_is_a_job_that_makes_and_opens(
    api: Api, acme: httpx.Client, rival: httpx.Client, clock: Clock
) -> None:
    first = subscribe(acme, event_types=["a"])
    dead, delivered = a_dead_letter(api, acme), posted(acme)
    end(api, delivered)
    later = subscribe(acme, event_types=["a"])
    clock.advance(minutes=1)

    def replay(endpoint: str, **members: Any) -> Any:
        answer = acme.post(f"/v1/endpoints/{endpoint}/replay", json={"since": NOON, **members})
        assert (answer.status_code, answer.json()["kind"]) == (202, "replay")
        work(api, clock, answer.json()["id"])
        return acme.get(f"/v1/jobs/{answer.json()['id']}").json()

    assert replay(later)["result"] == {"reopened": 0, "made": 2, "skipped": {}}
    assert replay(first)["result"] == {"reopened": 1, "made": 0, "skipped": {}}
    assert replay(first, status=["delivered"])["result"] == {"reopened": 1, "made": 0, "skipped": {}}
    assert replay(first, until="2030-01-01T12:00:00Z", status=[])["done"] == 2
    for delivery in (dead, delivered):
        assert acme.get(f"/v1/deliveries/{delivery}").json()["status"] == "scheduled"
    is_problem(rival.post(f"/v1/endpoints/{first}/replay", json={"since": NOON}), 404, "not-found")


def test_nothing_is_replayed_to_a_disabled_endpoint_and_nobody_pings_it(acme: httpx.Client) -> None:
    endpoint = subscribe(acme)
    acme.post(f"/v1/endpoints/{endpoint}/disable")
    replayed = is_problem(acme.post(f"/v1/endpoints/{endpoint}/replay", json={"since": NOON}), 409, "conflict")
    assert replayed["detail"] == f"{endpoint} is disabled; enable it first, then replay"
    pinged = is_problem(acme.post(f"/v1/endpoints/{endpoint}/ping"), 409, "conflict")
    assert pinged["detail"] == f"{endpoint} is disabled; enable it first, then ping"
    assert events_of(acme, "ping") == []


def test_a_ping_goes_to_its_endpoint_alone_whatever_it_wants(
    acme: httpx.Client, rival: httpx.Client, producer: httpx.Client
) -> None:
    endpoint = subscribe(acme, event_types=["order.*"])
    subscribe(acme, event_types=["*"])
    answer = acme.post(f"/v1/endpoints/{endpoint}/ping")
    ping = answer.json()
    assert answer.status_code == 202
    assert ping == {
        "id": ping["id"],
        "type": "ping",
        "key": None,
        "created_at": NOON,
        "due_at": NOON,
        "deliveries": 1,
    }
    (delivery,) = acme.get(f"/v1/events/{ping['id']}/deliveries").json()["data"]
    assert delivery["endpoint_id"] == endpoint
    assert acme.get(f"/v1/events/{ping['id']}").json()["data"] == {"endpoint_id": endpoint}
    assert acme.post(f"/v1/endpoints/{endpoint}/ping").json()["id"] != ping["id"], "each call is one"
    is_problem(rival.post(f"/v1/endpoints/{endpoint}/ping"), 404, "not-found")
    is_problem(producer.post(f"/v1/endpoints/{endpoint}/ping"), 403, "wrong-scope")


@pytest.mark.parametrize(("event", "status"), [("ping", "enabled"), ("a", "disabled")])
def test_a_410_to_a_ping_disables_nothing(api: Api, acme: httpx.Client, event: str, status: str) -> None:
    endpoint = subscribe(acme, event_types=["a"])
    if event == "ping":
        acme.post(f"/v1/endpoints/{endpoint}/ping")
    else:
        posted(acme)
    (shown,) = acme.get("/v1/deliveries").json()["data"]
    (claim,) = claimed(api.runtime.engine, number_of(shown["id"]))
    with api.runtime.engine.begin() as connection:
        endpoints.hear(connection, claim.endpoint, claim.revision, Outcome.GONE, event=claim.event)
    assert acme.get(f"/v1/endpoints/{endpoint}").json()["status"] == status


def test_a_job_whose_numbers_are_large_is_shown_as_it_is(api: Api, acme: httpx.Client, tenant: str) -> None:
    with api.runtime.engine.begin() as connection:
        connection.exec_driver_sql(
            """INSERT INTO duehook.jobs (tenant, kind, parameters, done, total, result)
               VALUES (%s, 'replay', '{}', 1, %s, %s)""",
            (tenant, 2**62, json.dumps({"made": 2**62})),
        )
    (job,) = acme.get("/v1/jobs").json()["data"]
    assert (job["total"], job["result"]["made"]) == (2**62, 2**62)
    assert acme.post(f"/v1/jobs/{job['id']}/cancel").status_code == 200
