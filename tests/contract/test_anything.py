"""Whatever a client sends, it is never the service's fault."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.served import Api, subscribe
from tests.contract.test_refusals import GOOD, JSON, LISTS, PATHS

NAMES = st.sampled_from(
    [
        "id",
        "resource",
        "hold_seconds",
        "expires_at",
        "exclusive",
        "data",
        "type",
        "key",
        "deliver_at",
        "delay_seconds",
        "url",
        "event_types",
        "description",
        "headers",
        "secret",
        "signing",
        "rate_per_second",
        "max_in_flight",
        "retry_schedule",
        "overlap_seconds",
        "filter",
        "dry_run",
        "since",
        "until",
        "status",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes().map(str)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
BODIES = {**PATHS, "redrive": "/v1/dead-letters/redrive", "replay": "/v1/endpoints/end_1/replay"}
MEMBERS = st.dictionaries(NAMES | st.text(max_size=3), VALUES, max_size=6)
FEW = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[httpx.Client]:
    with api.client("anything") as made:
        yield made


def fine(answer: httpx.Response) -> bool:
    return answer.status_code < 500


@pytest.mark.parametrize("noun", BODIES)
@FEW
@given(members=MEMBERS, good=st.booleans())
def test_members(client: httpx.Client, noun: str, members: dict[str, Any], good: bool) -> None:
    body = json.dumps({**GOOD[noun], **members} if good else members)
    assert fine(client.post(BODIES[noun], content=body, headers=JSON)), body


@FEW
@given(members=MEMBERS)
def test_changes(client: httpx.Client, members: dict[str, Any]) -> None:
    endpoint = f"/v1/endpoints/{subscribe(client)}"
    for method, path in (("PATCH", endpoint), ("POST", f"{endpoint}/rotate-secret")):
        assert fine(client.request(method, path, content=json.dumps(members), headers=JSON)), members


@pytest.mark.parametrize("path", BODIES.values())
@FEW
@given(cut=st.integers(0, 200), other=st.integers(0, 255))
def test_bytes(client: httpx.Client, path: str, cut: int, other: int) -> None:
    noun = next(noun for noun, each in BODIES.items() if each == path)
    body = bytearray(json.dumps({**GOOD[noun], "data": [1, {"a": "\ud800"}]}).encode())
    body[cut % len(body)] = other
    assert fine(client.post(path, content=bytes(body), headers=JSON)), body


@pytest.mark.parametrize("path", LISTS)
@FEW
@given(
    query=st.dictionaries(
        st.sampled_from(["limit", "cursor", "status", "resource", "event_id", "endpoint_id", "tenant", "reason"]),
        st.text(),
    )
)
def test_queries(client: httpx.Client, path: str, query: dict[str, str]) -> None:
    assert fine(client.get(path, params={name: value.encode("utf-8", "replace") for name, value in query.items()})), (
        query
    )


@FEW
@given(key=st.binary(max_size=300).map(lambda key: bytes(each for each in key if each > 0x20 and each != 0x7F)))
def test_keys(client: httpx.Client, key: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"idempotency-key", key)]
    answers = [client.post("/v1/events", content=json.dumps(GOOD["event"]), headers=headers) for _ in range(2)]
    is_right = 1 <= len(key) <= 255 and key.isascii()
    assert [answer.status_code < 300 for answer in answers] == [is_right] * 2, key
    assert ("idempotency-replayed" in answers[1].headers) is is_right
