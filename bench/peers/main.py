"""`duehook bench peers`: everybody in turn, in rounds whose order rotates; print, tear down."""

import importlib.util
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from app.local.up.stop import interrupt_on_signals
from bench.machine import this_machine
from bench.output import STDOUT, write
from bench.peers.contestant import Contestant
from bench.peers.contestants import contestants
from bench.peers.ground import standing_site
from bench.peers.plan import Plan
from bench.peers.printing import print_report
from bench.peers.report import Report, result
from bench.peers.turn import Figures, take

NO_PLOT = "There will be no plot: it needs matplotlib, which `make bench` brings."


def run(plan: Plan, *, only: Sequence[str] = (), json: Path | None = None, plot: Path | None = None) -> None:
    """Measure and print; `only` are names of peers, none for all; `json` is a file for all figures.

    `json` may be `-`, for standard output instead of tables. Exits with 1 when the product lost or repeated anything.
    Raises LocalServiceError when it can't be measured. Nothing is left running or lying about, whatever happens.
    """
    interrupt_on_signals()
    progress = Console(stderr=True, highlight=False)
    if plot is not None and not importlib.util.find_spec("matplotlib"):
        progress.print(NO_PLOT, markup=False, soft_wrap=True)
        plot = None
    for file in (json, plot):
        if file is not None:
            write("", file)  # found out now, not after minutes of measuring
    report = measure(plan, only, progress)
    if json != STDOUT:
        print_report(report)
    if json is not None:
        write(report.to_json(), json)
    if plot is not None:
        from bench.peers.plot import draw

        draw(report, plot)
    if any(report.problems()):
        sys.exit(1)


def names() -> Sequence[str]:
    """Of those that the product can be compared with."""
    return [each.name for each in contestants()[1:]]


def measure(plan: Plan, only: Sequence[str], progress: Console) -> Report:
    """All rounds on one pair of servers; the product always takes part, for it is what the others are compared with."""
    product, *peers = contestants()
    wanted = [each for each in peers if not only or each.name in only]
    taking_part = [product, *(each for each in wanted if not each.lacking)]
    absent = left_out(wanted)
    for sentence in absent:
        progress.print(sentence, markup=False, soft_wrap=True)
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="duehook-bench-") as home, standing_site(Path(home)) as site:
        versions = site.versions()
        figures: dict[str, list[Figures]] = {each.name: [] for each in taking_part}
        orders = [rotated(taking_part, number) for number in range(plan.rounds)]
        for number, order in enumerate(orders, 1):
            for each in order:
                progress.print(f"Round {number} of {plan.rounds}: {each.title}.", markup=False)
                figures[each.name].append(take(each, site, plan))
    base = figures[product.name]
    return Report(
        command=shlex.join(["duehook", *sys.argv[1:]]),
        plan=plan,
        machine=machine,
        versions=versions,
        order=[[each.name for each in order] for order in orders],
        left_out=absent,
        results=[result(each.name, each.title, each.versions(), figures[each.name], base) for each in taking_part],
    )


def rotated(all_: Sequence[Contestant], by: int) -> list[Contestant]:
    """The same order, begun so many later."""
    start = by % len(all_)
    return [*all_[start:], *all_[:start]]


def left_out(wanted: Sequence[Contestant]) -> list[str]:
    """A sentence for all that lack the same."""
    who: dict[str, list[str]] = {}
    for each in wanted:
        if each.lacking:
            who.setdefault(each.lacking, []).append(each.title)
    return [f"{', '.join(titles)} left out for lack of {what}." for what, titles in who.items()]
