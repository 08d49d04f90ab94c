"""Samples how late both clocks are, a few times a second, beside whatever goes on."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from app.eval.ledger import Lag, ledger_of

LOOK_SECONDS = 0.2
PART = 5  # looking takes at most this part of the time


class Samples:
    """`taken` so far, in order."""

    def __init__(self) -> None:
        self.taken: list[Lag] = []

    def between(self, began: float, ended: float) -> list[Lag]:
        """Those of a time, by the database's clock."""
        return [each for each in self.taken if began <= each.at <= ended]


@contextmanager
def sampling(database_url: str, tenant: str) -> Iterator[Samples]:
    """Until the block ends. While the database is away there are no samples."""
    samples, ended = Samples(), threading.Event()
    thread = threading.Thread(target=_sample, args=(database_url, tenant, samples, ended), daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join(10)


def _sample(database_url: str, tenant: str, samples: Samples, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            with ledger_of(database_url, tenant) as ledger:
                while not ended.is_set():
                    began = time.monotonic()
                    samples.taken.append(ledger.lag())
                    ended.wait(max(LOOK_SECONDS, PART * (time.monotonic() - began)))
        except psycopg.OperationalError:
            ended.wait(LOOK_SECONDS)
