"""What a run found: medians of each, and how they compare with the product."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.machine import Machine
from bench.peers.plan import Plan
from bench.peers.turn import Figures
from bench.rounds import median_of

BASE = "duehook"


@dataclass(frozen=True, slots=True)
class Spread:
    """Of the rounds."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Each figure how many times better the product's is: less CPU time to send or to accept, more per second."""

    sending: Spread
    accepting: Spread
    per_second: Spread


@dataclass(frozen=True, slots=True)
class Result:
    """`median` is taken figure by figure, a ratio round by round, for the machine changes between rounds."""

    name: str
    title: str
    versions: Mapping[str, str]
    median: Figures
    against: Comparison
    rounds: Sequence[Figures]


@dataclass(frozen=True, slots=True)
class Report:
    """The product's is the first of the results."""

    command: str
    plan: Plan
    machine: Machine
    versions: Mapping[str, str]
    order: Sequence[Sequence[str]]
    left_out: Sequence[str]
    results: Sequence[Result]

    def to_json(self) -> str:
        """With the names used here."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def problems(self) -> Iterator[str]:
        """What the product did wrong; a peer's missing or repeated deliveries are a finding."""
        for number, one in enumerate(self.results[0].rounds, 1):
            if one.missing or one.repeated:
                yield f"Round {number}: duehook has {one.missing} missing, {one.repeated} repeated."


def comparison(product: Sequence[Figures], other: Sequence[Figures]) -> Comparison:
    """Of the same rounds."""
    pairs = list(zip(product, other, strict=True))
    return Comparison(
        sending=_spread([each.sending / ours.sending for ours, each in pairs]),
        accepting=_spread([each.accepting / ours.accepting for ours, each in pairs]),
        per_second=_spread([ours.per_second / each.per_second for ours, each in pairs]),
    )


def result(
    name: str, title: str, versions: Mapping[str, str], rounds: Sequence[Figures], product: Sequence[Figures]
) -> Result:
    """Of one contestant, against the product."""
    return Result(name, title, versions, median_of(rounds), comparison(product, rounds), rounds)


def _spread(ratios: Sequence[float]) -> Spread:
    return Spread(*(round(each, 2) for each in (median(ratios), min(ratios), max(ratios))))
