"""One tenant can't see or touch what is another's, by any route: generated from the document, row by row compared.

The rival owns nothing but its keys when it begins: all rows that were there before have to be there afterwards, each
unchanged, and no answer may name a thing of the victim's.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import text

from app.core.jobs import advance
from app.domain.states import KeyScope
from app.local.postgres import Postgres
from tests.contract.documented import OPERATIONS
from tests.contract.served import Api, number_of, served, subscribe
from tests.contract.test_deliveries import bury, posted
from tests.contract.test_hostile_input import MEMBERS, Member
from tests.contract.test_openapi import KEYED, PREFIX, WITH_BODY, body_for
from tests.contract.test_refusals import GOOD, JSON, is_problem

Route = tuple[str, str]
WITH_ID = [route for route in KEYED if "{id}" in route[1]]
# Query parameters and members of bodies that name a thing: the kind of thing is in the name.
FILTERS = [
    (route, parameter["name"])
    for route in KEYED
    for parameter in OPERATIONS[route]["parameters"]
    if parameter["in"] == "query" and (parameter["name"].endswith("_id") or parameter["name"] in ("cursor", "resource"))
]
REFERENCES = [member for member in MEMBERS if str(member.path[-1:]).endswith("_id',)")]
NAMED = {"endpoint_id": "endpoints", "event_id": "events", "resource": "resource"}
KEPT = """SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
           WHERE nspname = 'duehook' AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relname"""


@dataclass(frozen=True, slots=True)
class Victim:
    """What a tenant has: the id of one thing of each kind, and how its lists go on."""

    tenant: str
    things: dict[str, str]
    cursors: dict[str, str]


@pytest.fixture(scope="module")
def apart(postgres: Postgres, template: str) -> Iterator[Api]:
    """An API with a small database of its own: every row of it is compared."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE tenants TEMPLATE {template}")
    with served(postgres.url_of("tenants")) as running:
        yield running


@pytest.fixture(scope="module")
def victim(apart: Api) -> Victim:
    with apart.client("victim") as client:
        subscribe(client)
        things = {"endpoints": subscribe(client), "resource": "seat-of-the-victim", "key": "key-of-the-victim"}
        for _ in range(2):
            made = client.post("/v1/reservations", json={**GOOD["reservation"], "resource": things["resource"]})
            job = client.post("/v1/dead-letters/redrive", json=GOOD["redrive"])
        for _ in range(2):
            things["dead-letters"] = posted(client)
            bury(apart, things["dead-letters"])
        things["deliveries"] = posted(client)
        event = client.post("/v1/events", json={**GOOD["event"], "key": things["key"], "data": "a secret"}).json()
        things |= {"events": event["id"], "reservations": made.json()["id"], "jobs": job.json()["id"]}
        lists = [path for method, path in KEYED if method == "GET" and "cursor" in _parameters((method, path))]
        pages = {path: client.get(_path(path, things), params={"limit": 1}).json() for path in lists}
        assert all(page["next_cursor"] for page in pages.values()), "each list has a page more"
        return Victim("victim", things, {path: page["next_cursor"] for path, page in pages.items()})


@pytest.fixture(scope="module")
def rival(apart: Api, victim: Victim) -> Iterator[httpx.Client]:
    with apart.client("rival") as client:
        yield client


@pytest.fixture(scope="module")
def owner(apart: Api, victim: Victim) -> Iterator[httpx.Client]:
    with apart.client(victim.tenant) as client:
        yield client


@pytest.fixture(scope="module")
def hand(apart: Api, victim: Victim) -> Iterator[httpx.Client]:
    """A producer of the victim's own."""
    with apart.client("victim", KeyScope.PRODUCER) as client:
        yield client


@pytest.fixture
def rows_kept(apart: Api, victim: Victim, owner: httpx.Client, hand: httpx.Client) -> Iterator[None]:
    """Whatever the test does, every row stays as it is, and no new one is the victim's or has to do with it."""
    before = _rows(apart)
    yield
    after = _rows(apart)
    assert not before - after, "rows that are gone or changed"
    names = [*victim.things.values(), *(str(number_of(each)) for each in _ids(victim))]
    for table, row in after - before:
        words = [victim.tenant, *(names if table not in ("jobs", "audit_log") else [])]  # these keep what was asked for
        assert not any(re.search(rf"\b{word}\b", row) for word in words), row


def _rows(api: Api) -> Counter[tuple[str, str]]:
    with api.runtime.engine.connect() as connection:
        tables = connection.execute(text(KEPT)).scalars().all()
        assert {"reservations", "events", "deliveries", "endpoints", "outbox", "jobs", "dead_letters"} <= set(tables)
        return Counter(
            (table, row)
            for table in tables
            for row in connection.execute(text(f"SELECT t::text FROM duehook.{table} t")).scalars()
        )


def _ids(victim: Victim) -> list[str]:
    """Those that are numbers of rows, too."""
    return [each for each in victim.things.values() if re.fullmatch("(evt|dlv|end|job)_[0-9a-f]+", each)]


def _parameters(route: Route) -> set[str]:
    return {parameter["name"] for parameter in OPERATIONS[route].get("parameters", ())}


def _path(path: str, things: dict[str, str]) -> str:
    return path.replace("{id}", things.get(path.split("/")[2], "")).replace("{tenant}", "victim")


def ask(client: httpx.Client, route: Route, victim: Victim, **request: Any) -> httpx.Response:
    """A request that is fine but for who sends it."""
    if route in WITH_BODY:
        request = {"content": body_for(route[1]), "headers": JSON, **request}
    return client.request(route[0], _path(route[1], victim.things), **request)


def tells_nothing(answer: httpx.Response, victim: Victim, but: str = "") -> None:
    """Of the victim: no id of its things, no word of its data."""
    told = [each for each in (*victim.things.values(), "a secret") if each != but and each in answer.text]
    assert not told, answer.text


@pytest.mark.parametrize("route", WITH_ID, ids=" ".join)
def test_a_thing_of_another_tenant_is_not_there(
    rival: httpx.Client, victim: Victim, route: Route, rows_kept: None
) -> None:
    answer = ask(rival, route, victim)
    is_problem(answer, 404, "not-found")
    tells_nothing(answer, victim)


@pytest.mark.parametrize(("route", "name"), FILTERS, ids=str)
def test_a_filter_or_a_cursor_of_another_tenant_finds_nothing(
    owner: httpx.Client, rival: httpx.Client, victim: Victim, route: Route, name: str, rows_kept: None
) -> None:
    value = victim.cursors[route[1]] if name == "cursor" else victim.things[NAMED[name]]
    answer = ask(rival, route, victim, params={name: value})
    tells_nothing(answer, victim)
    if "{id}" in route[1]:
        is_problem(answer, 404, "not-found")
    else:
        assert (answer.status_code, answer.json()) == (200, {"data": [], "next_cursor": None})
        assert owner.get(route[1], params={name: value}).json()["data"], "its owner finds something"


@pytest.mark.parametrize("member", REFERENCES, ids=str)
def test_a_body_that_names_a_thing_of_another_tenant_does_nothing_to_it(
    apart: Api, rival: httpx.Client, victim: Victim, member: Member, rows_kept: None
) -> None:
    body = member.text(json.dumps(victim.things[NAMED[str(member.path[-1])]]))
    for asked in (body, body_for(member.route[1])):
        job = rival.post(member.route[1], content=asked, headers=JSON).json()["id"]
        while advance(apart.runtime.engine, [number_of(job)]).answers[number_of(job)] != "gone":
            pass
        ended = rival.get(f"/v1/jobs/{job}").json()
        assert (ended["status"], ended["done"]) == ("completed", 0)


@pytest.mark.parametrize("route", KEYED, ids=" ".join)
def test_a_tenant_can_not_be_chosen_with_a_key_of_another(
    rival: httpx.Client, victim: Victim, route: Route, rows_kept: None
) -> None:
    is_problem(ask(rival, route, victim, params={"tenant": victim.tenant}), 403, "wrong-scope")


@pytest.mark.parametrize("route", [each for each in KEYED if OPERATIONS[each]["security"] == [{"key": ["operator"]}]])
def test_what_is_an_operators_a_producer_can_not_do(
    hand: httpx.Client, victim: Victim, route: Route, rows_kept: None
) -> None:
    is_problem(ask(hand, route, victim), 403, "wrong-scope")


def test_a_name_that_another_tenant_uses_is_free(owner: httpx.Client, rival: httpx.Client, victim: Victim) -> None:
    before = [owner.get(path).json() for path in victim.cursors if "{" not in path]
    kept = {"id": victim.things["reservations"], "resource": "seat", "hold_seconds": 9, "exclusive": True}
    assert rival.post("/v1/reservations", json=kept).status_code == 201
    posted = rival.post("/v1/events", json={**GOOD["event"], "key": victim.things["key"]})
    assert (posted.status_code, posted.json()["deliveries"]) == (202, 0)
    assert before == [owner.get(path).json() for path in victim.cursors if "{" not in path]


def test_every_kind_of_thing_and_reference_is_tried(victim: Victim) -> None:
    assert victim.things.keys() >= PREFIX.keys()
    assert {name for _, name in FILTERS} - {"cursor"} == NAMED.keys()
    assert REFERENCES
    assert len(WITH_ID) >= 20
