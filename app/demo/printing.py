"""The report as people read it."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from app.demo.report import Lag, Report

WIDEST = 110


def print_report(report: Report) -> None:
    """On standard output: tables first, the verdict last."""
    console = Console(highlight=False)
    console.width = min(max(console.width, 100), WIDEST)
    console.print(_receivers(report))
    console.print(_lags(report))
    console.print(_numbers(report))
    for problem in report.problems():
        console.print(f"[bold red]✗[/] {problem}")
    if not report.problems():
        console.print(
            f"[bold green]✓[/] Every business effect happened exactly once, after {report.seconds:g} s and four faults."
        )


def _receivers(report: Report) -> Table:
    table = Table(title="Receivers, from their own ledgers", title_justify="left")
    table.add_column("")
    for name in report.receivers:
        table.add_column(name, justify="right")
    rows = {
        "attempts received": [str(each.requests) for each in report.receivers.values()],
        "  answered as": [_counts(each.answers) for each in report.receivers.values()],
        "attempts recorded by the sender": [_counts(each.outcomes) for each in report.receivers.values()],
        "effects due": [str(each.expected_effects) for each in report.receivers.values()],
        "duplicates received": [str(each.duplicates_received) for each in report.receivers.values()],
        "duplicate effects": [str(each.duplicate_effects) for each in report.receivers.values()],
        "lost effects": [str(each.lost_effects) for each in report.receivers.values()],
    }
    for name, values in rows.items():
        table.add_row(name, *values)
    return table


def _counts(counts: Mapping[str, int]) -> str:
    return "\n".join(f"{number} {name}" for name, number in sorted(counts.items())) or "-"


def _lags(report: Report) -> Table:
    table = Table(title="Lags", title_justify="left")
    for heading in ("", "p50", "p95", "p99", "most"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, lag in (("expiry", report.reservations.expiry_lag), ("delivery", report.delivery_lag)):
        table.add_row(name, *_seconds(lag))
    return table


def _seconds(lag: Lag | None) -> list[str]:
    if lag is None:
        return ["-"] * 4
    return [f"{value * 1000:,.0f} ms" for value in (lag.p50, lag.p95, lag.p99, lag.most)]


def _numbers(report: Report) -> Table:
    found = report.reservations
    table = Table(title="Reservations and repairs, from the database", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, number in (
        ("held", found.held),
        ("confirmed", found.confirmed),
        ("expired", found.expired),
        ("confirms that came too late", found.confirms_too_late),
        ("confirmed, yet expired", found.confirmed_yet_expired),
        ("not confirmed, and not expired exactly once", found.not_expired_once),
        ("claims of a dead worker that another took over", report.repairs.claims_taken_over),
        ("roles with a process started again", report.repairs.roles_restarted),
        ("repairs by the audit", report.repairs.audit_repairs),
    ):
        table.add_row(name, str(number))
    return table
