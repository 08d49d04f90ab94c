"""A ground for each test, and how much of it was walked."""

from collections.abc import Iterator

import pytest

from tests.machines.ground import Ground

WALKED: dict[str, Ground] = {}


@pytest.fixture
def ground(database_url: str, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A database that the machines of one test empty again and again."""
    made = Ground(database_url)
    WALKED[request.node.name] = made
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many steps each machine made, and how often it came to what."""
    for name, ground in WALKED.items():
        terminalreporter.section(f"{name}: {ground.steps} steps")
        for what, number in sorted(ground.reached.items()):
            terminalreporter.write_line(f"{number:7} {what}")
