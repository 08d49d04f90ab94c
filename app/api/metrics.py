"""`/metrics`: the ledger's state, and what all processes of this host have counted."""

import socket
import threading
import time
from collections.abc import Iterable
from datetime import timedelta

from fastapi import APIRouter, Request
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import broker, metrics
from app.api.problems import NO_KEY, ProblemError
from app.core import status
from app.core.status import Status
from app.core.wakeups import SILENT
from app.ledger import processes
from app.ledger.database import UNDONE
from app.metrics import PREFIX, Samples
from app.runtime import Runtime

FRESH = 2.0  # seconds that a reading of the ledger serves all who ask: a look at 100,000 due rows is no small one
PATIENCE = 1.0  # seconds for the broker to answer
_BROKER_UP = "Whether the broker answers."
router = APIRouter(include_in_schema=False)


@router.get("/metrics")
def read(request: Request) -> Response:
    """In the text format of Prometheus. Without a database only that there is none."""
    token = request.app.state.runtime.settings.metrics_token
    if not metrics.allowed(request.headers.get("authorization"), token and token.get_secret_value()):
        raise ProblemError(NO_KEY, "DUEHOOK_METRICS_TOKEN is set: send it as a bearer token")
    samples, families = request.app.state.reading.latest()
    return Response(metrics.exposition(samples, families), media_type=metrics.CONTENT_TYPE)


class Reading:
    """The ledger as it was read within the last moments; who asks while somebody reads gets what he finds."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._until = 0.0
        self._read: tuple[list[Samples], list[Metric]] = ([], [])

    def latest(self) -> tuple[list[Samples], list[Metric]]:
        """What the processes have counted, and the gauges of the ledger."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._read = self._look()
                self._until = time.monotonic() + FRESH
            return self._read

    def _look(self) -> tuple[list[Samples], list[Metric]]:
        samples, families = self._ledger()
        return samples, [*families, *self._broker()]

    def _ledger(self) -> tuple[list[Samples], list[Metric]]:
        engine = self._runtime.engine
        try:
            found = status.read(engine, lease=self._runtime.settings.lease)
            with engine.begin() as connection:
                samples = processes.counted(connection, socket.gethostname(), SILENT)
        except UNDONE:
            return [], [_gauge("ledger_up", "Whether the database answers.", 0)]
        return samples, [_gauge("ledger_up", "Whether the database answers.", 1), *_families(found)]

    def _broker(self) -> Iterable[Metric]:
        """Nothing of one that is not set; of RabbitMQ only whether it answers, for it has metrics of its own."""
        url = self._runtime.settings.broker_url
        if url is None:
            return
        if not broker.is_redis(url.get_secret_value()):
            yield _gauge("broker_up", _BROKER_UP, broker.answers(url.get_secret_value(), PATIENCE))
            return
        store = broker.store(url.get_secret_value(), PATIENCE)
        yield _gauge("broker_up", _BROKER_UP, store is not None)
        if store is None:
            return
        yield _gauge("broker_used_bytes", "Memory that Redis uses.", store.used_bytes)
        yield _gauge("broker_evicted_keys", "Keys that Redis has thrown away: must be none.", store.evicted_keys)
        yield _gauge("broker_held", "Messages that workers hold.", store.held)
        waiting = GaugeMetricFamily(f"{PREFIX}broker_waiting", "Messages that wait, by lane.", labels=["lane"])
        for lane, number in store.waiting.items():
            waiting.add_metric([lane.value], number)
        yield waiting


def _families(found: Status) -> Iterable[Metric]:
    yield _gauge(
        "reservation_oldest_due_age_seconds",
        "How long the oldest reservation that is due has been so without being expired; alert on it.",
        _seconds(found.oldest_reservation),
    )
    yield _gauge(
        "delivery_oldest_due_age_seconds",
        "How long the oldest event or delivery that is due has been so without being sent; alert on it.",
        _seconds(found.oldest_delivery),
    )
    yield _gauge(
        "outbox_oldest_due_age_seconds",
        "How long the oldest row of the outbox has waited for somebody to notice it.",
        _seconds(found.oldest_look),
    )
    backlog = GaugeMetricFamily(
        f"{PREFIX}backlog", "What is due and not done, by lane; 100,000 is that or more.", labels=["lane"]
    )
    for lane, count in found.backlog.items():
        backlog.add_metric([lane.value], count.number)
    yield backlog
    yield _gauge("leased", "Deliveries whose lease runs.", found.in_flight.number)
    yield _gauge("parked", "Deliveries that wait for a slot of their endpoint: not overdue.", found.parked.number)
    yield _gauge("dead_letters", "Dead letters there are; beyond 100,000 an estimate.", found.dead.number)
    repairs = CounterMetricFamily(
        f"{PREFIX}repairs", "What the audit of the ledger had to mend, by kind: stays at zero.", labels=["kind"]
    )
    for kind, number in found.repairs.items():
        repairs.add_metric([kind], number)
    yield repairs
    share = GaugeMetricFamily(f"{PREFIX}share", "Per cent of the work that each adapter notices.", labels=["adapter"])
    for adapter, part in found.shares.items():
        share.add_metric([adapter.value], part)
    yield share
    yield from _fleet(found)
    yield _gauge("database_connections", "Connections of the database server in use.", found.connections.used)
    yield _gauge("database_connections_most", "Connections that programs may open.", found.connections.most)


def _fleet(found: Status) -> Iterable[Metric]:
    there = GaugeMetricFamily(f"{PREFIX}processes", "Processes that work on this ledger, by role.", labels=["role"])
    for role, number in found.fleet.roles().items():
        there.add_metric([role], number)
    yield there
    yield _gauge("processes_silent", "Processes that said nothing lately: dead or cut off.", len(found.fleet.silent))
    unready = sum(each.unready is not None for each in found.fleet.there)
    yield _gauge("processes_unready", "Processes that take no work just now.", unready)
    offsets = [abs(each.clock_offset.total_seconds()) for each in found.fleet.there]
    yield _gauge(
        "clock_offset_seconds",
        "How far the clock of a process's host is off the database's, at most; beyond a second it takes no work.",
        max(offsets, default=0.0),
    )


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, documentation, value=value)


def _seconds(age: timedelta | None) -> float:
    return 0.0 if age is None else age.total_seconds()


class Timed:
    """Measures each request by its route, not its path: ids must not become labels."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status_code = time.monotonic(), 500

        async def sending(message: Message) -> None:
            nonlocal status_code
            if message["type"] == "http.response.start":
                status_code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            route = f"{_method(scope)} {getattr(scope.get('route'), 'path', '')}".rstrip()
            metrics.REQUESTS.labels(route, f"{status_code // 100}xx").observe(time.monotonic() - began)


def _method(scope: Scope) -> str:
    """Of a route that there is; what a stranger calls his method must not become a label."""
    return str(scope["method"]) if scope.get("route") is not None else "none"
