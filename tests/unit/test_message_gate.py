"""The gate at a worker's queues: what it keeps out, and that Celery can run whatever it lets through."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest
from celery.app.task import Context
from celery.app.trace import build_tracer, fast_trace_task, setup_worker_optimizations
from celery.worker import state
from celery.worker.consumer import Consumer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kombu.transport.virtual.base import Base64, Message

from app import settings as settings_of
from app.broker import AUDIT, TASK, make_celery
from app.core.poison import PoisonReason
from tests.messages import EMBEDDED, HEADERS, POISON, PROPERTIES, SOUND, envelope, wakeup
from workers.message import flaw_of, unwrapped, wrapped
from workers.transport import Client

LONG = 60.0  # seconds of visibility


@pytest.mark.parametrize(("raw", "reason"), POISON.items(), ids=lambda each: repr(each)[:40])
def test_what_nobody_can_act_on_is_kept_out(raw: bytes, reason: PoisonReason) -> None:
    flaw = flaw_of(raw, "delivery", LONG)
    assert flaw is not None
    assert flaw.reason is reason


@pytest.mark.parametrize("raw", SOUND)
def test_what_the_service_writes_is_let_through(raw: bytes) -> None:
    assert flaw_of(raw, "delivery", LONG) is None


@pytest.mark.parametrize("raw", [*POISON, *SOUND], ids=lambda each: repr(each)[:40])
def test_what_is_wrapped_comes_out_as_it_was_and_celery_restores_it_to_its_lane(raw: bytes) -> None:
    item = wrapped(wrapped(raw, "delivery"), "delivery")
    assert unwrapped(item) == raw
    assert json.loads(item)["properties"]["delivery_info"] == {"exchange": "", "routing_key": "delivery"}
    assert unwrapped(raw) == raw


def test_an_eta_that_the_broker_would_not_wait_for_is_kept_out() -> None:
    def at(seconds: float) -> bytes:
        return wakeup([], [], eta=(datetime.now(UTC) + timedelta(seconds=seconds)).isoformat())

    assert flaw_of(at(LONG - 5), "delivery", LONG) is None
    assert flaw_of(at(LONG + 5), "delivery", LONG) is not None


class Worker:
    """Celery's own code between a message that came in and the task, without a broker."""

    def __init__(self) -> None:
        self.acted: list[object] = []
        self.celery = make_celery(settings_of.load(broker_url="redis://127.0.0.1:1/0"))
        for name in (*TASK.values(), AUDIT):
            self.celery.task(self._task(name != AUDIT), name=name, bind=False, shared=False)
        setup_worker_optimizations(self.celery, "worker")
        self._consumer = self._stand_in()
        self._receive = Consumer.create_task_handler(self._consumer)
        self._requests: list[Any] = []

    def _task(self, has_ids: bool) -> Callable[..., None]:
        def with_ids(ids: list[int], dues: list[int]) -> None:
            self.acted.append((ids, dues))

        def without() -> None:
            self.acted.append(())

        return with_ids if has_ids else without

    def _stand_in(self) -> Any:
        consumer = MagicMock(app=self.celery, hostname="worker", strategies={}, restart_count=0, on_task_message=set())
        consumer.connection_errors = consumer.conninfo.connection_errors = (OSError,)
        consumer.task_buckets = dict.fromkeys(self.celery.tasks)
        consumer.controller.state.revoked = state.revoked
        consumer.event_dispatcher.send = lambda *args, **fields: json.dumps([args, fields])
        consumer.on_task_request = lambda request: self._requests.append(request)
        consumer.timer.call_at = lambda at, act, args, priority: self._requests.append(args[0])
        for name in (*TASK.values(), AUDIT):
            task = self.celery.tasks[name]
            consumer.strategies[name] = task.start_strategy(self.celery, consumer)
            task.__trace__ = build_tracer(name, task, self.celery.loader, "worker", app=self.celery)
        return consumer

    def act(self, raw: bytes) -> None:
        """Receive a message and run its task; raises what ends a worker, and fails on what drops a message."""
        message = Message(json.loads(raw), channel=MagicMock(decode_body=lambda body, _: Base64().decode(body)))
        message.accept = {"application/json"}
        assert not message.errors
        self._requests.clear()
        self._receive(message)
        refused = {call[0] for call in self._consumer.mock_calls if call[0].startswith("on_")}
        assert not refused
        (request,) = self._requests
        request.execute_using_pool(None)
        failed, answer, _ = fast_trace_task(*self._consumer.pool.apply_async.call_args.kwargs["args"])
        assert not failed, answer


NAMES = [name for name in dir(Context) if not name.startswith("__")]
NAMES += ["args", "kwargs", "callbacks", "errbacks", "chain", "chord", "headers", "properties", "shadow", "stamps"]
TEXTS = [*TASK.values(), AUDIT, "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(TEXTS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A wake-up of the service with anything in place of some of it, and anything besides."""

    def some(of: dict[str, Any]) -> dict[str, Any]:
        fields = st.sampled_from([*of, *NAMES])
        return of | draw(st.dictionaries(fields, VALUES, max_size=2))

    headers = some(HEADERS) | {"expires": None}  # what has expired is dropped by right
    embedded = some(EMBEDDED) if draw(st.integers(0, 5)) == 0 else EMBEDDED
    args = [] if headers["task"] == AUDIT else [[1, 2], [3, 4]]
    return envelope([args, {}, embedded], headers, properties=some(PROPERTIES))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(changed())
def test_celery_runs_whatever_is_let_through(worker: Worker, raw: bytes) -> None:
    if flaw_of(raw, "delivery", LONG) is None:
        worker.act(raw)


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker()


@pytest.mark.parametrize("raw", [b"garbage", wakeup(1, 1), *SOUND], ids=lambda each: repr(each)[:40])
def test_what_was_wrapped_is_judged_anew_when_it_comes_again(raw: bytes) -> None:
    gate = Client(sep="|", visible=LONG, now=time.time, global_keyprefix="")
    item = gate._let_through(wrapped(raw, "delivery"), "delivery")
    assert unwrapped(item) == raw
    assert (item == raw) == (raw in SOUND)
