"""What a run of the isolation benchmark found."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.goal import Goal
from bench.isolation.parked import Parked
from bench.isolation.plan import Plan
from bench.isolation.run import Run
from bench.machine import Machine
from bench.spread import Spread

RATIO = 1.2
MILLISECONDS = 20.0  # that may come on top, where these are more
CPU_SECONDS = 0.5  # the same of what costs nothing while it waits


@dataclass(frozen=True, slots=True)
class Round:
    """The same work `alone`, and `beside` the two bad endpoints."""

    alone: Run
    beside: Run


@dataclass(frozen=True, slots=True)
class Report:
    """`median` is taken figure by figure; `rounds` are what it is taken of. `parked` is None when it was left out."""

    command: str
    plan: Plan
    machine: Machine
    versions: Mapping[str, str]
    median: Round
    rounds: Sequence[Round]
    parked: Parked | None

    def ratios(self) -> dict[str, float]:
        """Each p99 beside the bad ones in parts of the one without."""
        return {what: round(beside.p99 / max(0.01, alone.p99), 2) for what, (alone, beside) in self.lags().items()}

    def lags(self) -> dict[str, tuple[Spread, Spread]]:
        """By what is late: alone, and beside the bad ones."""
        alone, beside = self.median.alone, self.median.beside
        return {
            "event at a fast endpoint, due to first byte": (alone.fast, beside.fast),
            "reservation, end to expired": (alone.expired, beside.expired),
            "reservation, expired to first byte that tells of it": (alone.told, beside.told),
        }

    def goals(self) -> list[Goal]:
        """What isolation should be like; a machine that is too slow or has others to serve may miss them."""
        goals = [
            Goal(f"{what}, p99 ms", beside.p99, round(max(alone.p99 * RATIO, alone.p99 + MILLISECONDS), 2))
            for what, (alone, beside) in self.lags().items()
        ]
        if self.parked is not None:
            alone, beside = self.parked.without["total"], self.parked.beside["total"]
            what = f"CPU seconds of {self.parked.idle:g} s with {self.parked.deliveries:,} parked"
            goals.append(Goal(what, beside, round(max(alone * RATIO, alone + CPU_SECONDS), 2)))
        return goals

    def to_json(self) -> str:
        """With the names used here."""
        goals = [{**asdict(goal), "met": goal.met} for goal in self.goals()]
        return json.dumps({**asdict(self), "ratios": self.ratios(), "goals": goals}, indent=2) + "\n"

    def problems(self) -> Iterator[str]:
        """What is wrong whatever the machine: something was lost, or came twice although nothing had failed."""
        for number, each in enumerate(self.rounds, 1):
            for name, run in (("alone", each.alone), ("beside the bad endpoints", each.beside)):
                if run.lost or run.repeated:
                    yield f"Round {number}, {name}: {run.lost} lost, {run.repeated} repeated."
