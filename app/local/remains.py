"""Waits for what an earlier run left behind on the same files, before a new server touches them.

A server whose owner was killed is shutting down still; a killed PostgreSQL's backends notice a moment later.
PostgreSQL's own check asks whether *any* process has the old number, so a stale file whose number was given
to somebody else (common in containers) would keep it from starting for ever: look at who it really is.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from app.local.errors import LocalServiceError

PROGRAMS = {"postgres", "valkey-server", "redis-server"}


def wait_for_remains(folder: Path, *, title: str, deadline: float = 30.0) -> None:
    """Returns once no server works in `folder`; raises LocalServiceError naming those that won't go."""
    until = time.monotonic() + deadline
    while left := list(working_in(folder)):
        if time.monotonic() > until:
            pids = " ".join(map(str, left))
            raise LocalServiceError(f"An earlier {title} still uses {folder}: end it (kill {pids}), then start again.")
        time.sleep(0.05)


def working_in(folder: Path) -> Iterator[int]:
    """Pids of the database servers, and their parts, that have `folder` as their working directory."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _works_in(entry, folder.resolve()):
            yield int(entry.name)


def _works_in(entry: Path, folder: Path) -> bool:
    try:
        return (entry / "comm").read_text().strip() in PROGRAMS and (entry / "cwd").readlink() == folder
    except OSError:  # it ended meanwhile, or it is another user's and so none of ours
        return False
