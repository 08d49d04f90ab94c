"""What a broker message must be for a worker to act on it: told from its bytes, before Celery acts on any of them.

Celery trusts a message's form: a missing field drops it, ends the worker, or has it reconnect and meet the same
message again. Here a message is one that this service writes, or it is poison.
"""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from celery.app.task import Context
from celery.utils.time import maybe_iso8601
from kombu.utils.json import loads

from app.broker import AUDIT, TASK
from app.core.poison import PoisonReason

WITH_IDS = frozenset(TASK.values())
WITHOUT = frozenset({AUDIT})
WRAPPED = "application/x-duehook-poison"
FAR = 24 * 3600.0  # seconds: nothing is published this long before it is due, and a timer can't hold for ever
BIGINT = 2**63
MOST_IDS = 1_000  # of one wake-up, which no publisher of ours comes near: acting on it must take no time to speak of
LONGEST_ID = 255  # characters; logs and events repeat it
EMBEDDED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
EMPTY = ("stamped_headers", "compression")
# Celery makes attributes of all headers, also in the place of these.
METHODS = frozenset(name for name in dir(Context) if callable(getattr(Context, name)))
NO_MESSAGE = "it is no message of Celery's for this queue"
NOT_ABOUT_IDS = "its arguments are not two lists of as many 64-bit integers, a thousand at most"


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why nobody can act on it."""

    reason: PoisonReason
    error: str
    task: str | None = None


def flaw_of(raw: bytes, lane: str, visible: float = 0.0, now: float | None = None) -> Flaw | None:
    """What is wrong with a message that came out of this lane; None when a task of ours can have it.

    `now`: by the ledger's clock; by this host's, if that is off, a good message could be too far away. `visible`:
    seconds until the broker delivers again what is not acknowledged. An ETA beyond it would never come: each new
    delivery starts the wait anew, and the worker holds one copy more.
    """
    try:
        envelope = loads(raw)  # kombu's own, which makes more than JSON of some objects
    except Exception as error:  # noqa: BLE001 - it calls what the bytes name; whatever comes of that, it comes to kombu too
        return Flaw(PoisonReason.UNDECODABLE, f"it is not JSON ({type(error).__name__})")
    match envelope:
        case {
            "body": str(body),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": dict(headers),
            "properties": {
                "delivery_tag": str(),
                "delivery_info": {"exchange": "", "routing_key": str(queue)},
                "body_encoding": "base64",
                "priority": 0,
            },
        } if queue == lane:
            return _flaw_of_task(headers, body, (time.time() if now is None else now) + visible)
        case _:
            return Flaw(PoisonReason.UNDECODABLE, NO_MESSAGE)


def _flaw_of_task(headers: Mapping[str, object], body: str, latest: float) -> Flaw | None:
    task = headers.get("task")
    try:
        payload = loads(base64.b64decode(body))
    except Exception as error:  # noqa: BLE001 - as above
        name = task if isinstance(task, str) else None
        return Flaw(PoisonReason.UNDECODABLE, f"its body is not JSON in base64 ({type(error).__name__})", name)
    if not isinstance(task, str):
        return Flaw(PoisonReason.UNKNOWN, "it names no task")
    if task not in WITH_IDS and task not in WITHOUT:
        return Flaw(PoisonReason.UNKNOWN, "it names a task that is none of ours", task)
    wrong = _error_in_headers(headers, latest) or _error_in_payload(payload, task, latest + FAR)
    return Flaw(PoisonReason.MALFORMED, wrong, task) if wrong else None


def _error_in_headers(headers: Mapping[str, object], latest: float) -> str | None:
    if not isinstance(headers.get("id"), str) or len(str(headers["id"])) > LONGEST_ID:
        return "it has no id, or one that is too long"
    limits = headers.get("timelimit") not in (None, [None, None])
    if limits or any(headers.get(name) for name in EMPTY) or not METHODS.isdisjoint(headers):
        return "its headers ask for what wake-ups don't"
    for name, last in (("eta", latest), ("expires", float("inf"))):
        if (value := headers.get(name)) is not None and not 0 < _moment(value) <= last:
            return f"its {name} is no time, or too far away"
    return None


def _moment(value: object) -> float:
    """Seconds since 1970; 0 when it is no moment."""
    try:
        moment = maybe_iso8601(value) if isinstance(value, str) else None
        return float(moment.timestamp()) if moment and moment.tzinfo else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _error_in_payload(payload: object, task: str, latest: float) -> str | None:
    match payload:
        case [list(args), dict(kwargs), dict(embedded)] if not kwargs and embedded == EMBEDDED:
            return _error_in_arguments(args, task, latest)
        case _:
            return "its body is not arguments alone"


def _error_in_arguments(args: list[object], task: str, latest: float) -> str | None:
    match args:
        case [] if task in WITHOUT:
            return None
        case [list(ids), list(dues)] if task in WITH_IDS and len(ids) == len(dues) <= MOST_IDS:
            # No bool, which is an int to Python.
            if not all(type(each) is int and -BIGINT <= each < BIGINT for each in (*ids, *dues)):
                return NOT_ABOUT_IDS
            return "an id is due too far away" if any(due > latest * 1e6 for due in dues) else None
        case _:
            return NOT_ABOUT_IDS if task in WITH_IDS else "it has arguments"


def envelope_of(message: Any) -> bytes:
    """A message of AMQP in the form that kombu gives it on Redis, where its parts have no form of their own."""
    body = message.body if isinstance(message.body, bytes) else str(message.body).encode(errors="surrogatepass")
    info = message.delivery_info
    envelope = {
        "body": base64.b64encode(body).decode(),
        "content-type": message.content_type,
        "content-encoding": message.content_encoding,
        "headers": message.headers,
        "properties": {
            "delivery_tag": "",
            "delivery_info": {"exchange": info["exchange"], "routing_key": info["routing_key"]},
            "body_encoding": "base64",
            "priority": 0,
        },
    }
    return json.dumps(envelope, default=repr).encode()


def wrapped(raw: bytes, lane: str) -> bytes:
    """`raw` as the body of a sound message that no task is for: it can be unacknowledged and delivered again."""
    properties = {
        "delivery_tag": str(uuid4()),
        "delivery_info": {"exchange": "", "routing_key": lane},
        "body_encoding": "base64",
        "priority": 0,
    }
    envelope = {
        "body": base64.b64encode(raw).decode(),
        "content-type": WRAPPED,
        "content-encoding": "binary",
        "headers": {},
        "properties": properties,
    }
    return json.dumps(envelope).encode()


def unwrapped(item: bytes) -> bytes:
    """What `wrapped` was given, however often; anything else as it is."""
    while WRAPPED.encode() in item:
        try:
            match loads(item):
                case {"content-type": str(kind), "body": str(body)} if kind == WRAPPED:
                    item = base64.b64decode(body, validate=True)
                case _:
                    break
        except Exception:  # noqa: BLE001 - as above
            break
    return item
