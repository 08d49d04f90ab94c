"""`duehook bench recovery`: a day's work is overdue when the service comes back."""

import importlib.util
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from app.local.errors import LocalServiceError
from app.local.up.stop import interrupt_on_signals
from bench import expiry, throughput
from bench.cpu import machine_seconds
from bench.machine import this_machine
from bench.main import warm_up
from bench.output import STDOUT, write
from bench.recovery import findings, plan
from bench.recovery.cohort import Cohort, fill
from bench.recovery.effects import effects
from bench.recovery.findings import Run
from bench.recovery.fresh import Fresh, fresh_work
from bench.recovery.plan import Plan
from bench.recovery.printing import print_report
from bench.recovery.report import Report
from bench.recovery.watch import Watch, watching
from bench.rounds import median_of
from bench.stage import Stage, standing_stage
from bench.throughput import Throughput

SLOWEST = 100.0  # of what is overdue, per second, that is waited for
CALM = 2.0  # nothing is due for longer than that: what was overdue is done
LOOK_SECONDS = 0.1
NO_PLOT = "There will be no plot: it needs matplotlib, which `pip install -c constraints.txt -e '.[bench]'` brings."


def run(wanted: Plan, *, json: Path | None = None, plot: Path | None = None) -> None:
    """Measure and print; `json` is a file for all figures, `-` for standard output instead of tables.

    Exits with 1 when anything was lost or repeated, not for a goal that is missed. Raises LocalServiceError, one
    sentence, when it can't be measured. Nothing is left running or lying about, whatever happens.
    """
    interrupt_on_signals()
    progress = Console(stderr=True, highlight=False)
    if plot is not None and not importlib.util.find_spec("matplotlib"):
        progress.print(NO_PLOT, markup=False, soft_wrap=True)
        plot = None
    for file in (json, plot):
        if file is not None:
            write("", file)  # found out now, not after minutes of measuring
    report = measure(wanted, progress)
    if json != STDOUT:
        print_report(report)
    if json is not None:
        write(report.to_json(), json)
    if plot is not None:
        from bench.recovery.plot import draw

        draw(report, plot)
    if any(report.problems()):
        sys.exit(1)


def measure(wanted: Plan, progress: Console) -> Report:
    """Steady, stop, fill, start, catch up; then the expiries at one instant, and steady again.

    Before and after, for the speed of a machine that others use changes by more than what is to be shown.
    """
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="duehook-bench-") as home:
        progress.print("Starting PostgreSQL, Redis, relay, workers and a sink.")
        with standing_stage(Path(home), plan.subscriptions()) as stage:
            warm_up(stage, [*plan.flooded(), *plan.others()])
            before = _steady(stage, wanted, progress)
            stage.service.stop()
            progress.print(f"Stopped. {wanted.deliveries:,} deliveries and {wanted.expiries:,} expiries fall due.")
            since, cohort = stage.now(), fill(stage.connection, wanted)
            progress.print(f"Written in {cohort.seconds:g} s. Starting again.")
            caught_up = _catch_up(stage, wanted, cohort, since)
            progress.print(f"{wanted.instant:,} reservations end at one instant.")
            instant = expiry.measure(stage, wanted.instant)
            steady = _both(before, _steady(stage, wanted, progress))
    lags = findings.lags_of(caught_up)
    pids = stage.service.pids
    return Report(
        command=shlex.join(["duehook", *sys.argv[1:]]),
        plan=wanted,
        machine=machine,
        versions=stage.versions,
        fill_seconds=cohort.seconds,
        steady=steady,
        drain=findings.drain(caught_up, steady),
        lags=findings.lags(lags),
        faults=caught_up.effects.faults,
        connections=findings.connections(caught_up.samples, pids),
        sockets=findings.sockets(caught_up.samples, list(pids)),
        instant=instant,
        moments=findings.moments(caught_up),
        lags_over_time=findings.over_time(caught_up, lags),
    )


def _steady(stage: Stage, wanted: Plan, progress: Console) -> Throughput:
    progress.print(f"The steady rate, with {wanted.steady:,} deliveries, {wanted.steady_expiries:,} of expiries.")
    return throughput.measure(stage, wanted.steady, plan.mixed(), wanted.steady_expiries)


def _both(before: Throughput, after: Throughput) -> Throughput:
    mean: Throughput = median_of([before, after])
    return replace(mean, lost=before.lost + after.lost, repeated=before.repeated + after.repeated)


def _catch_up(stage: Stage, wanted: Plan, cohort: Cohort, since: float) -> Run:
    patience = 60 + (len(cohort.events) + len(cohort.reservations)) / SLOWEST
    with watching(stage) as watch:
        started = time.time()
        stage.service.start()
        ready, before, machine = time.time(), stage.cpu(), machine_seconds()
        with fresh_work(stage, wanted) as fresh:
            _wait_until_calm(watch, fresh, ready + wanted.seconds, patience)
        stage.settle(patience)
    cpu = {group: seconds - before[group] for group, seconds in stage.cpu().items()}
    busy, seconds = machine_seconds() - machine, time.time() - ready
    others = round((busy - sum(cpu.values())) / seconds, 2)
    return Run(started, ready, cpu, others, cohort, fresh, watch.samples, effects(stage, since, cohort, fresh))


def _wait_until_calm(watch: Watch, fresh: Fresh, not_before: float, patience: float) -> None:
    until = time.monotonic() + patience
    while watch.oldest > CALM or time.time() < not_before:
        fresh.check()
        watch.paced.check()
        if time.monotonic() > until:
            raise LocalServiceError(f"Not caught up after {patience:g} s: something is {watch.oldest:.0f} s overdue.")
        time.sleep(LOOK_SECONDS)
