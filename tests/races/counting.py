"""How many orders were tried: a line at the end of every run of the tests, and with EVERY_ORDER or -vv a table."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

Counted = tuple[str, Sequence[str], Sequence[int]]  # scene, actions, and the numbers of `Orders`


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The workers of pytest-xdist send what their tests counted with the reports of these."""
    counted = sorted(_counted(terminalreporter), key=lambda each: each[2][0], reverse=True)
    if not counted:
        return
    tried, same, steps, waited, deadlocks = (sum(numbers[n] for *_, numbers in counted) for n in range(5))
    pairs = sum(len(actions) == 2 for _, actions, _ in counted)
    if os.environ.get("EVERY_ORDER") or terminalreporter.verbosity > 0:
        _table(terminalreporter, counted)
    terminalreporter.write_line(
        f"orders: {tried:,} of {pairs} pairs and {len(counted) - pairs} triples"
        f" ({same:,} more were the same as one of these); {waited:,} of {steps:,} steps waited for a lock;"
        f" {deadlocks} deadlocks were run again"
    )


def _counted(reporter: pytest.TerminalReporter) -> Iterator[Counted]:
    for report in reporter.getreports("passed") + reporter.getreports("failed"):
        properties: dict[str, Any] = dict(getattr(report, "user_properties", ()))
        if report.when == "call" and "orders" in properties:
            scene, actions, numbers = properties["orders"]
            yield scene, actions, numbers


def _table(reporter: pytest.TerminalReporter, counted: Sequence[Counted]) -> None:
    reporter.write_line(f"{'orders':>8} {'same':>7} {'waited':>7} {'again':>6}  who")
    for scene, actions, (tried, same, _, waited, deadlocks) in counted:
        reporter.write_line(f"{tried:8,} {same:7,} {waited:7,} {deadlocks:6}  {scene}: {', '.join(actions)}")
