"""`duehook bench accept`: how fast the API takes events, and what a flood of one tenant costs the others."""

import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from app.local.up.stop import interrupt_on_signals
from bench.accept.plan import Plan
from bench.accept.printing import print_report
from bench.accept.report import Report
from bench.accept.run import measure as measure_round
from bench.accept.run import warm_up
from bench.accept.stage import standing_stage
from bench.machine import this_machine
from bench.output import STDOUT, write
from bench.rounds import median_of


def run(plan: Plan, *, json: Path | None = None) -> None:
    """Measure and print; `json` is a file for all figures, `-` for standard output instead of tables.

    A goal that is missed is told and is no failure. Raises LocalServiceError, one sentence, when it can't be
    measured. Nothing is left running or lying about, whatever happens.
    """
    interrupt_on_signals()
    if json is not None:
        write("", json)  # found out now, not after minutes of measuring
    report = measure(plan, Console(stderr=True, highlight=False))
    if json != STDOUT:
        print_report(report)
    if json is not None:
        write(report.to_json(), json)


def measure(plan: Plan, progress: Console) -> Report:
    """All rounds on one stage."""
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="duehook-bench-") as home:
        progress.print("Starting PostgreSQL and the API.")
        with standing_stage(Path(home), plan.tenants, plan.endpoints) as stage:
            warm_up(stage)
            rounds = []
            for number in range(1, plan.rounds + 1):
                progress.print(f"Round {number} of {plan.rounds}.")
                rounds.append(measure_round(stage, plan))
    command = shlex.join(["duehook", *sys.argv[1:]])
    return Report(command, plan, machine, stage.versions, median_of(rounds), rounds)
