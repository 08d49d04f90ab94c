"""`Idempotency-Key`: a POST that is sent again has one effect, and the first answer, whatever came in between."""

import json
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import event

from app.core.upkeep import upkeep
from app.ledger import idempotency
from app.ledger.idempotency import Begun
from tests.clock import Clock
from tests.contract.documented import OPERATIONS
from tests.contract.served import Api, subscribe
from tests.contract.test_deliveries import bury, posted
from tests.contract.test_refusals import GOOD, is_problem
from tests.ledgers import rows
from tests.waiting import wait_until

KEY = {"idempotency-key": "k-1"}
REPLAYED = "idempotency-replayed"
Made = Callable[[Api, httpx.Client], tuple[str, Any]]  # of a route: a real path of it, and a body


def reserved(_: Api, client: httpx.Client) -> str:
    return str(client.post("/v1/reservations", json=GOOD["reservation"]).json()["id"])


def delivered(_: Api, client: httpx.Client) -> str:
    subscribe(client, url="http://127.0.0.1:9/x")
    return posted(client)


def dead(api: Api, client: httpx.Client) -> str:
    delivery = delivered(api, client)
    bury(api, delivery)
    return delivery


def an_event(_: Api, client: httpx.Client) -> str:
    return str(client.post("/v1/events", json=GOOD["event"]).json()["id"])


def an_endpoint(_: Api, client: httpx.Client) -> str:
    return subscribe(client)


def a_job(_: Api, client: httpx.Client) -> str:
    return str(client.post("/v1/dead-letters/redrive", json=GOOD["redrive"]).json()["id"])


def to(path: str, body: Any = None, of: Callable[[Api, httpx.Client], str] | None = None) -> Made:
    return lambda api, client: (path.format(id=of(api, client) if of else ""), body)


ROUTES: dict[str, Made] = {
    "/v1/reservations": to("/v1/reservations", GOOD["reservation"]),
    "/v1/reservations/{id}/confirm": to("/v1/reservations/{id}/confirm", of=reserved),
    "/v1/reservations/{id}/release": to("/v1/reservations/{id}/release", of=reserved),
    "/v1/events": to("/v1/events", GOOD["event"]),
    "/v1/events/{id}/cancel": to("/v1/events/{id}/cancel", of=an_event),
    "/v1/events/{id}/erase": to("/v1/events/{id}/erase", of=an_event),
    "/v1/endpoints": to("/v1/endpoints", GOOD["endpoint"]),
    "/v1/endpoints/{id}/rotate-secret": to("/v1/endpoints/{id}/rotate-secret", {}, of=an_endpoint),
    "/v1/endpoints/{id}/enable": to("/v1/endpoints/{id}/enable", of=an_endpoint),
    "/v1/endpoints/{id}/disable": to("/v1/endpoints/{id}/disable", of=an_endpoint),
    "/v1/endpoints/{id}/replay": to("/v1/endpoints/{id}/replay", GOOD["replay"], of=an_endpoint),
    "/v1/endpoints/{id}/ping": to("/v1/endpoints/{id}/ping", of=an_endpoint),
    "/v1/deliveries/{id}/retry": to("/v1/deliveries/{id}/retry", of=delivered),
    "/v1/deliveries/{id}/cancel": to("/v1/deliveries/{id}/cancel", of=delivered),
    "/v1/dead-letters/redrive": to("/v1/dead-letters/redrive", GOOD["redrive"]),
    "/v1/dead-letters/{id}/redrive": to("/v1/dead-letters/{id}/redrive", of=dead),
    "/v1/jobs/{id}/cancel": to("/v1/jobs/{id}/cancel", of=a_job),
}


def effects(api: Api, tenant: str) -> list[str]:
    """Everything of the tenant, as text with the transactions that wrote it; only a write changes it."""
    tables = ("reservations", "events", "deliveries", "endpoints", "jobs", "outbox", "audit_log")
    of_secrets = "endpoint IN (SELECT seq FROM duehook.endpoints WHERE tenant = :tenant)"
    queries = [f"SELECT 1 FROM duehook.{table} t WHERE tenant = :tenant" for table in tables]
    queries.append(f"SELECT 1 FROM duehook.secrets t WHERE {of_secrets}")
    return [
        each
        for query in queries
        for each in rows(api.runtime.engine, query.replace("1", "t.xmin || t::text") + " ORDER BY 1", tenant=tenant)
    ]


def is_replay(answer: httpx.Response, first: httpx.Response) -> None:
    assert (answer.status_code, answer.headers.get(REPLAYED)) == (first.status_code, "true"), answer.text
    assert answer.headers["content-type"] == first.headers["content-type"]
    assert REPLAYED not in first.headers


def test_these_are_all_the_routes() -> None:
    assert set(ROUTES) == {path for method, path in OPERATIONS if method == "POST"}


@pytest.mark.parametrize("route", ROUTES)
def test_every_post_sent_again_is_answered_again_and_has_no_second_effect(
    api: Api, acme: httpx.Client, tenant: str, clock: Clock, route: str
) -> None:
    path, body = ROUTES[route](api, acme)
    content = b"" if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", **KEY}
    first = acme.post(path, content=content, headers=headers)
    assert first.status_code in (200, 201, 202), first.text
    before = effects(api, tenant)
    assert before
    clock.advance(hours=23)
    again = acme.post(path, content=content, headers=headers)
    is_replay(again, first)
    if "secret" in first.json():
        assert first.json()["secret"].startswith("whsec_")
        assert again.json() == {**first.json(), "secret": None}
        assert list(again.json()) == list(first.json())
    else:
        assert again.content == first.content
    is_problem(acme.post(path, content=content + b" ", headers=headers), 422, "invalid")
    assert effects(api, tenant) == before
    (status,) = rows(api.runtime.engine, "SELECT status FROM duehook.kept_answers WHERE tenant = :t", t=tenant)
    assert status == first.status_code


@pytest.mark.parametrize("route", ROUTES)
def test_every_post_refuses_a_key_that_is_none(api: Api, acme: httpx.Client, tenant: str, route: str) -> None:
    path, body = ROUTES[route](api, acme)
    before = effects(api, tenant)
    answer = acme.post(path, json=body or {}, headers={"idempotency-key": "a key"})
    assert is_problem(answer, 422, "invalid")["errors"][0]["pointer"] == "/Idempotency-Key"
    assert effects(api, tenant) == before


@pytest.mark.parametrize("key", [b"", b"a b", b"\xc3\xa9", b"a\tb", b"x" * 256])
def test_a_key_is_1_to_255_visible_ascii_characters(acme: httpx.Client, key: bytes) -> None:
    answer = acme.post("/v1/events", json=GOOD["event"], headers=[(b"idempotency-key", key)])
    problem = is_problem(answer, 422, "invalid")
    assert [each["pointer"] for each in problem["errors"]] == ["/Idempotency-Key"]


def test_two_keys_of_one_request_are_422(acme: httpx.Client) -> None:
    answer = acme.post("/v1/events", json=GOOD["event"], headers=[("idempotency-key", "a")] * 2)
    assert is_problem(answer, 422, "invalid")["errors"][0]["pointer"] == "/Idempotency-Key"


@pytest.mark.parametrize("key", ["x" * 255, "!", "~", "a:b/c?d=e&f,g;h"])
def test_a_key_that_is_odd_but_right_is_taken(acme: httpx.Client, key: str) -> None:
    first, again = (acme.post("/v1/events", json=GOOD["event"], headers={"idempotency-key": key}) for _ in range(2))
    is_replay(again, first)


def test_a_key_tells_only_requests_of_one_tenant_method_and_path_apart(
    api: Api, acme: httpx.Client, rival: httpx.Client, tenant: str
) -> None:
    first = acme.post("/v1/events", json=GOOD["event"], headers=KEY)
    assert REPLAYED not in rival.post("/v1/events", json=GOOD["event"], headers=KEY).headers
    assert REPLAYED not in acme.post("/v1/endpoints", json=GOOD["endpoint"], headers=KEY).headers
    one, other = (acme.post(f"/v1/events/{an_event(api, acme)}/cancel", headers=KEY) for _ in range(2))
    assert (REPLAYED in one.headers, REPLAYED in other.headers) == (False, False)
    with api.client("*") as everyone:
        is_replay(everyone.post("/v1/events", json=GOOD["event"], headers=KEY, params={"tenant": tenant}), first)
        theirs = everyone.post("/v1/events", json=GOOD["event"], headers=KEY, params={"tenant": f"{tenant}-x"})
        assert REPLAYED not in theirs.headers


def test_other_methods_have_no_keys(acme: httpx.Client) -> None:
    path = f"/v1/endpoints/{subscribe(acme)}"
    for body in ({"description": "a"}, {"description": "b"}):
        answer = acme.patch(path, json=body, headers=KEY)
        assert (answer.status_code, answer.json()["description"]) == (200, body["description"])
    assert acme.get(path, headers={"idempotency-key": "a key"}).status_code == 200


def test_data_comes_back_byte_for_byte(acme: httpx.Client) -> None:
    data = r'{ "a":1.0, "a":1E+2, "b":"\ud800\u0000\/" , "c":"é😀" }'
    content = f'{{"resource":"r","hold_seconds":9,"data":{data}}}'.encode()
    headers = {"content-type": "application/json", **KEY}
    first, again = (acme.post("/v1/reservations", content=content, headers=headers) for _ in range(2))
    is_replay(again, first)
    assert again.content == first.content
    assert data.encode() in again.content


def test_the_first_answer_comes_again_though_things_have_changed_since(acme: httpx.Client) -> None:
    body = {"id": "rsv_1", "resource": "r", "hold_seconds": 60}
    first = acme.post("/v1/reservations", json=body, headers=KEY)
    repeat = acme.post("/v1/reservations", json=body, headers={"idempotency-key": "k-2"})
    assert (first.status_code, repeat.status_code) == (201, 200)
    confirmed = acme.post("/v1/reservations/rsv_1/confirm", headers=KEY)
    acme.post("/v1/reservations/rsv_1/release")
    for key, kept in (("k-1", first), ("k-2", repeat)):
        is_replay(acme.post("/v1/reservations", json=body, headers={"idempotency-key": key}), kept)
    again = acme.post("/v1/reservations/rsv_1/confirm", headers=KEY)
    is_replay(again, confirmed)
    assert again.json()["status"] == "confirmed"


def test_a_problem_is_not_kept(acme: httpx.Client) -> None:
    def confirm() -> httpx.Response:
        return acme.post("/v1/reservations/rsv_1/confirm", headers=KEY)

    assert confirm().status_code == confirm().status_code == 404
    acme.post("/v1/reservations", json={"id": "rsv_1", "resource": "r", "hold_seconds": 60})
    acme.post("/v1/reservations/rsv_1/release")
    assert [confirm().status_code for _ in range(2)] == [409, 409]
    acme.post("/v1/events", json={"type": "a", "key": "k", "data": 1})
    taken = [acme.post("/v1/events", json={"type": "a", "key": "k", "data": 2}, headers=KEY) for _ in range(2)]
    assert [(each.status_code, REPLAYED in each.headers) for each in taken] == [(409, False)] * 2
    assert acme.post("/v1/events", json={"type": "a"}, headers=KEY).status_code == 422
    assert acme.post("/v1/events", json={"type": "a", "data": 1}, headers=KEY).status_code == 202


def test_a_late_confirm_under_a_key_has_expired_the_reservation(acme: httpx.Client, clock: Clock) -> None:
    acme.post("/v1/reservations", json={"id": "rsv_1", "resource": "r", "hold_seconds": 60})
    clock.advance(seconds=60)
    answers = [acme.post("/v1/reservations/rsv_1/confirm", headers=KEY) for _ in range(2)]
    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(409, False)] * 2
    assert acme.get("/v1/reservations/rsv_1").json()["status"] == "expired"


def test_a_key_can_be_used_anew_after_24_hours_pruned_or_not(acme: httpx.Client, clock: Clock) -> None:
    def post(data: int) -> httpx.Response:
        return acme.post("/v1/events", json={"type": "a", "data": data}, headers=KEY)

    first = post(1)
    clock.advance(hours=24, microseconds=-1)
    is_replay(post(1), first)
    assert post(2).status_code == 422
    clock.advance(microseconds=1)
    second = post(2)
    assert (second.status_code, REPLAYED in second.headers) == (202, False)
    is_replay(post(2), second)
    clock.advance(hours=23)
    is_replay(post(2), second)


def test_upkeep_prunes_what_is_older_than_a_day_portion_by_portion(
    api: Api, acme: httpx.Client, tenant: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def every() -> int:
        return len(rows(api.runtime.engine, "SELECT 1 FROM duehook.kept_answers"))

    def kept() -> int:
        return len(rows(api.runtime.engine, "SELECT 1 FROM duehook.kept_answers WHERE tenant = :t", t=tenant))

    for number in range(5):
        acme.post("/v1/events", json=GOOD["event"], headers={"idempotency-key": str(number)})
    clock.advance(hours=23)
    young = acme.post("/v1/events", json=GOOD["event"], headers=KEY)
    upkeep(api.runtime.engine)
    assert kept() == 6
    clock.advance(hours=1)
    before = every()  # those of other tests are old as well
    monkeypatch.setattr("app.core.upkeep.PRUNED_AT_ONCE", 2)
    monkeypatch.setattr("app.core.upkeep.PRUNING_SECONDS", 0)
    upkeep(api.runtime.engine)
    assert every() == before - 2
    monkeypatch.setattr("app.core.upkeep.PRUNING_SECONDS", 60)
    upkeep(api.runtime.engine)
    assert kept() == 1
    is_replay(acme.post("/v1/events", json=GOOD["event"], headers=KEY), young)


def test_a_thousand_events_are_kept_small_and_answered_again(api: Api, acme: httpx.Client, tenant: str) -> None:
    many = [{"type": "order.placed", "key": f"order-{number}", "data": number} for number in range(1000)]
    first, again = (acme.post("/v1/events", json=many, headers=KEY) for _ in range(2))
    is_replay(again, first)
    assert again.content == first.content
    query = "SELECT octet_length(answer) FROM duehook.kept_answers WHERE tenant = :t"
    (size,) = rows(api.runtime.engine, query, t=tenant)
    assert size < len(first.content) / 5


def test_no_secret_is_kept(api: Api, acme: httpx.Client, tenant: str) -> None:
    given = "whsec_" + "c2VjcmV0" * 4
    for members in ({"secret": given}, {"signing": "ed25519"}, {"headers": {"x-token": "a password"}}):
        key = {"idempotency-key": "-".join(members)}
        assert acme.post("/v1/endpoints", json={**GOOD["endpoint"], **members}, headers=key).status_code == 201
    for number in range(3):
        made = subscribe(acme, secret=given)
        key = {"idempotency-key": str(number)}
        assert acme.post(f"/v1/endpoints/{made}/rotate-secret", headers=key).status_code == 200
    kept = rows(api.runtime.engine, "SELECT answer FROM duehook.kept_answers WHERE tenant = :t", t=tenant)
    assert kept
    for each in kept:
        text = zlib.decompress(each).decode()
        assert '"secret":null' in text
        assert not [word for word in ("whsec_", "whpk_", "whsk_", "password") if word in text]


@pytest.fixture
def statements(api: Api) -> Iterator[list[str]]:
    """The names of the statements that the API sends."""
    sent: list[str] = []

    def listen(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement.partition("*/")[0].removeprefix("/*").strip())

    event.listen(api.engine, "before_cursor_execute", listen)
    yield sent
    event.remove(api.engine, "before_cursor_execute", listen)


def test_a_key_costs_one_statement_before_and_one_after_and_no_key_none(
    acme: httpx.Client, statements: list[str]
) -> None:
    acme.post("/v1/events", json=GOOD["event"])  # and the API key is known
    statements.clear()
    acme.post("/v1/events", json=GOOD["event"])
    bare = statements.copy()
    statements.clear()
    acme.post("/v1/events", json=GOOD["event"], headers=KEY)
    assert statements == ["idempotency.begin", *bare, "idempotency.keep"]
    statements.clear()
    acme.post("/v1/events", json=GOOD["event"], headers=KEY)
    assert statements == ["idempotency.begin"]


def test_while_the_first_runs_the_second_is_409_and_waits_for_nobody(api: Api, acme: httpx.Client) -> None:
    acme.post("/v1/reservations", json={"id": "rsv_1", "resource": "r", "hold_seconds": 60})

    def confirm(**headers: str) -> httpx.Response:
        return acme.post("/v1/reservations/rsv_1/confirm", headers=headers)

    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(api.database_url) as holder, ThreadPoolExecutor(1) as another:
        holder.execute("SELECT 1 FROM duehook.reservations WHERE id = 'rsv_1' FOR UPDATE")
        first = another.submit(confirm, **KEY)
        wait_until(lambda: rows(api.runtime.engine, waits), what="the first waits for the row")
        second = confirm(**KEY)
        is_problem(second, 409, "conflict")
        assert second.headers["retry-after"] == "1"
        assert not first.done()
        holder.rollback()
        assert first.result(10).status_code == 200
    is_replay(confirm(**KEY), first.result())


def test_should_two_be_first_the_later_leaves_nothing(
    api: Api, acme: httpx.Client, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert acme.post("/v1/events", json=GOOD["event"], headers=KEY).status_code == 202
    before = effects(api, tenant)
    monkeypatch.setattr(idempotency, "begin", lambda *_: Begun.FIRST)
    is_problem(acme.post("/v1/events", json=GOOD["event"], headers=KEY), 409, "conflict")
    assert effects(api, tenant) == before


MANY = 20


@pytest.mark.parametrize("round", range(5))
def test_of_many_at_once_one_has_an_effect_and_the_others_its_answer_or_409(
    api: Api, acme: httpx.Client, tenant: str, round: int
) -> None:
    """An exclusive one: whoever did it a second time would be told that somebody has it, which is a wrong answer."""
    body = {"resource": "r", "hold_seconds": 60, "exclusive": True}

    def hold(_: int) -> httpx.Response:
        while True:
            answer = acme.post("/v1/reservations", json=body, headers=KEY)
            if answer.status_code != 409 or "retry-after" not in answer.headers:
                return answer

    with ThreadPoolExecutor(MANY) as pool:
        answers = list(pool.map(hold, range(MANY)))
    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert sum(REPLAYED not in answer.headers for answer in answers) == 1
    assert len(rows(api.runtime.engine, "SELECT 1 FROM duehook.reservations WHERE tenant = :t", t=tenant)) == 1
