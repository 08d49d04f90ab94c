"""What one worker process is made of: a clock, a timer per kind, and for deliveries the engine."""

import math
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import structlog
from sqlalchemy.exc import DBAPIError

from app.core import events, reconciliation, reservations
from app.core.clock import LedgerClock
from app.core.dispatch import Dispatcher
from app.core.sets import Looked
from app.core.timer import Timer
from app.domain.wakeups import AT_ONCE, Answer, Kind
from app.ledger import outbox
from app.ledger.database import in_transaction
from app.runtime import Runtime, make_dispatcher

log = structlog.get_logger("duehook.worker")
CLOCK_SECONDS = 10.0
AGAIN = 1.0  # seconds until an id is looked at again whose row and outbox row somebody holds
MOST = 500  # ids in one statement


class Host:
    """Acts on wake-ups. `start` before the first, `stop` gives back what is not due yet."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._stopped = threading.Event()
        self._making = threading.Lock()
        self._dispatcher: Dispatcher | None = None
        self._timers: dict[Kind, Timer] = {}

    def start(self) -> None:
        """Threads and connections; not before the process is the one that works."""
        self.clock = LedgerClock(self._runtime.engine)
        threading.Thread(target=self.clock.keep, args=(CLOCK_SECONDS, self._stopped), daemon=True).start()

    def wake(self, kind: Kind, ids: Sequence[int], dues: Sequence[int]) -> None:
        """Act on what is due, hold the rest until it is; `dues` in microseconds since 1970.

        Returns when every id is claimed, answered, or held by a timer whose outbox rows come up again: only then may
        its message be acknowledged.
        """
        now = math.inf if kind in AT_ONCE else self.clock.time()
        later = [(due / 1e6, each) for each, due in zip(ids, dues, strict=True) if due / 1e6 > now]
        if later:
            self._timer(kind).add(later)
        waiting = {each for _, each in later}
        if due := [each for each in ids if each not in waiting]:
            self._act(kind, due)

    def audit(self) -> dict[str, int]:
        """One bounded stretch of the audit; what it repaired is logged."""
        repairs = reconciliation.audit(self._runtime.engine)
        if repairs:
            log.warning("repaired", **repairs)
        return dict(repairs)

    def stop(self) -> None:
        """Let what is in the air end and have the outbox look at what was held: nothing waits for this process."""
        self._stopped.set()
        held = [each for timer in self._timers.values() for each in timer.stop()]
        if held:
            self._look_at_once(held)
        if self._dispatcher is not None:
            self._dispatcher.stop()
        self._runtime.close()

    def _look_at_once(self, ids: Sequence[int]) -> None:
        try:
            in_transaction(self._runtime.engine, lambda connection: outbox.look_sooner(connection, ids, timedelta()))
        except DBAPIError as error:  # their publish leases end anyway; what is in the air must still be waited for
            log.warning("held_until_publish_lease", ids=len(ids), error=type(error.orig).__name__)

    def _timer(self, kind: Kind) -> Timer:
        with self._making:
            if kind not in self._timers:
                self._timers[kind] = Timer(
                    lambda ids: self._act_on_time(kind, ids), self.clock.time, most=MOST, name=f"{kind} timer"
                )
            return self._timers[kind]

    def _act_on_time(self, kind: Kind, ids: list[int]) -> None:
        try:
            self._act(kind, ids)
        except Exception:  # a timer must not die: the ids' outbox rows come up again
            log.exception("wakeup_failed", kind=kind, ids=len(ids))

    def _act(self, kind: Kind, ids: Sequence[int]) -> None:
        looked = self._look(kind, ids)
        counts = Counter(looked.answers.values())
        log.info("woken", kind=kind, **{answer.value: number for answer, number in counts.items()})
        if looked.again:
            at = self.clock.time() + AGAIN
            self._timer(kind).add((at, each) for each in looked.again)

    def _look(self, kind: Kind, ids: Sequence[int]) -> Looked:
        match kind:
            case Kind.RESERVATION:
                return reservations.expire(self._runtime.engine, ids)
            case Kind.EVENT:
                return events.fan_out(self._runtime.engine, ids)
            case Kind.DELIVERY:
                return self._deliver(ids)
            case Kind.ENDPOINT:
                return Looked(dict.fromkeys(ids, Answer.GONE))

    def _deliver(self, ids: Sequence[int]) -> Looked:
        with self._making:
            if self._dispatcher is None:
                self._dispatcher = make_dispatcher(self._runtime, self.clock)
        return self._dispatcher.deliver(ids)
