"""The report as people read it."""

from rich.console import Console
from rich.table import Table

from bench.isolation.parked import Parked
from bench.isolation.report import Report
from bench.printing import WIDTH, machine_line, table_of


def print_report(report: Report) -> None:
    """On standard output."""
    console = Console(highlight=False, width=WIDTH)
    console.print(machine_line(report.machine, report.versions))
    console.print(f"{report.command}: medians of {len(report.rounds)} rounds.\n")
    console.print(_lags(report))
    console.print(_cores(report))
    if report.parked is not None:
        console.print(_parked(report.parked))
    for goal in report.goals():
        mark = "[green]✓[/]" if goal.met else "[yellow]✗[/]"
        console.print(f"{mark} {goal.what}: {goal.value:,g}, at most {goal.bound:,g}")
    problems = list(report.problems())
    for problem in problems:
        console.print(f"[bold red]✗[/] {problem}")
    if not problems:
        console.print("[green]✓[/] Nothing was lost, nothing came twice.")


def _lags(report: Report) -> Table:
    plan, ratios = report.plan, report.ratios()
    title = f"Milliseconds, {plan.endpoints} fast endpoints at {plan.rate:g}/s, {plan.expiries:g} expiries/s"
    table = table_of(title, "alone p50", "p99", "beside p50", "p99", "p99 ratio")
    for what, (alone, beside) in report.lags().items():
        figures = (alone.p50, alone.p99, beside.p50, beside.p99)
        table.add_row(what, *(f"{value:,.1f}" for value in figures), f"{ratios[what]:,.2f}")
    return table


def _cores(report: Report) -> Table:
    plan, alone, beside = report.plan, report.median.alone, report.median.beside
    table = table_of("Cores kept busy", "alone", "beside")
    for group, used in alone.cpu.items():
        table.add_row(group, f"{used:.3f}", f"{beside.cpu[group]:.3f}")
    table.add_row("something else on this machine", f"{alone.others:.2f}", f"{beside.others:.2f}")
    for manner, due in (("slow", plan.slow), ("hanging", plan.hanging)):
        table.add_row(
            f"attempts at the {manner} endpoint, {due:,} due",
            f"{alone.attempts[manner]:,g}",
            f"{beside.attempts[manner]:,g}",
        )
    return table


def _parked(parked: Parked) -> Table:
    settled = "never settled" if parked.settled_after is None else f"settled after {parked.settled_after:g} s"
    title = f"{parked.deliveries:,} due to the hanging endpoint, {settled}"
    table = table_of(title, "without", "with")
    for group, used in parked.without.items():
        table.add_row(f"CPU seconds in {parked.idle:g} s: {group}", f"{used:.2f}", f"{parked.beside[group]:.2f}")
    return table
