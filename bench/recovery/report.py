"""What a run of the recovery benchmark found."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.expiry import Expiry
from bench.goal import Goal
from bench.machine import Machine
from bench.recovery.effects import Faults
from bench.recovery.plan import Plan
from bench.recovery.watch import Sample
from bench.spread import Spread
from bench.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Drain:
    """How fast what was overdue was caught up with.

    The first of it was done `first_after` seconds after the processes were started, all of them were ready after
    `ready_after`; everything else is from that first moment on. `deliveries` is what was recorded until the last of
    the overdue was, fresh work and the news of expiries too. `cpu` is CPU seconds per 1,000 deliveries since all were
    ready, what the expiries cost included; `of_steady_by_cpu` compares these, which others at work on the machine
    distort less than rates. `others` is how many cores those kept busy. After `others_after` all that was overdue of
    tenants without a flood was done.
    """

    first_after: float
    ready_after: float
    seconds: float
    deliveries: int
    deliveries_per_second: float
    of_steady: float
    of_steady_by_cpu: float
    others_after: float
    expired_after: float
    expired_per_second: float
    cpu: Mapping[str, float]
    others: float


@dataclass(frozen=True, slots=True)
class Lags:
    """Milliseconds of fresh work meanwhile.

    Events from their commit to the first byte at the sink, of the tenant whose flood it is and of the others;
    reservations from their end until expired, and from then to the first byte that tells of it: this news waits
    behind that of the tenant's overdue expiries, which is as fresh and goes to the same endpoint.
    """

    flooded: Spread
    others: Spread
    expired: Spread
    told_flooded: Spread
    told_others: Spread


@dataclass(frozen=True, slots=True)
class Use:
    """The most that was seen in use, and what the settings allow."""

    most: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A sample, `at` seconds after the processes were started, and what of the overdue was left."""

    at: float
    reservations_left: int
    deliveries_left: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class Report:
    """`lags_over_time` are (seconds after the start, milliseconds) of every piece of fresh work."""

    command: str
    plan: Plan
    machine: Machine
    versions: Mapping[str, str]
    fill_seconds: float
    steady: Throughput
    drain: Drain
    lags: Lags
    faults: Faults
    connections: Mapping[str, Use]
    sockets: Mapping[str, Use]
    instant: Expiry
    moments: Sequence[Moment]
    lags_over_time: Mapping[str, Sequence[tuple[float, float]]]

    def goals(self) -> list[Goal]:
        """What recovery should be like; a machine that is too slow or has others to serve may miss them."""
        lags = {
            "fresh events of the flooded tenant, p99 ms": self.lags.flooded,
            "fresh events of others, p99 ms": self.lags.others,
            "fresh reservations expired, p99 ms": self.lags.expired,
        }
        uses = {f"connections of {name}": use for name, use in self.connections.items()}
        uses |= {f"sockets of {name}": use for name, use in self.sockets.items()}
        return [
            Goal("deliveries per second, of the steady rate", self.drain.of_steady, 0.8, at_least=True),
            *(Goal(what, spread.p99, 2_000.0) for what, spread in lags.items()),
            Goal("reservations at one instant expired, p99 ms", self.instant.expired.p99, 1_500.0),
            *(Goal(what, use.most, use.allowed) for what, use in uses.items()),
        ]

    def to_json(self) -> str:
        """With the names used here."""
        goals = [{**asdict(goal), "met": goal.met} for goal in self.goals()]
        return json.dumps({**asdict(self), "goals": goals}, indent=2) + "\n"

    def problems(self) -> Iterator[str]:
        """What is wrong whatever the machine: something was lost, or came twice although nothing had failed."""
        one, steady = self.instant, self.steady
        counts = {
            "The recovery": (self.faults.lost, self.faults.repeated),
            "The steady backlog": (steady.lost, steady.repeated),
            "Expiries at one instant": (one.lost + one.not_expired, one.repeated),
        }
        for name, (lost, repeated) in counts.items():
            if lost or repeated:
                yield f"{name}: {lost} lost, {repeated} repeated."
