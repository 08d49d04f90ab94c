"""Stopping in order: everybody ends what is in the air, nobody begins anything new."""

import time
from collections.abc import Callable, Iterable, Sequence

from app.local.up.child import Child


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
    for stage in stages:
        those = [child for child in everybody if child.role in stage]
        for child in those:
            child.terminate()
        _wait(those, hurried)
        for child in those:
            if child.running:
                child.kill()
                say(f"{child.role} (pid {child.pid}) did not end in time and was killed; its leases heal what it had.")


def _wait(children: Sequence[Child], hurried: Callable[[], bool]) -> None:
    began = time.monotonic()
    while any(child.running and time.monotonic() - began < child.patience for child in children):
        if hurried():
            return
        time.sleep(0.02)
