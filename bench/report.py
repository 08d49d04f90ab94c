"""What a run of the benchmarks found."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from bench.expiry import Expiry
from bench.lateness import Lateness
from bench.machine import Machine
from bench.plan import Plan
from bench.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Round:
    """One of each measure: a backlog, scheduled work, work that is due at once, expiries at one instant."""

    throughput: Throughput
    scheduled: Lateness
    immediate: Lateness
    expiry: Expiry


@dataclass(frozen=True, slots=True)
class Report:
    """`median` is taken figure by figure; `rounds` are what it is taken of."""

    command: str
    plan: Plan
    machine: Machine
    versions: Mapping[str, str]
    median: Round
    rounds: list[Round]

    def to_json(self) -> str:
        """With the names used here."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def problems(self) -> Iterator[str]:
        """What makes the figures worthless: something was lost, or came twice although nothing had failed."""
        for number, one in enumerate(self.rounds, 1):
            for name, measure in (("a backlog", one.throughput), ("scheduled work", one.scheduled)):
                yield from _wrong(number, name, measure.lost, measure.repeated)
            yield from _wrong(number, "immediate work", one.immediate.lost, one.immediate.repeated)
            yield from _wrong(number, "expiry", one.expiry.lost + one.expiry.not_expired, one.expiry.repeated)


def _wrong(number: int, name: str, lost: int, repeated: int) -> Iterator[str]:
    if lost or repeated:
        yield f"Round {number}, {name}: {lost} lost, {repeated} repeated."
