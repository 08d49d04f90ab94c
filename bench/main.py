"""`duehook bench`: build a stage, measure in rounds, print, tear down."""

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from app.local.up.stop import interrupt_on_signals
from bench import expiry, lateness, throughput
from bench.machine import this_machine
from bench.output import STDOUT, write
from bench.plan import Plan
from bench.printing import print_report
from bench.report import Report, Round
from bench.rounds import median_of
from bench.stage import Stage, standing_stage
from bench.subscribers import Subscription, expiries, orders


def run(plan: Plan, *, json: Path | None = None) -> None:
    """Measure and print; `json` is a file for all figures, `-` for standard output instead of tables.

    Exits with 1 when anything was lost or repeated. Raises LocalServiceError, one sentence, when it can't be
    measured. Nothing is left running or lying about, whatever happens.
    """
    interrupt_on_signals()
    if json is not None:
        write("", json)  # found out now, not after minutes of measuring
    report = measure(plan)
    if json != STDOUT:
        print_report(report)
    if json is not None:
        write(report.to_json(), json)
    if any(report.problems()):
        sys.exit(1)


def measure(plan: Plan) -> Report:
    """All rounds on one stage."""
    machine = this_machine()
    progress = Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="duehook-bench-") as home:
        progress.print("Starting PostgreSQL, Redis, relay, workers and a sink.")
        wanted = orders(plan.endpoints)
        with standing_stage(Path(home), [*wanted, expiries()]) as stage:
            warm_up(stage, wanted)
            rounds = []
            for number in range(1, plan.rounds + 1):
                progress.print(f"Round {number} of {plan.rounds}.")
                rounds.append(_round(stage, plan, wanted))
    command = shlex.join(["duehook", *sys.argv[1:]])
    return Report(command, plan, machine, stage.versions, median_of(rounds), rounds)


def warm_up(stage: Stage, wanted: Sequence[Subscription]) -> None:
    """So that no measure is the one in which connections, plans and keys are first made."""
    throughput.measure(stage, 5 * len(wanted), wanted)


def _round(stage: Stage, plan: Plan, wanted: Sequence[Subscription]) -> Round:
    return Round(
        throughput.measure(stage, plan.deliveries, wanted),
        lateness.measure(stage, wanted, rate=plan.rate, seconds=plan.seconds, ahead=plan.ahead),
        lateness.measure(stage, wanted, rate=plan.rate, seconds=plan.seconds, ahead=0.0),
        expiry.measure(stage, plan.expiries),
    )
