"""The report as people read it."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.peers.report import Report, Spread
from bench.printing import machine_line, table_of

WIDTH = 106
KINDS = ("workers", "relay", "postgres", "redis")


def print_report(report: Report) -> None:
    """On standard output."""
    console = Console(highlight=False, width=WIDTH)
    console.print(machine_line(report.machine, report.versions), soft_wrap=True)
    console.print(f"{report.command}: medians of {report.plan.rounds} rounds; of ratios also lowest and highest.\n")
    console.print(_costs(report))
    console.print(_rates(report))
    console.print(_accepting(report))
    for sentence in report.left_out:
        console.print(sentence, soft_wrap=True)
    for problem in report.problems():
        console.print(f"[bold red]✗[/] {problem}")


def _costs(report: Report) -> Table:
    table = table_of("CPU seconds per 1,000 sent", "all", "× duehook", *KINDS, "sink")
    for each in report.results:
        of = each.median
        kinds = [f"{of.cpu[kind]:.3f}" if kind in of.cpu else "" for kind in (*KINDS, "sink")]
        table.add_row(each.title, f"{of.sending:.3f}", _times(each.against.sending), *kinds)
    return table


def _rates(report: Report) -> Table:
    columns = ("per second", "duehook is ×", "handed in", "missing", "repeated", "others' cores")
    table = table_of(f"A backlog of signed 1 KB deliveries, for at most {report.plan.window:g} s", *columns)
    for each in report.results:
        of = each.median
        counts = [_total([getattr(one, name) for one in each.rounds]) for name in ("missing", "repeated")]
        rates = [f"{of.per_second:,.0f}", _times(each.against.per_second), f"{of.deliveries:,}"]
        table.add_row(each.title, *rates, *counts, f"{of.others:.2f}")
    return table


def _accepting(report: Report) -> Table:
    table = table_of("Handing in, in bulk", "per second", "CPU seconds per 1,000", "× duehook")
    for each in report.results:
        of = each.median
        table.add_row(
            each.title, f"{of.accepted_per_second:,.0f}", f"{of.accepting:.3f}", _times(each.against.accepting)
        )
    return table


def _total(counts: Sequence[int]) -> str:
    return f"{sum(counts):,}"


def _times(ratio: Spread) -> str:
    if ratio.lowest == ratio.highest:
        return f"{ratio.median:.2f}"
    return f"{ratio.median:.2f} ({ratio.lowest:.2f}–{ratio.highest:.2f})"
