"""One run: fast endpoints and expiries at a steady rate, with or without the two bad endpoints beside them."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from app.local.errors import LocalServiceError
from bench.cpu import machine_seconds
from bench.expiry import ends_of
from bench.isolation.plan import HANGING, SLOW, Plan, fast
from bench.lateness import INSERT as EVENT
from bench.paced import Paced
from bench.spread import Spread, spread_of
from bench.stage import LOOK_SECONDS, Stage
from bench.subscribers import TENANT, Subscription

HELD = 2.0  # seconds from hold to end
PATIENCE = 60.0
RESERVATION = """INSERT INTO duehook.reservations (tenant, resource, expires_at)
                 VALUES (%s, 'seat', duehook.now() + make_interval(secs => %s))
                 RETURNING seq, extract(epoch FROM expires_at)::float8"""
BACKLOG = """INSERT INTO duehook.events (tenant, type, data)
             SELECT %s, %s, '{"order":1}' FROM generate_series(1, %s)"""
BAD = "SELECT seq FROM duehook.endpoints WHERE event_types = ARRAY[%s]::text[]"
IN_THE_AIR = "SELECT FROM duehook.deliveries WHERE endpoint = %s AND attempt > 0 LIMIT 1"
ATTEMPTS = "SELECT coalesce(sum(attempt), 0)::integer FROM duehook.deliveries WHERE endpoint = %s"
OPEN = "SELECT FROM duehook.outbox WHERE kind <> 'endpoint' AND NOT coalesce(endpoint, 0) = ANY (%s) LIMIT 1"


@dataclass(frozen=True, slots=True)
class Run:
    """Milliseconds of `rate` events a second from due to first byte, and of reservations from their end.

    `expired` by the ledger's own times, `told` by the first byte at the subscriber. `cpu` is cores kept busy by each
    group of processes meanwhile, `others` by everything else on the machine. `attempts` at the bad endpoints.
    """

    rate: float
    fast: Spread
    expired: Spread
    told: Spread
    cpu: Mapping[str, float]
    others: float
    attempts: Mapping[str, int]
    lost: int
    repeated: int


@dataclass(slots=True)
class Work:
    """When each event was due and each reservation ended, in seconds since 1970."""

    events: dict[str, float] = field(default_factory=dict)
    reservations: dict[int, float] = field(default_factory=dict)


def measure(stage: Stage, plan: Plan, *, beside: bool) -> Run:
    """`beside`: with the backlog of the bad endpoints, once both of them have been tried."""
    seqs = {each.manner: seq_of(stage, each) for each in (SLOW, HANGING)}
    if beside:
        fill(stage, SLOW, plan.slow)
        fill(stage, HANGING, plan.hanging)
        for each in seqs.values():
            _wait_until_tried(stage, each)
    busy, cpu, began = machine_seconds(), stage.cpu(), time.monotonic()
    with _coming(stage, plan) as work:
        time.sleep(plan.seconds)
    seconds = time.monotonic() - began
    used = {group: (after - cpu[group]) / seconds for group, after in stage.cpu().items()}
    others = (machine_seconds() - busy) / seconds - sum(used.values())
    _settle(stage, list(seqs.values()))
    return _figures(stage, work, seconds, seqs, used, others)


def seq_of(stage: Stage, whose: Subscription) -> int:
    """The endpoint's number in the ledger."""
    return int(stage.connection.execute(BAD, [whose.type]).fetchall()[0][0])


def fill(stage: Stage, whose: Subscription, number: int, at_once: int = 10_000) -> None:
    """So many events that are due now to this endpoint alone."""
    for first in range(0, number, at_once):
        stage.connection.execute(BACKLOG, [TENANT, whose.type, min(at_once, number - first)])


def _wait_until_tried(stage: Stage, endpoint: int) -> None:
    until = time.monotonic() + PATIENCE
    while not stage.connection.execute(IN_THE_AIR, [endpoint]).rowcount:
        if time.monotonic() > until:
            raise LocalServiceError(f"A bad endpoint was not tried within {PATIENCE:g} s.")
        time.sleep(LOOK_SECONDS)


@contextmanager
def _coming(stage: Stage, plan: Plan) -> Iterator[Work]:
    """Until the block ends, over two connections of its own."""
    work, whose = Work(), fast(plan)
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(psycopg.connect(stage.database_url, autocommit=True, application_name="duehook bench"))
            for _ in range(2)
        )
        stack.enter_context(Paced(plan.rate, lambda number: _post(one, work, whose[number % len(whose)])))
        stack.enter_context(Paced(plan.expiries, lambda _: _hold(other, work)))
        yield work


def _post(connection: psycopg.Connection[Any], work: Work, target: Subscription) -> None:
    event, due = connection.execute(EVENT, [target.tenant, target.type, 0.0]).fetchall()[0]
    work.events[event] = due


def _hold(connection: psycopg.Connection[Any], work: Work) -> None:
    seq, ends = connection.execute(RESERVATION, [TENANT, HELD]).fetchall()[0]
    work.reservations[seq] = ends


def _settle(stage: Stage, bad: list[int]) -> None:
    """Until nothing is open but what is for the bad endpoints; what is still open after a while counts as lost."""
    until = time.monotonic() + PATIENCE
    while stage.connection.execute(OPEN, [bad]).rowcount and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def _figures(
    stage: Stage, work: Work, seconds: float, seqs: Mapping[str, int], cpu: Mapping[str, float], others: float
) -> Run:
    ends = ends_of(stage, list(work.reservations))
    at = {end.event: end.at for end in ends}
    received = stage.receiver.received({*work.events, *at})
    fast_lags = (came - work.events[event] for event, came in received.first.items() if event in work.events)
    told = (came - at[event] for event, came in received.first.items() if event in at)
    return Run(
        round(len(work.events) / seconds, 1),
        spread_of(fast_lags),
        spread_of(end.at - work.reservations[end.reservation] for end in ends),
        spread_of(told),
        {group: round(used, 3) for group, used in cpu.items()},
        round(others, 2),
        {manner: stage.connection.execute(ATTEMPTS, [seq]).fetchall()[0][0] for manner, seq in seqs.items()},
        lost=received.lost + len(work.reservations) - len(ends),
        repeated=received.repeated,
    )
