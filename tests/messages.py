"""Broker messages: as the service writes them, and in all the ways that no worker can act on."""

import base64
import json
import pickle
from datetime import UTC, datetime, timedelta

from app.broker import AUDIT, TASK
from app.core.poison import PoisonReason
from app.domain.wakeups import Kind

UNDECODABLE, UNKNOWN, MALFORMED, _ = PoisonReason
DELIVER = TASK[Kind.DELIVERY]
SECRET = "correct horse battery"
EMBEDDED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
HEADERS: dict[str, object] = {
    "lang": "py",
    "task": DELIVER,
    "id": "b9c1",
    "shadow": None,
    "eta": None,
    "expires": None,
    "group": None,
    "retries": 0,
    "timelimit": [None, None],
    "root_id": "b9c1",
    "parent_id": None,
    "argsrepr": "[]",
    "kwargsrepr": "{}",
    "origin": "gen1@host",
    "ignore_result": None,
    "replaced_task_nesting": 0,
    "stamped_headers": None,
    "stamps": {},
}
PROPERTIES: dict[str, object] = {
    "correlation_id": "b9c1",
    "reply_to": "8be4",
    "delivery_mode": 2,
    "delivery_info": {"exchange": "", "routing_key": "delivery"},
    "delivery_tag": "5f0e",
    "body_encoding": "base64",
    "priority": 0,
}
FAR = (datetime.now(UTC) + timedelta(days=3000)).isoformat()


def envelope(payload: object, headers: dict[str, object], /, **changes: object) -> bytes:
    """A message with this body in the lane `delivery`; of its other fields, what is given as None is left out."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    whole = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": HEADERS | headers,
        "properties": PROPERTIES,
        **changes,
    }
    return json.dumps({name: value for name, value in whole.items() if value is not None}).encode()


def wakeup(*args: object, kwargs: object = None, embedded: object = EMBEDDED, **headers: object) -> bytes:
    """A call of a task, which is to deliver unless it says otherwise."""
    return envelope([list(args), kwargs or {}, embedded], headers)


def with_properties(**changes: object) -> bytes:
    return envelope(NOTHING_TO_DO, {}, properties=PROPERTIES | changes)


NOTHING_TO_DO = [[[], []], {}, EMBEDDED]
SOUND = [
    wakeup([], []),
    wakeup([-(2**63), 2**63 - 1], [0, -5]),
    wakeup([1], [1], eta="2026-01-01T00:00:00+00:00", expires="9999-12-31T23:59:59-14:00"),
    wakeup([1] * 1000, [1] * 1000, id="x" * 255),
    wakeup([1], [1], retries=0, redelivered=True, traceparent="00-4bf9"),
    wakeup(task=AUDIT, celery_beat_task=True),
]
POISON: dict[bytes, PoisonReason] = {
    b"garbage": UNDECODABLE,
    b"": UNDECODABLE,
    b"5": UNDECODABLE,
    b"null": UNDECODABLE,
    b"[]": UNDECODABLE,
    b"{}": UNDECODABLE,
    b'{"body": 1}': UNDECODABLE,
    b'{"body": "", "properties": {}}': UNDECODABLE,
    b'{"properties": {"__type__": "uuid", "__value__": 5}}': UNDECODABLE,  # kombu would make a UUID of it
    b"\xff\xfe\x00\x80": UNDECODABLE,
    b"[" * 100_000: UNDECODABLE,
    b"x" * 1_000_000: UNDECODABLE,
    b'{"content-type": "application/x-duehook-poison", "body": "="}': UNDECODABLE,
    json.dumps({"password": SECRET, "url": "https://hooks.example/T0/B1/xyz"}).encode(): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, headers=None): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, headers=5): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, headers=["task"]): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, properties=None): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, **{"content-type": None}): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, **{"content-type": "text/klingon"}): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, **{"content-encoding": "klingon"}): UNDECODABLE,
    envelope(pickle.dumps(NOTHING_TO_DO), {}, **{"content-type": "application/x-python-serialize"}): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, body="aGVsb"): UNDECODABLE,
    envelope(NOTHING_TO_DO, {}, body=[1]): UNDECODABLE,
    envelope(b"\xff\xfe", {}): UNDECODABLE,
    envelope(b"not json", {}): UNDECODABLE,
    with_properties(body_encoding="rot13"): UNDECODABLE,
    with_properties(delivery_tag=None): UNDECODABLE,
    with_properties(delivery_tag=["x"]): UNDECODABLE,
    with_properties(delivery_info=None): UNDECODABLE,
    with_properties(delivery_info=[1]): UNDECODABLE,
    with_properties(delivery_info={"exchange": "", "routing_key": "expiry"}): UNDECODABLE,  # would be restored there
    with_properties(delivery_info={"exchange": "nowhere", "routing_key": "delivery"}): UNDECODABLE,  # or nowhere
    with_properties(priority=float("inf")): UNDECODABLE,
    envelope(NOTHING_TO_DO, {"task": "duehook.nothing"}): UNKNOWN,
    envelope(NOTHING_TO_DO, {"task": "\0\ud800"}): UNKNOWN,
    envelope(NOTHING_TO_DO, {"task": [DELIVER]}): UNKNOWN,
    envelope({"task": DELIVER, "id": "1", "args": []}, {}, headers={}): UNKNOWN,  # an older protocol
    envelope([[1], {"token": SECRET}, EMBEDDED], {"task": "somebody.else"}): UNKNOWN,
    wakeup([], [], id=None): MALFORMED,
    wakeup([], [], id=5): MALFORMED,
    wakeup([], [], eta="tomorrow"): MALFORMED,
    wakeup([], [], eta=5): MALFORMED,
    wakeup([], [], eta="2026-01-01T00:00:00"): MALFORMED,
    wakeup([], [], eta="0001-01-01T00:00:00+14:00"): MALFORMED,
    wakeup([], [], eta=FAR): MALFORMED,
    wakeup([], [], expires={}): MALFORMED,
    wakeup([], [], timelimit=[1, 2, 3]): MALFORMED,
    wakeup([], [], stamped_headers=5): MALFORMED,
    wakeup([], [], compression="gzip"): MALFORMED,
    wakeup([], [], _get_custom_headers=5): MALFORMED,
    wakeup(): MALFORMED,
    wakeup([1]): MALFORMED,
    wakeup([1], [1], [1]): MALFORMED,
    wakeup(1, 1): MALFORMED,
    wakeup([1, 2], [1]): MALFORMED,
    wakeup([1] * 1001, [1] * 1001): MALFORMED,  # a worker would do nothing else for as long as they are many
    wakeup([], [], id="x" * 256): MALFORMED,
    wakeup(["1"], [1]): MALFORMED,
    wakeup([True], [1]): MALFORMED,
    wakeup([1.0], [1]): MALFORMED,
    wakeup([None], [1]): MALFORMED,
    wakeup([2**63], [1]): MALFORMED,
    wakeup([-(2**63) - 1], [1]): MALFORMED,
    wakeup([1], [2**63 - 1]): MALFORMED,
    wakeup([1], [1], kwargs={"ids": [1]}): MALFORMED,
    wakeup([1], [1], embedded=EMBEDDED | {"chain": [{"task": DELIVER}]}): MALFORMED,
    wakeup([1], [1], embedded={}, chain=[{"task": DELIVER}]): MALFORMED,
    wakeup([1], [1], embedded=[]): MALFORMED,
    envelope(None, {}): MALFORMED,
    envelope({"args": [], "kwargs": {}}, {}): MALFORMED,
    envelope("args", {}): MALFORMED,
    envelope([1, 2], {}): MALFORMED,
    wakeup([1], task=AUDIT): MALFORMED,
}
