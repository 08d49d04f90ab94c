"""The report as people read it."""

from rich.console import Console
from rich.table import Table

from bench.printing import WIDTH, machine_line, table_of
from bench.recovery.report import Report


def print_report(report: Report) -> None:
    """On standard output."""
    console = Console(highlight=False, width=WIDTH)
    console.print(machine_line(report.machine, report.versions))
    console.print(f"{report.command}\n")
    for table in (_drain(report), _cpu(report), _lags(report), _oldest(report), _uses(report)):
        console.print(table)
    for goal in report.goals():
        mark = "[green]✓[/]" if goal.met else "[yellow]✗[/]"
        console.print(
            f"{mark} {goal.what}: {goal.value:,g}, {'at least' if goal.at_least else 'at most'} {goal.bound:,g}"
        )
    problems = list(report.problems())
    for problem in problems:
        console.print(f"[bold red]✗[/] {problem}")
    if not problems:
        console.print("[green]✓[/] Nothing was lost, nothing came twice.")


def _drain(report: Report) -> Table:
    plan, drain = report.plan, report.drain
    table = table_of(f"{plan.deliveries:,} deliveries and {plan.expiries:,} expiries overdue", "")
    rows = {
        "seconds from the start of the processes until all were ready": drain.ready_after,
        "seconds from their start until the first of it was done": drain.first_after,
        "seconds from that until all of it was done": drain.seconds,
        "the same for tenants without a flood": drain.others_after,
        "deliveries recorded meanwhile, fresh ones and news of expiries too": drain.deliveries,
        "deliveries per second": drain.deliveries_per_second,
        f"deliveries per second of {plan.steady:,} to the same endpoints, steady": report.steady.per_second,
        "recovery's rate in parts of it": drain.of_steady,
        "the same by CPU time, expiries included": drain.of_steady_by_cpu,
        "seconds from the first until the last reservation was expired": drain.expired_after,
        "expiries per second": drain.expired_per_second,
        "cores busy with something else meanwhile": drain.others,
        "the same while the steady rate was measured": report.steady.others,
    }
    for name, value in rows.items():
        table.add_row(name, f"{value:,g}")
    return table


def _cpu(report: Report) -> Table:
    table = table_of("CPU seconds per 1,000 deliveries", "recovery", "steady")
    for group, cost in report.drain.cpu.items():
        steady = report.steady.cpu
        table.add_row(group, f"{cost:.3f}", f"{steady[group] - (steady['accepting'] if group == 'total' else 0):.3f}")
    return table


def _lags(report: Report) -> Table:
    plan, lags, instant = report.plan, report.lags, report.instant
    table = table_of("Milliseconds", "p50", "p95", "p99", "most")
    spreads = {
        "fresh event of the flooded tenant, to first byte": lags.flooded,
        "fresh event of another, to first byte": lags.others,
        "fresh reservation, end to expired": lags.expired,
        "the flooded tenant told of it": lags.told_flooded,
        "another told of it": lags.told_others,
        f"then {plan.instant:,} reservations at one instant, expired": instant.expired,
        "their subscriber told": instant.told,
    }
    for name, spread in spreads.items():
        table.add_row(name, *(f"{value:,.1f}" for value in (spread.p50, spread.p95, spread.p99, spread.most)))
    return table


def _oldest(report: Report) -> Table:
    """About ten of the moments."""
    table = table_of(
        "Age of the oldest due in seconds, so long after the start",
        "reservation",
        "delivery",
        "reservations",
        "deliveries left",
    )
    for moment in report.moments[:: max(1, len(report.moments) // 10)]:
        table.add_row(
            f"{moment.at:.1f}",
            f"{moment.sample.oldest_reservation:,.1f}",
            f"{moment.sample.oldest_delivery:,.1f}",
            f"{moment.reservations_left:,}",
            f"{moment.deliveries_left:,}",
        )
    return table


def _uses(report: Report) -> Table:
    samples = [moment.sample for moment in report.moments]
    table = table_of("Most in use", "")
    table.add_row("memory of Redis, MB", f"{max(each.broker_bytes for each in samples) / 1e6:,.1f}")
    for lane in samples[0].waiting:
        table.add_row(f"messages waiting for {lane}", f"{max(each.waiting[lane] for each in samples):,}")
    for role in samples[0].resident:
        table.add_row(f"resident memory of a {role}, MB", f"{max(each.resident[role] for each in samples) / 1e6:,.1f}")
    return table
