"""What a run of the accept benchmark found."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.accept.plan import Plan
from bench.accept.run import Round
from bench.goal import Goal
from bench.machine import Machine

SINGLES, LISTS = 500.0, 3_000.0  # events a second
RATIO, MILLISECONDS = 2.0, 50.0  # of the others' p99 beside a flood: times, or more by


@dataclass(frozen=True, slots=True)
class Report:
    """`median` is taken figure by figure; `rounds` are what it is taken of."""

    command: str
    plan: Plan
    machine: Machine
    versions: Mapping[str, str]
    median: Round
    rounds: Sequence[Round]

    def goals(self) -> list[Goal]:
        """What accepting should be like; a machine that is too slow or has others to serve may miss them."""
        one, calm = self.median, self.median.calm.p99
        bound = round(max(calm * RATIO, calm + MILLISECONDS), 2)
        return [
            Goal("single events accepted per second", one.singles.per_second, SINGLES, at_least=True),
            Goal("events accepted per second in lists", one.lists.per_second, LISTS, at_least=True),
            Goal("the others' p99 ms beside a flood of single events", one.singles_beside.milliseconds.p99, bound),
            Goal("the others' p99 ms beside a flood of lists", one.lists_beside.milliseconds.p99, bound),
        ]

    def to_json(self) -> str:
        """With the names used here."""
        goals = [{**asdict(goal), "met": goal.met} for goal in self.goals()]
        return json.dumps({**asdict(self), "goals": goals}, indent=2) + "\n"
