"""One round: single events, lists, and what a tenant that floods the API does to the others."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from bench.accept.client import as_fast_as_it_answers, at_their_times
from bench.accept.flood import flooding
from bench.accept.plan import Plan
from bench.accept.stage import Stage
from bench.cpu import machine_seconds
from bench.spread import Spread, spread_of

BODY_BYTES = 1024
REST = 173  # what a body holds besides its data
EVENT = {"type": "order.placed", "data": {"order": 1, "note": "x" * (BODY_BYTES - REST - 21)}}


@dataclass(frozen=True, slots=True)
class Accepted:
    """`per_second` are events, `milliseconds` is how long each answer took.

    `cpu` is CPU seconds per 1,000 events by group of processes; `others` is how many cores were busy with something
    else meanwhile, the client among it.
    """

    per_second: float
    milliseconds: Spread
    cpu: Mapping[str, float]
    others: float


@dataclass(frozen=True, slots=True)
class Beside:
    """How long the others' answers took while one tenant got `flood` events a second accepted."""

    milliseconds: Spread
    flood: float


@dataclass(frozen=True, slots=True)
class Round:
    """`calm` is what the quiet tenants see alone, `singles_beside` and `lists_beside` while one floods the API so."""

    singles: Accepted
    lists: Accepted
    calm: Spread
    singles_beside: Beside
    lists_beside: Beside


def measure(stage: Stage, plan: Plan) -> Round:
    """All of it, one after the other."""
    one, many = json.dumps(EVENT), json.dumps([EVENT] * plan.batch)
    return Round(
        _accepted(stage, plan, one, 1, plan.connections),
        _accepted(stage, plan, many, plan.batch, plan.batches),
        _quiet(stage, plan),
        _beside(stage, plan, one, 1, plan.flood),
        _beside(stage, plan, many, plan.batch, plan.batches),
    )


def warm_up(stage: Stage) -> None:
    """So that no measure is the one in which connections and plans are first made."""
    targets = [stage.flooder, *stage.quiet]
    at_their_times(targets, json.dumps(EVENT), rate=100.0, seconds=len(targets) / 50)
    as_fast_as_it_answers(stage.flooder, json.dumps([EVENT] * 10), connections=4, seconds=1)


def _accepted(stage: Stage, plan: Plan, body: str, each: int, connections: int) -> Accepted:
    machine, began, before = machine_seconds(), time.monotonic(), stage.cpu()
    took = as_fast_as_it_answers(stage.flooder, body, connections=connections, seconds=plan.seconds)
    seconds, after, busy = time.monotonic() - began, stage.cpu(), machine_seconds() - machine
    events = each * len(took)
    used = {group: after[group] - before[group] for group in after}
    return Accepted(
        per_second=round(events / seconds),
        milliseconds=spread_of(took),
        cpu={group: round(cost / events * 1000, 4) for group, cost in (used | {"total": sum(used.values())}).items()},
        others=round((busy - sum(used.values())) / seconds, 2),
    )


def _quiet(stage: Stage, plan: Plan) -> Spread:
    return spread_of(at_their_times(stage.quiet, json.dumps(EVENT), rate=plan.rate, seconds=plan.seconds))


def _beside(stage: Stage, plan: Plan, body: str, each: int, connections: int) -> Beside:
    with flooding(stage.flooder, body, connections) as flood:
        quiet = _quiet(stage, plan)
    return Beside(quiet, each * flood.per_second)
