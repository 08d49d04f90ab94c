"""Single events of a tenant that are posted at the same time are accepted in one transaction."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine

from app.core import events
from app.core.events import Accepted, KeyTaken
from app.ledger.database import UNDONE, in_transaction
from app.ledger.events import NewEvent


@dataclass(slots=True, eq=False)
class _Waiting:
    """An event on its way. Its thread is told when it `leads`, or when somebody has accepted it, or has tried to."""

    event: NewEvent
    leads: bool = False
    outcome: Accepted | KeyTaken | None = None
    told: threading.Event = field(default_factory=threading.Event)


class Together:
    """Who comes while a transaction of its tenant is under way waits for the end of it, and goes with all who do.

    A commit costs as much for one event as for ten, and so does most of a statement. Nobody waits for company: who
    comes alone goes at once. What fails for several is tried by each for itself: nobody's error is another's. For
    threads, of which a tenant's share bounds how many go together.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._gathered: dict[str, list[_Waiting]] = {}  # of tenants that have a transaction under way

    def accept(self, tenant: str, event: NewEvent) -> Accepted | KeyTaken:
        """The event as it was stored; or whose its key is, and nothing of it is stored."""
        mine = _Waiting(event)
        if not self._comes_first(tenant, mine):
            mine.told.wait()
        if mine.leads:
            self._lead(tenant, mine)
        return mine.outcome or self._store(tenant, [mine])[0]

    def _comes_first(self, tenant: str, mine: _Waiting) -> bool:
        with self._lock:
            if tenant in self._gathered:
                self._gathered[tenant].append(mine)
            else:
                self._gathered[tenant], mine.leads = [], True
            return mine.leads

    def _lead(self, tenant: str, mine: _Waiting) -> None:
        with self._lock:
            several, self._gathered[tenant] = [mine, *self._gathered[tenant]], []
        try:
            for each, outcome in zip(several, self._store(tenant, several), strict=True):
                each.outcome = outcome
        except UNDONE:
            if len(several) == 1:
                raise
        finally:  # whatever it was: the others must not wait for ever
            self._hand_on(tenant)
            for each in several:
                each.told.set()

    def _store(self, tenant: str, several: Sequence[_Waiting]) -> list[Accepted | KeyTaken]:
        asked = [each.event for each in several]
        return in_transaction(self._engine, lambda connection: events.accept_each(connection, tenant, asked))

    def _hand_on(self, tenant: str) -> None:
        with self._lock:
            if self._gathered[tenant]:
                first = self._gathered[tenant].pop(0)
                first.leads = True
                first.told.set()
            else:
                del self._gathered[tenant]
