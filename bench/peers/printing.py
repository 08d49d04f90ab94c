"""The report as people read it."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.peers.report import Report, Spread
from bench.printing import machine_line, table_of

WIDTH = 110
KINDS = ("workers", "relay", "postgres", "redis")


def print_report(report: Report) -> None:
    """On standard output."""
    console = Console(highlight=False, width=WIDTH)
    console.print(machine_line(report.machine, report.versions), soft_wrap=True)
    console.print(f"{report.command}: medians of {report.plan.rounds} rounds; of ratios also lowest and highest.\n")
    console.print(_costs(report))
    console.print(_rates(report))
    for sentence in report.left_out:
        console.print(sentence, soft_wrap=True)
    for problem in report.problems():
        console.print(f"[bold red]✗[/] {problem}")


def _costs(report: Report) -> Table:
    table = table_of("CPU seconds per 1,000", "sending", "× duehook", *KINDS, "accepting", "× duehook", "sink")
    for each in report.results:
        of, against = each.median, each.against
        kinds = [f"{of.cpu[kind]:.3f}" if kind in of.cpu else "" for kind in KINDS]
        sending = [f"{of.sending:.3f}", _times(against.sending)]
        accepting = [f"{of.accepting:.3f}", _times(against.accepting)]
        table.add_row(each.title, *sending, *kinds, *accepting, f"{of.cpu['sink']:.3f}")
    return table


def _rates(report: Report) -> Table:
    columns = ("per second", "duehook is", "accepted/s", "handed in", "sent", "missing", "repeated", "others' cores")
    table = table_of(f"A backlog of signed 1 KB deliveries, for at most {report.plan.window:g} s", *columns)
    for each in report.results:
        of = each.median
        counts = [_total([getattr(one, name) for one in each.rounds]) for name in ("missing", "repeated")]
        rates = [f"{of.per_second:,.0f}", _times(each.against.per_second, " ×"), f"{of.accepted_per_second:,.0f}"]
        table.add_row(each.title, *rates, f"{of.deliveries:,}", f"{of.sent:,.0f}", *counts, f"{of.others:.2f}")
    return table


def _total(counts: Sequence[int]) -> str:
    return f"{sum(counts):,}"


def _times(ratio: Spread, unit: str = "") -> str:
    if ratio.lowest == ratio.highest:
        return f"{ratio.median:.2f}{unit}"
    return f"{ratio.median:.2f}{unit} ({ratio.lowest:.2f}–{ratio.highest:.2f})"
