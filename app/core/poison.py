"""Broker messages that no worker can act on: kept in the ledger, for the broker keeps nothing."""

import hashlib
import json
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from sqlalchemy import Engine

from app.core.threads import start_vital
from app.domain.faults import kinds
from app.domain.redaction import redact
from app.ledger import poison
from app.ledger.database import UNDONE, cause_of, in_transaction, is_lost
from app.ledger.poison import PoisonReason

__all__ = ["FailedError", "Keeper", "Poison", "PoisonReason", "raised_by"]

log = structlog.get_logger("duehook.poison")
MOST_KEPT = 4096  # bytes of a message
MOST_TEXT = 300  # characters of an error, or of a task's name
AGAIN = 1.0  # seconds between tries while the database is away


@dataclass(frozen=True, slots=True)
class Poison:
    """One such message; `raw` is all of it, and goes nowhere but through redaction."""

    lane: str
    reason: PoisonReason
    error: str
    raw: bytes
    task: str | None = None


class FailedError(Exception):
    """A task raised; only the kinds of what it was are told, for Celery and Flower show all of this to anybody."""


class Keeper:
    """Records in a thread of its own: whoever consumes goes on meanwhile, however long the database is away."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._found: queue.SimpleQueue[tuple[Poison, Callable[[], None]]] = queue.SimpleQueue()
        start_vital("poison keeper", self._run)

    def keep(self, found: Poison, kept: Callable[[], None]) -> None:
        """Record `found` as soon as the database allows, then call `kept`; until then its message must not go.

        It holds as many as the caller gives it: a consumer has no more of them than its prefetch count.
        """
        _tell(found)
        self._found.put((found, kept))

    def _run(self) -> None:
        while True:
            found, kept = self._found.get()
            while not self._is_recorded(found):
                time.sleep(AGAIN)
            kept()

    def _is_recorded(self, found: Poison) -> bool:
        try:
            _record(self._engine, found)
        except UNDONE as error:
            log.warning("poison_waits", error=cause_of(error))
            return False
        return True


@contextmanager
def raised_by(engine: Engine, lane: str, task: str, args: Sequence[Sequence[int]]) -> Iterator[None]:
    """Record what is raised inside, and raise a `FailedError` in its place: Celery logs that and shows it to Flower.

    A lost database is not poison. Neither is it a loss when the record can't be made for that reason: the ids' outbox
    rows come up again, and what raised raises again.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes on without its words
        if not (isinstance(error, UNDONE) and is_lost(error)):
            _keep_raised(engine, lane, task, args, error)
        raise FailedError(kinds(error)) from None


def _keep_raised(engine: Engine, lane: str, task: str, args: Sequence[Sequence[int]], error: Exception) -> None:
    raw = json.dumps({"task": task, "args": args}).encode()
    found = Poison(lane, PoisonReason.RAISED, kinds(error), raw, task)
    log.error("task_raised", task=task, exc_info=error)
    _tell(found)
    try:
        _record(engine, found)
    except UNDONE as undone:
        log.warning("poison_not_recorded", error=cause_of(undone))


def _tell(found: Poison) -> None:
    digest = _digest(found).hex()[:12]
    log.error("poison_message", lane=found.lane, reason=found.reason.value, size=len(found.raw), digest=digest)


def _record(engine: Engine, found: Poison) -> None:
    in_transaction(
        engine,
        lambda connection: poison.record(
            connection,
            lane=found.lane,
            reason=found.reason,
            task=None if found.task is None else _readable(found.task),
            error=_readable(found.error),
            body=redact(found.raw)[:MOST_KEPT],
            size=len(found.raw),
            digest=_digest(found),
        ),
    )


def _digest(found: Poison) -> bytes:
    return hashlib.sha256(found.raw).digest()


def _readable(text: str) -> str:
    """As PostgreSQL takes it, redacted: no NUL, no half of a surrogate pair."""
    return redact(text.encode(errors="replace")).decode(errors="replace")[:MOST_TEXT]
