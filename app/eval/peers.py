"""Killing whoever is at the other end of a connection: what a poisonous event would do to its sender."""

import os
import signal
from pathlib import Path


def kill_peer(connection: tuple[int, int]) -> int:
    """SIGKILL to the process of this machine that connected from the first port to the second; returns its id."""
    pid = peer(connection)
    os.kill(pid, signal.SIGKILL)
    return pid


def peer(connection: tuple[int, int]) -> int:
    """The process of this machine that connected from the first port to the second; ValueError when there is none."""
    (pid,) = _holders(f"socket:[{_inode(connection)}]")
    return pid


def _inode(connection: tuple[int, int]) -> str:
    """Of the connecting socket; both ends are 127.0.0.1."""
    ends = [f"0100007F:{port:04X}" for port in connection]
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    (inode,) = [fields[9] for fields in lines if fields[1:3] == ends]
    return inode


def _holders(target: str) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _holds(entry, target)]


def _holds(process: Path, target: str) -> bool:
    try:
        return any(_leads(each, target) for each in (process / "fd").iterdir())
    except OSError:  # it has ended meanwhile, or is not ours
        return False


def _leads(link: Path, target: str) -> bool:
    try:
        return os.readlink(link) == target
    except OSError:  # closed meanwhile
        return False
