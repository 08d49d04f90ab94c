"""CPU seconds of groups of processes, from /proc."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(groups: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """User and system time of each group so far, its processes' children included, the living and the ended."""
    seconds = dict.fromkeys(groups, 0.0)
    group_of = {pid: group for group, pids in groups.items() for pid in pids}
    for pid, parent, used in _processes():
        if group := group_of.get(pid) or group_of.get(parent):
            seconds[group] += used
    return seconds


def machine_seconds() -> float:
    """What all cores of this machine have worked so far, whoever for."""
    # user nice system idle iowait irq softirq steal …
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) * TICK


def _processes() -> list[tuple[int, int, float]]:
    """(pid, parent, seconds of its own and of the children that it has waited for) of every process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = stat.rpartition(")")[2].split()  # a program's name may hold blanks
            found.append((int(name), int(fields[1]), sum(map(int, fields[11:15])) * TICK))
    return found
