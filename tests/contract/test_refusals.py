"""What a client must not send, and the problem it gets for each: never a 500, always one sentence and the place."""

import json
from typing import Any

import httpx
import pytest

from app.api.paging import cursor
from tests.contract.served import subscribe

JSON = {"content-type": "application/json"}
# Whatever leads a resolver or a router to 10.0.0.1, and whatever some parser takes for it.
SPELLINGS_OF_10_0_0_1 = [
    "10.0.0.1.",
    "10.1",
    "10.0.1",
    "010.0.0.1",
    "012.0.0.1",
    "0xa.0.0.1",
    "0x0a000001",
    "167772161",
    "%31%30.0.0.1",
    "\uff11\uff10.0.0.1",
    "10\u30020\u30020\u30021",
    "[::10.0.0.1]",
    "[::ffff:a00:1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b:1::a00:1]",
    "[2002:a00:1::]",
    "[2001:0:a00:1::]",
    "[2001::f5ff:fffe]",
    "[::ffff:0:10.0.0.1]",
    "[fe80::1%25eth0]",
]
PATHS = {"reservation": "/v1/reservations", "event": "/v1/events", "endpoint": "/v1/endpoints"}
GOOD: dict[str, dict[str, Any]] = {
    "reservation": {"resource": "seat", "hold_seconds": 60},
    "event": {"type": "order.placed", "data": {}},
    "endpoint": {"url": "https://shop.example/", "event_types": ["*"]},
    "redrive": {"filter": {}},
    "replay": {"since": "2030-01-01T12:00:00Z"},
}
LONG = "x" * 256
# What, which members are different (or, as a text, the whole body), where the flaw is.
FLAWS: list[tuple[str, dict[str, Any] | str, str]] = [
    ("reservation", {"hold_seconds": None}, ""),
    ("reservation", {"expires_at": "2031-01-01T00:00:00Z"}, ""),
    ("reservation", {"hold_seconds": 0}, "/hold_seconds"),
    ("reservation", {"hold_seconds": -1}, "/hold_seconds"),
    ("reservation", {"hold_seconds": 31622400.5}, "/hold_seconds"),
    ("reservation", {"hold_seconds": "60"}, "/hold_seconds"),
    ("reservation", {"hold_seconds": True}, "/hold_seconds"),
    ("reservation", '{"resource":"r","hold_seconds":1e400}', "/hold_seconds"),
    ("reservation", '{"resource":"r","hold_seconds":99999999999999999999999}', "/hold_seconds"),
    ("reservation", {"resource": ""}, "/resource"),
    ("reservation", {"resource": LONG}, "/resource"),
    ("reservation", {"resource": 5}, "/resource"),
    ("reservation", {"resource": None}, "/resource"),
    ("reservation", {"resource": "a\0b"}, "/resource"),
    ("reservation", '{"resource":"\\ud800","hold_seconds":1}', "/resource"),
    ("reservation", '{"hold_seconds":1}', "/resource"),
    ("reservation", '{"resource":"r","resource":"r","hold_seconds":1}', "/resource"),
    ("reservation", {"id": "rsv_"}, "/id"),
    ("reservation", {"id": "rsv_a.b"}, "/id"),
    ("reservation", {"id": "rsv_1\n"}, "/id"),
    ("reservation", {"id": "8f31"}, "/id"),
    ("reservation", {"id": "rsv_" + "x" * 65}, "/id"),
    ("reservation", {"id": 5}, "/id"),
    ("reservation", {"exclusive": "yes"}, "/exclusive"),
    ("reservation", {"exclusive": None}, "/exclusive"),
    ("reservation", {"status": "confirmed"}, "/status"),
    ("reservation", {"a/b~c": 1}, "/a~1b~0c"),
    *(
        ("reservation", {"hold_seconds": None, "expires_at": time}, "/expires_at")
        for time in (
            "2030-01-01",
            "2030-01-01T12:00:00",
            "2030-01-01 12:00:00Z",
            "2030-01-01T12:00Z",
            "2030-02-30T12:00:00Z",
            "2030-01-01T24:00:00Z",
            "2030-01-01T12:00:60Z",
            "2030-01-01T12:00:00+25:00",
            "2030-01-01T12:00:00Z ",
            "٢٠٣٠-01-01T12:00:00Z",
            "1969-12-31T23:59:59Z",
            "9999-12-31T23:59:59-23:00",
            "0001-01-01T00:00:00+23:00",
            "soon",
            "",
            1893499200,
        )
    ),
    ("event", {"type": ""}, "/type"),
    ("event", {"type": "a..b"}, "/type"),
    ("event", {"type": "a.b."}, "/type"),
    ("event", {"type": "order placed"}, "/type"),
    ("event", {"type": "ördered"}, "/type"),
    ("event", {"type": "a\n"}, "/type"),
    ("event", {"type": "x" * 129}, "/type"),
    ("event", {"type": "reservation.expired"}, "/type"),
    ("event", {"type": "endpoint.x"}, "/type"),
    ("event", {"type": "job.completed"}, "/type"),
    ("event", {"type": "ping"}, "/type"),
    ("event", {"type": None}, "/type"),
    ("event", {"key": ""}, "/key"),
    ("event", {"key": LONG}, "/key"),
    ("event", {"key": 1}, "/key"),
    ("event", {"key": "\0"}, "/key"),
    ("event", '{"type":"a","key":"k"}', "/data"),
    ("event", '{"type":"a","data":1,"data":2}', "/data"),
    ("event", '{"type":"a","data":' + "[" * 501 + "]" * 501 + "}", "/data"),
    ("event", {"deliver_at": "tomorrow"}, "/deliver_at"),
    ("event", {"delay_seconds": -0.5}, "/delay_seconds"),
    ("event", {"delay_seconds": 315576000.5}, "/delay_seconds"),
    ("event", {"deliver_at": "2031-01-01T00:00:00Z", "delay_seconds": 1}, ""),
    ("event", {"due_at": "2031-01-01T00:00:00Z"}, "/due_at"),
    ("event", "[]", ""),
    ("event", json.dumps([{"type": "a", "data": 1}] * 1001), ""),
    ("event", '[{"type":"a","data":1},{"type":"a"}]', "/1/data"),
    ("event", '[{"type":"a","data":1},7]', "/1"),
    ("event", '[[{"type":"a","data":1}]]', "/0"),
    ("event", '"a"', ""),
    ("event", "null", ""),
    ("event", "[" * 100_000, "/0"),
    ("endpoint", {"url": "ftp://shop.example/"}, "/url"),
    ("endpoint", {"url": "https://user:pass@shop.example/"}, "/url"),
    ("endpoint", {"url": "https://shop.example\\@evil.example/"}, "/url"),
    ("endpoint", {"url": "http://10.0.0.1/"}, "/url"),
    ("endpoint", {"url": "http://169.254.169.254/latest"}, "/url"),
    ("endpoint", {"url": "http://[::ffff:10.0.0.1]/"}, "/url"),
    ("endpoint", {"url": "http://2130706433/"}, "/url"),
    *(("endpoint", {"url": f"http://{spelling}/"}, "/url") for spelling in SPELLINGS_OF_10_0_0_1),
    ("endpoint", {"url": "https://shop.example:0/"}, "/url"),
    ("endpoint", {"url": "https://shop.example/#x"}, "/url"),
    ("endpoint", {"url": "https:///x"}, "/url"),
    ("endpoint", {"url": ""}, "/url"),
    ("endpoint", {"url": None}, "/url"),
    ("endpoint", {"event_types": []}, "/event_types"),
    ("endpoint", {"event_types": "*"}, "/event_types"),
    ("endpoint", {"event_types": ["*", "a.**"]}, "/event_types/1"),
    ("endpoint", {"event_types": ["a"] * 101}, "/event_types"),
    ("endpoint", {"event_types": ["*.a"]}, "/event_types/0"),
    ("endpoint", {"event_types": [1]}, "/event_types/0"),
    ("endpoint", {"description": "x" * 1001}, "/description"),
    ("endpoint", {"description": "\0"}, "/description"),
    ("endpoint", {"headers": {"host": "x"}}, "/headers"),
    ("endpoint", {"headers": {"webhook-id": "x"}}, "/headers"),
    ("endpoint", {"headers": {"content-type": "x"}}, "/headers"),
    ("endpoint", {"headers": {"x-a": "b\r\nx-c: d"}}, "/headers"),
    ("endpoint", {"headers": {"x a": "b"}}, "/headers"),
    ("endpoint", {"headers": {"x-a": "1", "X-A": "2"}}, "/headers"),
    ("endpoint", {"headers": {"x-a": "********"}}, "/headers"),
    ("endpoint", {"headers": {"x-a": 1}}, "/headers/x-a"),
    ("endpoint", {"headers": ["x-a"]}, "/headers"),
    ("endpoint", {"secret": "hunter2"}, "/secret"),
    ("endpoint", {"secret": "whsec_c2hvcnQ="}, "/secret"),
    ("endpoint", {"secret": "v1,whsec_" + "A" * 32}, "/secret"),
    ("endpoint", {"secret": "whsec_" + "A" * 32, "signing": "ed25519"}, "/secret"),
    ("endpoint", {"signing": "rsa"}, "/signing"),
    ("endpoint", {"rate_per_second": 0}, "/rate_per_second"),
    ("endpoint", {"rate_per_second": "5"}, "/rate_per_second"),
    ("endpoint", {"rate_per_second": -1}, "/rate_per_second"),
    ("endpoint", {"rate_per_second": 1e-300}, "/rate_per_second"),
    ("endpoint", {"rate_per_second": 0.000999}, "/rate_per_second"),
    ("endpoint", {"rate_per_second": 100_001}, "/rate_per_second"),
    ("endpoint", {"max_in_flight": 0}, "/max_in_flight"),
    ("endpoint", {"max_in_flight": 1.5}, "/max_in_flight"),
    ("endpoint", {"max_in_flight": 2**40}, "/max_in_flight"),
    ("endpoint", {"retry_schedule": [-1]}, "/retry_schedule/0"),
    ("endpoint", {"retry_schedule": ["5s"]}, "/retry_schedule/0"),
    ("endpoint", {"retry_schedule": [1] * 51}, "/retry_schedule"),
    ("endpoint", {"retry_schedule": 5}, "/retry_schedule"),
    ("endpoint", {"status": "enabled"}, "/status"),
]


def body_of(noun: str, different: dict[str, Any] | str) -> str:
    return different if isinstance(different, str) else json.dumps({**GOOD[noun], **different})


@pytest.fixture(scope="module")
def client(api: Any) -> Any:
    """A tenant that never gets anything done."""
    with api.client("refused") as made:
        yield made


def is_problem(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem: dict[str, Any] = answer.json()
    assert (problem["type"], problem["status"]) == (f"/problems/{name}", status)
    assert problem["title"]
    assert problem["detail"]
    return problem


@pytest.mark.parametrize(("noun", "different", "pointer"), FLAWS)
def test_a_flaw_is_422_and_named(client: httpx.Client, noun: str, different: Any, pointer: str) -> None:
    problem = is_problem(client.post(PATHS[noun], content=body_of(noun, different), headers=JSON), 422, "invalid")
    assert [each["pointer"] for each in problem["errors"]] == [pointer]
    assert problem["errors"][0]["detail"]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e-400"])
@pytest.mark.parametrize("member", ["rate_per_second", "max_in_flight"])
def test_a_number_that_no_computer_holds_is_a_flaw_like_any_other(
    client: httpx.Client, member: str, number: str
) -> None:
    body = f'{{"url": "https://shop.example/", "event_types": ["*"], "{member}": {number}}}'
    problem = is_problem(client.post("/v1/endpoints", content=body, headers=JSON), 422, "invalid")
    assert [each["pointer"] for each in problem["errors"]] == [f"/{member}"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_no_json(client: httpx.Client, number: str) -> None:
    body = f'{{"url": "https://shop.example/", "event_types": ["*"], "rate_per_second": {number}}}'
    is_problem(client.post("/v1/endpoints", content=body, headers=JSON), 400, "not-json")


def test_nothing_came_of_what_was_refused(client: httpx.Client) -> None:
    assert [client.get(path).json()["data"] for path in PATHS.values()] == [[], [], []]


def test_every_flaw_of_an_endpoint_is_named_at_once_and_what_can_allow_its_address(client: httpx.Client) -> None:
    body = {"url": "http://10.0.0.1/", "event_types": [], "headers": {"host": "x"}, "secret": "x", "signing": "hmac"}
    for answer in (client.post("/v1/endpoints", json=body), client.post("/v1/endpoints", json={**body, "x": 1})):
        told = {each["pointer"]: each["detail"] for each in is_problem(answer, 422, "invalid")["errors"]}
        assert told.keys() - {"/x"} == {"/event_types", "/url", "/headers", "/secret"}
        assert "DUEHOOK_ALLOWED_NETWORKS" in told["/url"]


def test_every_flaw_is_named_at_once(client: httpx.Client) -> None:
    body = [{"type": "a b"}, {"type": "a", "data": 1}, {"type": "a", "data": 1, "x": 1, "key": ""}]
    problem = is_problem(client.post("/v1/events", json=body), 422, "invalid")
    assert [each["pointer"] for each in problem["errors"]] == ["/0/type", "/0/data", "/2/key", "/2/x"]


@pytest.mark.parametrize(
    "different", [*(each for noun, each, _ in FLAWS if noun == "endpoint" and "secret" not in each)]
)
def test_a_change_is_held_to_the_same_rules(client: httpx.Client, api: Any, different: dict[str, Any]) -> None:
    with api.client("refused-change") as owner:
        endpoint = f"/v1/endpoints/{subscribe(owner)}"
        is_problem(owner.patch(endpoint, json=different), 422, "invalid")
        assert owner.get(endpoint).json()["url"] == "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    "body", [{"overlap_seconds": -1}, {"overlap_seconds": 604801}, {"overlap": 1}, {"secret": "x"}]
)
def test_a_rotation_that_is_wrong(client: httpx.Client, body: dict[str, Any]) -> None:
    is_problem(client.post("/v1/endpoints/end_1/rotate-secret", json=body), 422, "invalid")


NOT_JSON = [
    b"",
    b" ",
    b"{",
    b"{]",
    b'{"type":"a","data":1}x',
    b'{"type":"a","data":1,}',
    b'{"type":"a" "data":1}',
    b"{'type':'a','data':1}",
    b'{"type":"a","data":NaN}',
    b'{"type":"a","data":Infinity}',
    b'{"type":"a","data":01}',
    b'{"type":"a","data":"\n"}',
    b'{"type":"a","data":"\\x"}',
    b'{"type":"a","data":"\xff"}',
    b'\xef\xbb\xbf{"type":"a","data":1}',
    b"\x00",
    '{"type":"a","data":1}'.encode("utf-16"),
    b"type=a&data=1",
    b"not json",
    b"[nothing]",
    b'{"type":"a","type":"b"',
    b"[" * 100,
]


@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: repr(body[:24]))
def test_what_is_not_json_is_400(client: httpx.Client, body: bytes) -> None:
    is_problem(client.post("/v1/events", content=body, headers=JSON), 400, "not-json")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/jsonp"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_what_is_not_declared_json_is_415(client: httpx.Client, headers: dict[str, str]) -> None:
    body = json.dumps(GOOD["event"]).encode()
    is_problem(client.post("/v1/events", content=body, headers=headers), 415, "not-declared")


@pytest.mark.parametrize("declared", ["application/json;charset=utf-8", 'Application/JSON; charset="UTF-8"'])
def test_utf8_may_be_said(api: Any, declared: str) -> None:
    with api.client("declared") as owner:
        answer = owner.post("/v1/events", content=json.dumps(GOOD["event"]), headers={"content-type": declared})
        assert answer.status_code == 202


ACTIONS = [
    ("GET", "/v1/reservations/{}", "rsv"),
    ("POST", "/v1/reservations/{}/confirm", "rsv"),
    ("POST", "/v1/reservations/{}/release", "rsv"),
    ("GET", "/v1/events/{}", "evt"),
    ("GET", "/v1/events/{}/deliveries", "evt"),
    ("POST", "/v1/events/{}/cancel", "evt"),
    ("GET", "/v1/endpoints/{}", "end"),
    ("DELETE", "/v1/endpoints/{}", "end"),
    ("GET", "/v1/endpoints/{}/secret", "end"),
    ("POST", "/v1/endpoints/{}/rotate-secret", "end"),
    ("POST", "/v1/endpoints/{}/enable", "end"),
    ("POST", "/v1/endpoints/{}/disable", "end"),
    ("GET", "/v1/deliveries/{}", "dlv"),
    ("POST", "/v1/deliveries/{}/retry", "dlv"),
    ("POST", "/v1/deliveries/{}/cancel", "dlv"),
    ("POST", "/v1/endpoints/{}/ping", "end"),
    ("GET", "/v1/dead-letters/{}", "dlv"),
    ("POST", "/v1/dead-letters/{}/redrive", "dlv"),
    ("GET", "/v1/jobs/{}", "job"),
    ("POST", "/v1/jobs/{}/cancel", "job"),
]


RESTS = ["_1", "_01", "_xyz", "_1A", "_ffffffffffffffff", "", "_%00", "_1%0a", "_%ff", "_1.2", "_" + "9" * 999]


@pytest.mark.parametrize(("method", "path", "prefix"), ACTIONS)
def test_what_is_not_there_is_404(client: httpx.Client, method: str, path: str, prefix: str) -> None:
    for rest in RESTS:
        is_problem(client.request(method, path.format(prefix + rest)), 404, "not-found")


@pytest.mark.parametrize(("method", "path", "prefix"), [each for each in ACTIONS if each[0] == "POST"])
def test_an_action_takes_no_members(client: httpx.Client, method: str, path: str, prefix: str) -> None:
    url = path.format(f"{prefix}_1")
    is_problem(client.post(url, json={"force": True}), 422, "invalid")
    is_problem(client.post(url, content=b"{", headers=JSON), 400, "not-json")
    is_problem(client.post(url, content=b"{}"), 415, "not-declared")
    is_problem(client.post(url, content=b"{}", headers=JSON), 404, "not-found")


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/events", "/v1/events/", "/v1/events/evt_1/x", "/v1/jobs2", "/%2e%2e/etc"]
)
def test_an_unknown_path_is_404(client: httpx.Client, path: str) -> None:
    is_problem(client.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/events", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/reservations", "GET, HEAD, POST"),
        ("POST", "/v1/endpoints/end_1", "DELETE, GET, HEAD, PATCH"),
        ("HEAD", "/v1/endpoints/end_1/enable", "POST"),
        ("GET", "/v1/reservations/rsv_1/confirm", "POST"),
        ("DELETE", "/v1/deliveries", "GET, HEAD"),
        ("POST", "/v1/dead-letters", "GET, HEAD"),
        ("PUT", "/v1/dead-letters/redrive", "POST"),
        ("PUT", "/v1/dead-letters/dlv_1", "GET, HEAD"),
        ("PUT", "/v1/jobs/job_1/cancel", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_ones(
    client: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    if method != "HEAD":
        is_problem(answer, 405, "wrong-method")


LISTS = [*PATHS.values(), "/v1/deliveries", "/v1/dead-letters", "/v1/jobs"]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/limit"),
        ("limit=501", "/limit"),
        ("limit=-1", "/limit"),
        ("limit=many", "/limit"),
        ("limit=", "/limit"),
        ("limit=%2B5", "/limit"),
        ("limit=1_0", "/limit"),
        ("limit=5.0", "/limit"),
        ("limit=%205", "/limit"),
        ("limit=%D9%A5", "/limit"),
        ("limit=" + "9" * 5000, "/limit"),
        ("limit=5&limit=5", "/limit"),
        ("cursor=&cursor=", "/cursor"),
        ("status=held&status=confirmed", "/status"),
        ("limit=5&stauts=a&stauts=b", "/stauts"),
        ("cursor=", "/cursor"),
        ("cursor=nonsense", "/cursor"),
        ("cursor=%00", "/cursor"),
        ("cursor=%ff", "/cursor"),
        ("cursor=cmVzZXJ2YXRpb25zLjk5OTk5OTk5OTk5OTk5OTk5OTk", "/cursor"),
        ("cursor=" + "A" * 5000, "/cursor"),
        ("stauts=held", "/stauts"),
        ("status=nonsense", "/status"),
        ("resource=%00", "/resource"),
    ],
)
def test_a_query_that_is_wrong_is_422(client: httpx.Client, path: str, query: str, pointer: str) -> None:
    problem = is_problem(client.get(f"{path}?{query}"), 422, "invalid")
    assert problem["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("/v1/deliveries", "/event_id"),
        ("/v1/deliveries", "/endpoint_id"),
        ("/v1/dead-letters", "/endpoint_id"),
    ],
)
@pytest.mark.parametrize("id", ["", "nonsense", "1", "dlv_1", "end_", "evt_", "end_0", "evt_1.", "end_1%00"])
def test_an_id_in_a_filter_that_nothing_can_have_is_422(client: httpx.Client, path: str, pointer: str, id: str) -> None:
    problem = is_problem(client.get(f"{path}?{pointer[1:]}={id}"), 422, "invalid")
    assert problem["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("numbers", [(0,), (0, 0), (5, 2**63 - 1), (2**63 - 1, 2**63 - 1)])
def test_a_cursor_that_nobody_has_given_out_is_no_fault(
    client: httpx.Client, path: str, numbers: tuple[int, ...]
) -> None:
    """Of this list, but with as many numbers as another's."""
    answer = client.get(path, params={"cursor": cursor(path.removeprefix("/v1/"), *numbers)})
    assert answer.status_code in (200, 422), answer.text


def test_a_type_of_problem_explains_itself(client: httpx.Client) -> None:
    problem = client.get("/v1/events/nonsense").json()
    explained = client.get(problem["type"]).json()
    assert (explained["type"], explained["title"]) == (problem["type"], problem["title"])
    is_problem(client.get("/problems/nonsense"), 404, "not-found")
