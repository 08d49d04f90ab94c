"""Every hostile value in every member, parameter and path of every route, generated from the document.

A member that is documented tomorrow is attacked tomorrow. The client of these tests holds each answer against the
document (`documented.check`), which knows no answer of the service's fault but as a problem.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import httpx
import pytest

from tests.contract.documented import DOCUMENT, OPERATIONS, flaws, readable
from tests.contract.served import Api, subscribe
from tests.contract.test_refusals import JSON, is_problem

SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
Route = tuple[str, str]
Path = tuple[str | int, ...]
MARK = "@@"
INJECTED = [
    "'; DROP TABLE duehook.events; --",
    "1 OR 1=1",
    "x\r\nset-cookie: a=b",
    "%00%0a{0}%s${jndi:ldap://x}",
    "../../../etc/passwd",
    "<script>alert(1)</script>",
    "\u202e\u0007\ufeff\U0010ffff",
]
# JSON texts. No member but `data` takes any of these.
NEVER = [
    r'"\u0000"',
    r'"a\u0000b"',
    r'"\ud800"',
    r'"\udc00\ud800"',
    "9223372036854775808",
    "-9223372036854775809",
    "9" * 5000,
    "1e400",
    "-1e400",
    '{"a":1,"a":2}',
    '{"\\u0000":1}',
    "[" * 17 + "]" * 17,
    "[" * 600 + "]" * 600,
    '"' + "x" * 70_000 + '"',
]
# And of these some take some.
ODD = [
    *map(json.dumps, INJECTED),
    *("null", "true", "false", "[]", "{}", "[null]", '{"":""}', '""', '" "', '"' + "é" * 300 + '"'),
    *("0", "-0.0", "-1", "0.5", "1e-400", "9223372036854775807", "1E+2", '"1"', '"NaN"'),
    *('"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59Z"', '"2000-01-01T00:00:00Z"', '"2031-01-01T00:00:00"'),
    *('"2031-01-01T00:00:00.123456789Z"', '"２０３１-01-01T00:00:00Z"', '"2031-02-29T00:00:00Z"', '"2031-01-01"'),
]
NOT_JSON = ["NaN", "Infinity", "-Infinity", "01", "+1", "'a'", '"\n"', "undefined", ","]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a route's body, a body that is good but for it, and what the document says of the whole."""

    route: Route
    path: Path
    body: Any
    schema: dict[str, Any]

    def __str__(self) -> str:
        return f"{' '.join(self.route)} /{'/'.join(map(str, self.path))}"

    def text(self, value: str) -> str:
        """The body with this JSON text for its value."""
        return json.dumps(_with(self.body, self.path, MARK)).replace(json.dumps(MARK), value)


def _with(body: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    if isinstance(path[0], int):
        return [_with(None, path[1:], value)]
    return {**(body or {}), path[0]: _with((body or {}).get(path[0]), path[1:], value)}


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _paths(schema: dict[str, Any]) -> Iterator[Path]:
    """Of everything that a value of this schema may hold, itself first."""
    schema = _resolved(schema)
    yield ()
    for each in schema.get("anyOf", ()):
        yield from (path for path in _paths(each) if path)
    for name, each in schema.get("properties", {}).items():
        yield from ((name, *path) for path in _paths(each))
    if "items" in schema:
        yield from ((0, *path) for path in _paths(schema["items"]))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from (("x-a", *path) for path in _paths(schema["additionalProperties"]))


def _members() -> Iterator[Member]:
    for route, operation in OPERATIONS.items():
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            example = content["examples"]["one"]["value"]
            one = _resolved(content["schema"].get("anyOf", [content["schema"]])[0])
            for path in _paths(one):
                yield Member(route, path, _barely(one, example, path), one)


def _barely(schema: dict[str, Any], example: dict[str, Any], path: Path) -> dict[str, Any]:
    """What must be there of an example, if this member is: where one of several must, that one."""
    ways = [way["required"] for way in schema.get("oneOf", ())]
    way = next((each for each in ways if path[:1] == tuple(each)), ways[0] if ways else [])
    return {name: example[name] for name in (*schema.get("required", ()), *way) if name in example}


MEMBERS = [*_members()]
PARAMETERS = [
    (route, parameter["name"], parameter["in"])
    for route, operation in OPERATIONS.items()
    for parameter in operation.get("parameters", ())
]


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[httpx.Client]:
    with api.client("hostile") as made:
        yield made


@pytest.fixture(scope="module")
def endpoint(client: httpx.Client) -> str:
    return subscribe(client)


def send(client: httpx.Client, route: Route, endpoint: str, body: str) -> httpx.Response:
    method, path = route
    return client.request(method, path.replace("{id}", endpoint), content=body.encode(), headers=JSON)


def points_into(answer: httpx.Response, path: Path) -> bool:
    """Whether every flaw is told of this member, of what is in it, or of what it is in."""
    wanted = "".join(f"/{part}" for part in path)
    told = [each["pointer"] for each in answer.json().get("errors", ())]
    return bool(told) and all(f"{each}/".startswith(f"{wanted}/") or wanted.startswith(f"{each}/") for each in told)


def is_data(member: Member) -> bool:
    return member.path[:1] == ("data",)


@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_a_hostile_value_is_taken_as_text_or_refused_by_name(
    client: httpx.Client, endpoint: str, member: Member
) -> None:
    for value in [*NEVER, *ODD]:
        answer = send(client, member.route, endpoint, member.text(value))
        good = not flaws(member.schema, readable(member.text(value).encode()))
        what = f"{value[:60]}: {answer.status_code} {answer.text[:300]}"
        if is_data(member):
            too_deep = value.count("[") > 500
            assert answer.status_code == 422 if too_deep else answer.status_code in (200, 201, 202), what
        elif answer.status_code == 413:
            assert len(value) > 65_536, what
        elif answer.status_code == 422:
            assert points_into(answer, member.path), what
        else:
            assert answer.status_code in (200, 201, 202, 409) and good and value not in NEVER, what


@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_what_is_no_json_is_400_wherever_it_stands(client: httpx.Client, endpoint: str, member: Member) -> None:
    for value in NOT_JSON:
        is_problem(send(client, member.route, endpoint, member.text(value)), 400, "not-json")


@pytest.mark.parametrize("member", [each for each in MEMBERS if not is_data(each)], ids=str)
def test_an_unknown_member_is_refused_by_name(client: httpx.Client, endpoint: str, member: Member) -> None:
    schema = member.schema
    for part in member.path:
        schema = _resolved(schema).get("properties", {}).get(part, {})
    if "properties" not in _resolved(schema):
        return
    for name in ("__proto__", "a/b~c", "'; --", "\u202e", "x" * 100):
        body = member.text(json.dumps({name: 1}))
        told = is_problem(send(client, member.route, endpoint, body), 422, "invalid")["errors"]
        pointer = name.replace("~", "~0").replace("/", "~1")
        assert any(each["pointer"].endswith(f"/{pointer}") for each in told), told


@pytest.mark.parametrize("member", [each for each in MEMBERS if each.route[1] == "/v1/events"], ids=str)
def test_one_bad_event_of_a_list_leaves_nothing_of_it(api: Api, member: Member) -> None:
    good = json.dumps({"type": "a", "data": 1})
    values = [value for value in (*NEVER, *ODD) if is_data(member) == (value.count("[") > 500)]
    with api.client("half") as client:
        for value in values:
            if not is_data(member) and value not in NEVER and not flaws(member.schema, json.loads(member.text(value))):
                continue  # it may be taken
            answer = send(client, member.route, "", f"[{good},{member.text(value)},{good}]")
            assert answer.status_code == 422, value
            assert points_into(answer, (1, *member.path)), answer.text
        assert client.get("/v1/events").json()["data"] == []


@pytest.mark.parametrize(("route", "name", "place"), PARAMETERS, ids=str)
def test_a_hostile_parameter_is_the_clients_fault(
    client: httpx.Client, endpoint: str, route: Route, name: str, place: str
) -> None:
    method, path = route
    values: Sequence[str] = ["", "%00", "%ff", "%ED%A0%80", "1e400", "9" * 5000, "-1", "null", "x" * 4000]
    for value in (*values, *map(quote, INJECTED), "%2e%2e%2f", "evt_1%0a", "*", "9223372036854775808", "1&1=1"):
        value = value.replace("/", "%2F")
        url = path.replace("{id}", endpoint)
        headers: dict[bytes, bytes] = {}
        if place == "path":
            url = path.replace("{" + name + "}", value)
        elif place == "header":
            # Controls end the request or the client before it gets here; blanks at the ends are none of the value.
            headers = {name.encode(): re.sub(rb"[\0-\x1f\x7f]", b"?", unquote_to_bytes(value)).strip()}
        else:
            url = f"{url}?{name}={value}"
        answer = client.request(method, url, headers=headers)
        assert answer.status_code < 500 and answer.status_code != 401, f"{url} {headers}: {answer.text}"


def test_every_route_with_a_body_is_walked() -> None:
    assert {member.route for member in MEMBERS} == {
        route for route, operation in OPERATIONS.items() if "requestBody" in operation
    }
    assert len(MEMBERS) > 50
