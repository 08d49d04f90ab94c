"""The processes that make up the service, and the order in which they stop."""

import os
import sys
from dataclasses import dataclass

PROGRAMS = {
    "api": ("app.api",),
    "relay": ("outbox_relay",),
    "worker": ("workers", "worker"),
    "scan": ("workers", "scan"),
    "beat": ("workers", "beat"),
    "flower": ("workers", "flower"),
}


def command_of(program: str, *arguments: str) -> list[str]:
    """The command line that runs one of `PROGRAMS`.

    `-P`: a folder called `app` where the user happens to stand must not be taken for ours.
    """
    return [sys.executable, "-P", "-m", *PROGRAMS[program], *arguments]


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of process: what it runs, the seconds it may take to drain, how many of it, its login of the ledger."""

    name: str
    command: list[str]
    patience: float = 10.0
    count: int = 1
    login: str | None = None


def roles(deadline_seconds: float) -> list[Role]:
    """All of them. A worker drains for as long as a request that it has just sent may take, and ten seconds more."""
    grace = deadline_seconds + 10
    return [
        Role("api", command_of("api"), patience=25, login="api"),  # it cuts what takes 20 s itself
        Role("relay", command_of("relay"), login="relay"),
        Role("worker-expiry", command_of("worker", "expiry"), grace, login="worker"),
        Role("worker-delivery", command_of("worker", "delivery"), grace, count=cores(), login="worker"),
        Role("worker-upkeep", command_of("worker", "upkeep"), grace, login="worker"),
        Role("scan", command_of("scan"), grace, login="worker"),
        Role("beat", command_of("beat")),
        Role("flower", command_of("flower")),
    ]


# First whatever makes new work, then the door, then those who work, then the one who watches.
STAGES = (
    ("beat", "relay"),
    ("api",),
    ("worker-expiry", "worker-delivery", "worker-upkeep", "scan"),
    ("flower",),
)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
