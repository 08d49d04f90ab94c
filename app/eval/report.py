"""What the evaluation found out, and what of it is not good enough."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from app.demo.report import Lag


@dataclass(frozen=True, slots=True)
class Destination:
    """One receiver during one fault: its own ledger's effects, and the sender's records of it.

    `answers` as the receiver gave them, `outcomes` of attempts and `ends` of deliveries as the sender recorded them; a
    dead delivery's end has its reason.
    """

    deduplicates: bool
    expected_effects: int
    effects: int
    duplicate_effects: int
    lost_effects: int
    unexpected_effects: int
    signatures_rejected: int
    answers: Mapping[str, int]
    outcomes: Mapping[str, int]
    ends: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Check:
    """One figure against its threshold; `value` is None when there was nothing to measure."""

    figure: str
    value: float | None
    limit: float

    @property
    def is_fine(self) -> bool:
        """Whether it is not above the limit."""
        return self.value is not None and self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds since the trial began; ages in seconds, 0 when nothing is due."""

    at: float
    reservation: float
    delivery: float
    open: int


@dataclass(frozen=True, slots=True)
class FaultReport:
    """`began_fault` and `ended_fault` in seconds since the trial began; `missed` when it could not be brought about."""

    name: str
    title: str
    happened: Sequence[str]
    hits: int
    missed: str | None
    settled: bool
    seconds: float
    began_fault: float | None
    ended_fault: float | None
    events: int
    reservations: int
    destinations: Mapping[str, Destination]
    acceptance: Lag | None
    figures: Mapping[str, float | None]
    checks: Sequence[Check]
    samples: Sequence[Sample]

    def problems(self) -> Iterator[str]:
        """A sentence for each thing that is not right."""
        if self.missed:
            yield f"{self.name} did not come about: {self.missed}."
        elif not self.hits:
            yield f"{self.name} came about, and hit nothing."
        if not self.settled:
            yield f"{self.name}: something was still open after {self.seconds:g} s."
        for check in self.checks:
            if not check.is_fine:
                value = "nothing to measure" if check.value is None else f"{check.value:g}"
                yield f"{self.name}: {check.figure} is {value}, and may be {check.limit:g} at most."


@dataclass(frozen=True, slots=True)
class NotRun:
    """A fault that was left out, and why."""

    name: str
    title: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """All of it; `faults` in the order in which they were run."""

    installation: str
    tenant: str
    version: str
    began_at: str
    seconds: float
    lease_seconds: float
    deadline_seconds: float
    faults: Sequence[FaultReport]
    not_run: Sequence[NotRun]

    def problems(self) -> list[str]:
        """A sentence for each thing that is not right; none when all is good enough."""
        return [problem for fault in self.faults for problem in fault.problems()]

    def to_json(self) -> str:
        """All of it, and whether it is right."""
        problems = self.problems()
        return json.dumps({"right": not problems, "problems": problems, **asdict(self)}, indent=2)
