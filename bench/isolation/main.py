"""`duehook bench isolation`: what two bad endpoints cost the good ones."""

import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from app.local.up.stop import interrupt_on_signals
from bench.isolation import parked, plan
from bench.isolation.plan import Plan
from bench.isolation.printing import print_report
from bench.isolation.report import Report, Round
from bench.isolation.run import measure as measure_run
from bench.machine import this_machine
from bench.main import warm_up
from bench.output import STDOUT, write
from bench.rounds import median_of
from bench.stage import Stage, standing_stage

T = TypeVar("T")


class Stages:
    """One after the other, all alike; `versions` are those of what takes part."""

    def __init__(self, wanted: Plan) -> None:
        self._wanted = wanted
        self.versions: dict[str, str] = {}

    def on_a_new_one(self, measured: Callable[[Stage], T]) -> T:
        """What is measured on a stage of its own; what is in the air at the end of it is cut."""
        with (
            tempfile.TemporaryDirectory(prefix="duehook-bench-") as home,
            standing_stage(Path(home), plan.everybody(self._wanted)) as stage,
        ):
            self.versions = stage.versions
            warm_up(stage, plan.fast(self._wanted))
            try:
                return measured(stage)
            finally:
                stage.service.kill()


def run(wanted: Plan, *, json: Path | None = None) -> None:
    """Measure and print; `json` is a file for all figures, `-` for standard output instead of tables.

    Exits with 1 when anything was lost or repeated, not for a goal that is missed. Raises LocalServiceError, one
    sentence, when it can't be measured. Nothing is left running or lying about, whatever happens.
    """
    interrupt_on_signals()
    if json is not None:
        write("", json)  # found out now, not after minutes of measuring
    report = measure(wanted, Console(stderr=True, highlight=False))
    if json != STDOUT:
        print_report(report)
    if json is not None:
        write(report.to_json(), json)
    if any(report.problems()):
        sys.exit(1)


def measure(wanted: Plan, progress: Console) -> Report:
    """Rounds whose two runs change their order, each run on a stage of its own: nothing of the bad ones is left."""
    machine = this_machine()
    stages, rounds = Stages(wanted), []
    for number in range(1, wanted.rounds + 1):
        runs = {}
        for beside in sorted((False, True), reverse=number % 2 == 0):
            progress.print(f"Round {number} of {wanted.rounds}, {'beside the bad endpoints' if beside else 'alone'}.")
            runs[beside] = stages.on_a_new_one(partial(measure_run, plan=wanted, beside=beside))
        rounds.append(Round(alone=runs[False], beside=runs[True]))
    waiting = None
    if wanted.parked:
        progress.print(f"{wanted.parked:,} deliveries to the hanging endpoint, left alone.")
        waiting = stages.on_a_new_one(partial(parked.measure, plan=wanted))
    command = shlex.join(["duehook", *sys.argv[1:]])
    return Report(command, wanted, machine, stages.versions, median_of(rounds), rounds, waiting)
