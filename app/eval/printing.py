"""The report as people read it at a terminal."""

from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from app.eval.report import Destination, FaultReport, Report

WIDE = 120
NARROW = 100  # columns; what is narrower gets a list instead of a table
SHORT = {
    "lost_effects": "lost",
    "duplicate_effects_deduplicating": "twice",
    "duplicates_per_event_naive": "twice, naive",
    "abandoned_by_leases": "abandoned",
    "oldest_due_seconds": "oldest due",
    "acceptance_p50_seconds": "p50",
    "acceptance_p95_seconds": "p95",
    "acceptance_p99_seconds": "p99",
    "recovery_seconds": "recovery",
}


def print_report(report: Report, console: Console | None = None) -> None:
    """On standard output: tables first, the verdict last."""
    out = console or Console(highlight=False)
    if not out.is_terminal:
        out.width = max(out.width, WIDE)  # a file has room
    out.print(Text(f"duehook {report.version} on {report.installation}, tenant {report.tenant}"))
    if report.faults:
        out.print(_figures(report.faults) if out.width >= NARROW else _listed(report.faults))
        out.print(_destinations(report.faults, out.width >= NARROW))
    for reason in dict.fromkeys(each.reason for each in report.not_run):
        names = ", ".join(each.name for each in report.not_run if each.reason == reason)
        out.print(Text(f"- Not run: {names}; {reason}."), style="yellow")
    problems = report.problems()
    for problem in problems:
        out.print(Text.assemble(("✗ ", "bold red"), problem))
    if not problems and report.faults:
        out.print(Text.assemble(("✓ ", "bold green"), _verdict(report)))


def _verdict(report: Report) -> str:
    left_out = f", {len(report.not_run)} not run" if report.not_run else ""
    return f"{len(report.faults)} faults in {report.seconds:g} s{left_out}: every figure is within its threshold."


def shown(figure: str, value: float | None) -> str:
    """A figure with its unit; a dash when there was nothing to measure."""
    if value is None:
        return "-"
    return f"{value:,.2f} s" if figure.endswith("_seconds") else f"{value:,.6g}"


def _figures(faults: Sequence[FaultReport]) -> Table:
    table = Table(title="What came of it", title_justify="left")
    table.add_column("fault", overflow="fold")
    for heading in SHORT.values():
        table.add_column(heading, justify="right")
    for fault in faults:
        bad = {check.figure for check in fault.checks if not check.is_fine}
        cells = [Text(shown(name, fault.figures[name]), style="bold red" if name in bad else "") for name in SHORT]
        table.add_row(Text(fault.name), *cells)
    return table


def _listed(faults: Sequence[FaultReport]) -> Group:
    """For a narrow terminal: a line for each figure that is not 0."""
    lines: list[Text] = []
    for fault in faults:
        lines.append(Text(fault.name, style="bold"))
        lines += [Text(f"  {SHORT[name]}: {shown(name, fault.figures[name])}") for name in SHORT if fault.figures[name]]
    return Group(*lines)


def _destinations(faults: Sequence[FaultReport], is_wide: bool) -> Table:
    table = Table(title="By destination", title_justify="left")
    for heading in ("fault", "receiver", "effects", "attempts", "ends") if is_wide else ("receiver", "effects", "ends"):
        table.add_column(heading, overflow="fold")
    for fault in faults:
        if not is_wide:
            table.add_row(Text(fault.name, style="bold"), "", "")
        for place, (name, each) in enumerate(fault.destinations.items()):
            cells = (name, effects_of(each), counted(each.outcomes), counted(each.ends))
            row = ("" if place else fault.name, *cells) if is_wide else (cells[0], cells[1], cells[3])
            table.add_row(*map(Text, row))
        table.add_section()
    return table


def effects_of(each: Destination) -> str:
    """Such as `40 of 40` and what is wrong with them."""
    happened = each.expected_effects - each.lost_effects
    more = f", {each.duplicate_effects} twice" if each.duplicate_effects else ""
    return f"{happened} of {each.expected_effects}{more}"


def counted(counts: Mapping[str, int]) -> str:
    """Such as `40 delivered, 3 unknown`."""
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "-"
