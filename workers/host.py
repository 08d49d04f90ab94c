"""What one worker process is made of: its presence, a timer per kind, and for deliveries the engine."""

import math
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from app.core import events, jobs, reservations
from app.core.dispatch import Dispatcher
from app.core.presence import Presence
from app.core.sets import Looked
from app.core.timer import Timer
from app.core.upkeep import upkeep
from app.domain.wakeups import AT_ONCE, Kind
from app.ledger import outbox
from app.ledger.database import UNDONE, Undone, cause_of, in_transaction, is_lost
from app.runtime import Runtime, make_dispatcher, upkeep_terms

log = structlog.get_logger("duehook.worker")
AGAIN = 1.0  # seconds until an id is looked at again whose row and outbox row somebody holds, or without a database
MOST = 500  # ids in one statement
EXPIRING = 2  # statements at once when thousands end at one instant; claims are made one after the other anyway
MOST_HELD = 50_000  # ids of a kind on the timer while the database is away; more wait for their publish lease


class Host:
    """Acts on wake-ups. `start` before the first, `stop` gives back what is not due yet.

    `heard`, given by who goes by the host's own clock, is told what `Presence` tells. While that clock is off nothing
    is held or acted on here: what comes has its outbox row looked at at once, for others.
    """

    def __init__(
        self, runtime: Runtime, role: str = "worker", heard: Callable[[str | None], None] | None = None
    ) -> None:
        self._runtime = runtime
        self._role = role
        self._heard = heard
        self._making = threading.Lock()
        self._cut = False
        self._dispatcher: Dispatcher | None = None
        self._timers: dict[Kind, Timer] = {}

    def start(self) -> None:
        """Threads and connections; not before the process is the one that works."""
        self.presence = Presence(self._runtime.engine, self._role, self._hear if self._heard else None)
        self.clock = self.presence.clock

    def wake(self, kind: Kind, ids: Sequence[int], dues: Sequence[int]) -> None:
        """Act on what is due, hold the rest until it is; `dues` in microseconds since 1970.

        Returns when every id is claimed, answered, or held by a timer whose outbox rows come up again: only then may
        its message be acknowledged.
        """
        if self.presence.unready:
            self._look_at_once(ids)
            return
        now = math.inf if kind in AT_ONCE else self.clock.time()
        later = [(due / 1e6, each) for each, due in zip(ids, dues, strict=True) if due / 1e6 > now]
        if later:
            self._timer(kind).add(later)
        waiting = {each for _, each in later}
        if due := [each for each in ids if each not in waiting]:
            self._act(kind, due)

    def room(self, kind: Kind) -> int:
        """How many more ids of a kind it could act on now without waiting."""
        if kind is not Kind.DELIVERY:
            return MOST
        return self._runtime.settings.max_in_flight if self._dispatcher is None else self._dispatcher.room

    def held(self, kind: Kind) -> int:
        """How many ids of a kind wait on its timer."""
        return len(self._timers.get(kind, ()))

    def audit(self) -> dict[str, int]:
        """Upkeep for a moment; what it repaired is logged."""
        return dict(upkeep(self._runtime.engine, upkeep_terms(self._runtime.settings)))

    def hurry(self) -> None:
        """`stop` is near: what finds no room to be sent goes back at once, and nobody waits for it."""
        if self._dispatcher is not None:
            self._dispatcher.hurry()

    def stop(self) -> None:
        """Let what is in the air end and have the outbox look at what was held: nothing waits for this process."""
        self.hurry()
        self._look_at_once([each for timer in self._timers.values() for each in timer.stop()])
        if self._dispatcher is not None:
            self._dispatcher.stop(lambda: self._cut)
        self.presence.stop()
        self._runtime.close()

    def cut(self) -> None:
        """Have `stop` wait for nothing, also one that waits already: leases end what is in the air then.

        No more than a flag: for a signal's handler, which may have interrupted whoever holds a lock.
        """
        self._cut = True

    def _hear(self, unready: str | None) -> None:
        if unready:
            self._look_at_once([each for timer in list(self._timers.values()) for each in timer.drop()])
        if self._heard:
            self._heard(unready)

    def _look_at_once(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        try:
            in_transaction(self._runtime.engine, lambda connection: outbox.look_sooner(connection, ids, timedelta()))
        except UNDONE as error:  # their publish leases end anyway; what is in the air must still be waited for
            log.warning("held_until_publish_lease", ids=len(ids), error=cause_of(error))

    def _timer(self, kind: Kind) -> Timer:
        with self._making:
            if kind not in self._timers:
                self._timers[kind] = Timer(
                    lambda ids: self._act_on_time(kind, ids),
                    self.clock.time,
                    most=MOST,
                    name=f"{kind} timer",
                    threads=EXPIRING if kind is Kind.RESERVATION else 1,
                )
            return self._timers[kind]

    def _act_on_time(self, kind: Kind, ids: list[int]) -> None:
        try:
            self._act(kind, ids)
        except Exception:  # a timer must not die: the ids' outbox rows come up again
            log.exception("wakeup_failed", kind=kind, ids=len(ids))

    def _act(self, kind: Kind, ids: Sequence[int]) -> None:
        try:
            looked = self._look(kind, ids)
        except UNDONE as error:
            if not is_lost(error):
                raise
            self._wait_for_the_database(kind, ids, error)
            return
        log.info("woken", kind=kind, **looked.count(kind))
        if looked.again:
            self._look_again(kind, looked.again)

    def _look_again(self, kind: Kind, ids: Sequence[int]) -> None:
        at = self.clock.time() + AGAIN
        self._timer(kind).add((at, each) for each in ids)

    def _wait_for_the_database(self, kind: Kind, ids: Sequence[int], error: Undone) -> None:
        """A restart of it then costs a second or two. Without this the ids would wait for their publish lease."""
        room = max(0, MOST_HELD - self.held(kind))
        log.warning("database_away", kind=kind, ids=len(ids), held=min(room, len(ids)), error=cause_of(error))
        self._look_again(kind, ids[:room])

    def _look(self, kind: Kind, ids: Sequence[int]) -> Looked:
        match kind:
            case Kind.RESERVATION:
                return reservations.expire(self._runtime.engine, ids)
            case Kind.EVENT:
                return events.fan_out(self._runtime.engine, ids)
            case Kind.DELIVERY:
                return self._deliveries().deliver(ids)
            case Kind.ENDPOINT:
                return self._deliveries().attend(ids)
            case Kind.JOB:
                return jobs.advance(self._runtime.engine, ids)

    def _deliveries(self) -> Dispatcher:
        with self._making:
            if self._dispatcher is None:
                self._dispatcher = make_dispatcher(self._runtime, self.clock)
        return self._dispatcher
