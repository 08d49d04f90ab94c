"""Acting on a set of ids so that one bad row never stops the others."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app import metrics
from app.domain.wakeups import Answer, Kind
from app.ledger import outbox
from app.ledger.database import in_transaction, is_impatient, is_lost

log = structlog.get_logger("duehook.core")
PAUSE = timedelta(seconds=1)
NOTHING = frozenset(Answer) - {Answer.TAKEN, Answer.WAITING, Answer.CANCELLED, Answer.BURIED, Answer.POISONED}
LATER = frozenset({Answer.EARLY, Answer.LOCKED, Answer.PUT_OFF, Answer.SUSPECT})  # looked at again after a pause


@dataclass(slots=True)
class Looked:
    """What a wake-up came to: an answer for each id, and those that the caller must look at again in a second.

    The second are ids whose outbox row somebody holds as well: no look could be set for them.
    """

    answers: dict[int, Answer] = field(default_factory=dict)
    again: list[int] = field(default_factory=list)

    def add(self, other: "Looked") -> None:
        """What was answered later counts."""
        self.answers |= other.answers
        self.again += other.again

    def of(self, answer: Answer) -> list[int]:
        """The ids that got this answer."""
        return [each for each, given in self.answers.items() if given is answer]

    def count(self, kind: Kind) -> dict[str, int]:
        """How often each answer was given, by name; what came to nothing is counted."""
        counts = Counter(self.answers.values())
        for answer in counts.keys() & NOTHING:
            metrics.NOOPS.labels(kind.value, answer.value).inc(counts[answer])
        return {answer.value: number for answer, number in counts.items()}


Act = Callable[[Connection, Sequence[int]], dict[int, Answer]]


def look(engine: Engine, ids: Sequence[int], act: Act) -> Looked:
    """Run `act` on `ids` in one transaction and set the next look of those that it could not take.

    A set that the database refuses is halved until the bad row is alone; that one is logged and answered `failed`,
    the others commit. Raises when the database is lost: nothing is acknowledged then.
    """
    try:
        return in_transaction(engine, lambda connection: _look(connection, ids, act))
    except DBAPIError as error:
        if is_lost(error):
            raise
        if len(ids) == 1 and is_impatient(error):
            return Looked({ids[0]: Answer.LOCKED}, list(ids))
        if len(ids) == 1:
            log.error("row_refused", ref=ids[0], error=type(error.orig).__name__, exc_info=True)
            return Looked({ids[0]: Answer.FAILED})
    middle = len(ids) // 2
    first, second = (look(engine, half, act) for half in (ids[:middle], ids[middle:]))
    return Looked(first.answers | second.answers, first.again + second.again)


def _look(connection: Connection, ids: Sequence[int], act: Act) -> Looked:
    answers = act(connection, ids)
    later = [each for each, answer in answers.items() if answer in LATER]
    seen = set(outbox.look_sooner(connection, later, PAUSE)) if later else set()
    return Looked(answers, [each for each in later if each not in seen])


def settled(ids: Sequence[int], taken: Collection[int], still_open: Mapping[int, bool]) -> dict[int, Answer]:
    """The answers when `taken` were acted on and `still_open` says of those left open whether they are due.

    One that is due and was not taken is somebody's: his open transaction was passed over.
    """
    left = {each: Answer.LOCKED if due else Answer.EARLY for each, due in still_open.items()}
    return {each: Answer.TAKEN if each in taken else left.get(each, Answer.GONE) for each in ids}
