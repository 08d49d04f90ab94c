"""The report as people read it."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.report import Report, Round
from bench.spread import Spread

WIDTH = 100


def print_report(report: Report) -> None:
    """On standard output."""
    console = Console(highlight=False, width=WIDTH)
    console.print(machine_line(report.machine, report.versions))
    console.print(f"{report.command}: medians of {len(report.rounds)} rounds, lowest and highest beside them.\n")
    console.print(_rates(report))
    console.print(_cpu(report))
    console.print(_times(report))
    for problem in report.problems():
        console.print(f"[bold red]✗[/] {problem}")


def _rates(report: Report) -> Table:
    table = table_of("Backlog of signed 1 KB deliveries", "median", "lowest", "highest")
    rows = {
        "deliveries per second, from commit to last record": [r.throughput.per_second for r in _all(report)],
        "events accepted per second, one statement": [r.throughput.accepted_per_second for r in _all(report)],
        "cores busy with something else meanwhile": [r.throughput.others for r in _all(report)],
    }
    for name, (median, *rounds) in rows.items():
        table.add_row(name, *(f"{value:,g}" for value in (median, min(rounds), max(rounds))))
    return table


def _cpu(report: Report) -> Table:
    table = table_of("CPU seconds per 1,000 deliveries", "median", "lowest", "highest")
    for group in report.median.throughput.cpu:
        median, *rounds = (each.throughput.cpu[group] for each in _all(report))
        table.add_row(group, *(f"{value:.3f}" for value in (median, min(rounds), max(rounds))))
    return table


def _times(report: Report) -> Table:
    plan, median = report.plan, report.median
    table = table_of("Milliseconds, medians of the rounds", "p50", "p95", "p99", "most")
    spreads: Mapping[str, Spread] = {
        f"scheduled {plan.ahead:g} s ahead at {median.scheduled.per_second:.0f}/s, due to first byte": (
            median.scheduled.milliseconds
        ),
        f"due at once at {median.immediate.per_second:.0f}/s, commit to first byte": median.immediate.milliseconds,
        f"{plan.expiries:,} reservations at one instant, expired": median.expiry.expired,
        f"{plan.expiries:,} reservations at one instant, subscriber told": median.expiry.told,
    }
    for name, spread in spreads.items():
        table.add_row(name, *(f"{value:,.1f}" for value in (spread.p50, spread.p95, spread.p99, spread.most)))
    return table


def _all(report: Report) -> list[Round]:
    return [report.median, *report.rounds]


def machine_line(machine: Machine, versions: Mapping[str, str]) -> str:
    """What the figures were measured on."""
    return (
        f"{machine.cores} cores of {machine.model}, {machine.memory_gb:g} GB, Linux {machine.kernel},"
        f" load {machine.load:g} before. Python {versions['python']}, PostgreSQL {versions['postgres']},"
        f" {versions['redis']}, Celery {versions['celery']}."
    )


def table_of(title: str, *columns: str) -> Table:
    """Names on the left, figures on the right."""
    table = Table(title=title, title_justify="left")
    table.add_column()
    for column in columns:
        table.add_column(column, justify="right")
    return table
