"""`duehook bench`: build a stage, measure in rounds, print, tear down."""

import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from app.local.errors import LocalServiceError
from app.local.up.stop import interrupt_on_signals
from bench import expiry, lateness, throughput
from bench.machine import this_machine
from bench.plan import Plan
from bench.printing import print_report
from bench.report import Report, Round
from bench.rounds import median_of
from bench.stage import Stage, standing_stage


def run(plan: Plan, *, json: Path | None = None) -> None:
    """Measure and print; `json` is a file for all figures, `-` for standard output instead of tables.

    Exits with 1 when anything was lost or repeated. Raises LocalServiceError, one sentence, when it can't be
    measured. Nothing is left running or lying about, whatever happens.
    """
    interrupt_on_signals()
    if json is not None:
        _write("", json)  # found out now, not after minutes of measuring
    report = measure(plan)
    if json != Path("-"):
        print_report(report)
    if json is not None:
        _write(report.to_json(), json)
    if any(report.problems()):
        sys.exit(1)


def measure(plan: Plan) -> Report:
    """All rounds on one stage."""
    machine = this_machine()
    progress = Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="duehook-bench-") as home:
        progress.print("Starting PostgreSQL, Redis, relay, workers and a sink.")
        with standing_stage(Path(home), endpoints=plan.endpoints) as stage:
            _warm_up(stage, plan)
            rounds = []
            for number in range(1, plan.rounds + 1):
                progress.print(f"Round {number} of {plan.rounds}.")
                rounds.append(_round(stage, plan))
    command = shlex.join(["duehook", *sys.argv[1:]])
    return Report(command, plan, machine, stage.versions, median_of(rounds), rounds)


def _warm_up(stage: Stage, plan: Plan) -> None:
    """So that no round is the one in which connections, plans and keys are first made."""
    throughput.measure(stage, 5 * plan.endpoints, plan.endpoints)


def _round(stage: Stage, plan: Plan) -> Round:
    paced = {"rate": plan.rate, "seconds": plan.seconds}
    return Round(
        throughput.measure(stage, plan.deliveries, plan.endpoints),
        lateness.measure(stage, **paced, ahead=plan.ahead, endpoints=plan.endpoints),
        lateness.measure(stage, **paced, ahead=0.0, endpoints=plan.endpoints),
        expiry.measure(stage, plan.expiries),
    )


def _write(text: str, file: Path) -> None:
    if file == Path("-"):
        print(text, end="")
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LocalServiceError(f"{file} can't be written ({error.strerror}).") from None
