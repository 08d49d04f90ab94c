"""The report as people read it."""

from rich.console import Console
from rich.table import Table

from bench.accept.report import Report
from bench.printing import WIDTH, machine_line, table_of


def print_report(report: Report) -> None:
    """On standard output."""
    console = Console(highlight=False, width=WIDTH)
    console.print(machine_line(report.machine, report.versions))
    console.print(f"{report.command}: medians of {len(report.rounds)} rounds.\n")
    console.print(_accepted(report))
    console.print(_times(report))
    for goal in report.goals():
        mark = "[green]✓[/]" if goal.met else "[yellow]✗[/]"
        console.print(f"{mark} {goal.what}: {goal.value:,g}, at {'least' if goal.at_least else 'most'} {goal.bound:,g}")


def _accepted(report: Report) -> Table:
    plan, one = report.plan, report.median
    title = f"Events of 1 KB, each for {plan.endpoints} endpoints"
    table = table_of(title, "single", f"lists of {plan.batch:,}")
    singles, lists = one.singles, one.lists
    table.add_row("events per second", f"{singles.per_second:,g}", f"{lists.per_second:,g}")
    for group in singles.cpu:
        table.add_row(f"CPU seconds per 1,000: {group}", f"{singles.cpu[group]:.3f}", f"{lists.cpu[group]:.3f}")
    table.add_row("cores busy with something else meanwhile", f"{singles.others:g}", f"{lists.others:g}")
    return table


def _times(report: Report) -> Table:
    plan, one = report.plan, report.median
    table = table_of("Milliseconds to the answer", "p50", "p95", "p99", "most")
    spreads = {
        f"single events over {plan.connections} connections": one.singles.milliseconds,
        f"lists over {plan.batches} connections": one.lists.milliseconds,
        f"{plan.tenants} tenants at {plan.rate:g}/s together": one.calm,
        f"beside a flood of single events, {one.singles_beside.flood:,.0f}/s": one.singles_beside.milliseconds,
        f"beside a flood of lists, {one.lists_beside.flood:,.0f} events/s": one.lists_beside.milliseconds,
    }
    for name, spread in spreads.items():
        table.add_row(name, *(f"{value:,.1f}" for value in (spread.p50, spread.p95, spread.p99, spread.most)))
    return table
