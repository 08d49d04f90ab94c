"""Somebody who posts as fast as the API answers, in a process of its own, beside what is measured."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.local.errors import LocalServiceError
from bench.accept.client import Target, as_fast_as_it_answers

LONGEST = 600.0  # it ends by itself, whatever becomes of this process
PATIENCE = 30.0
SLICE = 0.5


@dataclass(slots=True)
class Flood:
    """What it got: answers a second, while the block lasted."""

    per_second: float = 0.0


@contextmanager
def flooding(target: Target, body: str, connections: int) -> Iterator[Flood]:
    """It has begun inside the block, and is over after it."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Value("q", 0)
    process = spawn.Process(target=_flood, args=(target, body, connections, answers), daemon=True)
    process.start()
    try:
        until = time.monotonic() + PATIENCE
        while not answers.value:
            if time.monotonic() > until or not process.is_alive():
                raise LocalServiceError("The flood did not begin.")
            time.sleep(0.05)
        flood, began, before = Flood(), time.monotonic(), answers.value
        yield flood
        flood.per_second = round((answers.value - before) / (time.monotonic() - began), 1)
    finally:
        process.kill()
        process.join()


def _flood(
    target: Target, body: str, connections: int, answers: "multiprocessing.sharedctypes.Synchronized[int]"
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever measures, and that one ends this
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        took = as_fast_as_it_answers(target, body, connections=connections, seconds=SLICE)
        with answers.get_lock():
            answers.value += len(took)
