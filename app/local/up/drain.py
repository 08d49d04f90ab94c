"""Stopping in order: everybody ends what is in the air, nobody begins anything new."""

import time
from collections.abc import Callable, Iterable, Sequence

from app.local.up.child import Child

LONG = 3.0  # seconds of waiting until it is said what is waited for


def drain(
    children: Iterable[Child],
    stages: Iterable[Sequence[str]],
    *,
    say: Callable[[str], None],
    hurried: Callable[[], bool],
) -> None:
    """Stop stage after stage; who takes longer than its role may, or is `hurried`, is killed.

    Nothing is lost by that: what a killed worker had in the air is sent again when its lease ends.
    """
    everybody = list(children)
    cut: list[Child] = []
    for stage in stages:
        those = [child for child in everybody if child.role in stage]
        for child in those:
            child.terminate()
        _wait(those, say, hurried)
        late = [child for child in those if child.running]
        for child in late:
            child.kill()
        if hurried():
            cut += late
        elif late:
            say(f"Killed, for they did not end in time: {_names(late)}{_healing(late)}.")
    if cut:
        say(f"Killed at once, as asked: {_names(cut)}{_healing(cut)}.")


def _wait(children: Sequence[Child], say: Callable[[str], None], hurried: Callable[[], bool]) -> None:
    began = time.monotonic()
    told = False
    while any(child.running and time.monotonic() - began < child.patience for child in children):
        if hurried():
            return
        if not told and time.monotonic() - began >= LONG:
            told = True
            say(f"Waiting for {_names(child for child in children if child.running)} to end what is in the air.")
        time.sleep(0.02)


def _names(children: Iterable[Child]) -> str:
    return ", ".join(f"{child.role} (pid {child.pid})" for child in children)


def _healing(killed: Iterable[Child]) -> str:
    """Only workers and scan have leases."""
    leasing = any(child.role.startswith(("worker", "scan")) for child in killed)
    return "; what workers and scan had in the air is sent again when its lease ends" if leasing else ""
