"""Waiting for something to become true, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], *, deadline: float = 10.0, what: str = "it became true") -> T:
    """Returns the predicate's first true answer; fails the test, naming `what`, after `deadline` seconds."""
    until, pause = time.monotonic() + deadline, 0.002
    while not (answer := predicate()):
        if time.monotonic() > until:
            pytest.fail(f"waited {deadline:g} s in vain until {what}; the last answer was {answer!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return answer
