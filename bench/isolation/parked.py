"""What deliveries cost that wait for an endpoint which never answers."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from bench.isolation.plan import HANGING, Plan
from bench.isolation.run import fill, seq_of
from bench.stage import LOOK_SECONDS, Stage

CALM = 3.0  # seconds in which all but a few of them were parked: they have settled
FEW = 2  # are tried, now and then
LONGEST = 60.0
LOOSE = """SELECT FROM duehook.deliveries
            WHERE endpoint = %s AND status IN ('scheduled', 'leased') AND NOT parked LIMIT %s"""
GROUPS = ("postgres", "relay", "workers")


@dataclass(frozen=True, slots=True)
class Parked:
    """CPU seconds of `idle` seconds, by group of processes and `total`, without and with them.

    After `settled_after` seconds all but a few of them were parked; None when that never came about, and it was
    measured all the same.
    """

    deliveries: int
    idle: float
    settled_after: float | None
    without: Mapping[str, float]
    beside: Mapping[str, float]


def measure(stage: Stage, plan: Plan) -> Parked:
    """Nothing else goes on."""
    without = _used(stage, plan.idle)
    fill(stage, HANGING, plan.parked)
    settled = _settle(stage, seq_of(stage, HANGING))
    stage.connection.execute("VACUUM (ANALYZE) duehook.events, duehook.deliveries, duehook.outbox")
    return Parked(plan.parked, plan.idle, settled, without, _used(stage, plan.idle))


def _used(stage: Stage, seconds: float) -> dict[str, float]:
    before = stage.cpu()
    time.sleep(seconds)
    after = stage.cpu()
    used = {group: round(after[group] - before[group], 2) for group in GROUPS}
    return used | {"total": round(sum(used.values()), 2)}


def _settle(stage: Stage, endpoint: int) -> float | None:
    began = calm_since = time.monotonic()
    while time.monotonic() < began + LONGEST:
        if stage.connection.execute(LOOSE, [endpoint, FEW + 1]).rowcount > FEW:
            calm_since = time.monotonic()
        elif time.monotonic() > calm_since + CALM:
            return round(calm_since - began, 1)
        time.sleep(LOOK_SECONDS)
    return None
