"""Deliveries that may have killed whoever sent them: sent one at a time by a child process, and only that dies.

Most of them are innocent: they were in the air when their worker died of something else. So a child that has lived
through one goes on with the next, which takes milliseconds; starting another takes more than a second.
"""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog
from sqlalchemy import Engine as Database

from app.core import deliveries
from app.core.child import Child
from app.core.slots import take_slot
from app.core.threads import start_vital
from app.domain.identity import public_id
from app.ledger.database import UNDONE, cause_of
from app.ledger.deliveries import Claim

log = structlog.get_logger("duehook.suspects")
CHILDREN = 2  # at once on this host
MOST = 1000  # ids that wait for a child; the others' outbox rows come up again anyway
STARTING = 30.0  # seconds that a child may take until it is ready
OVER = 10.0  # seconds beyond the deadline that it may take to record: longer than most restarts of a database
IDLE = 10.0  # seconds that it waits for another
AGAIN = timedelta(seconds=5)  # until a suspect whose child died is sent again: it may have been something passing
TROUBLE = 5.0  # seconds until another try after a child that did not start, or while the host has enough of them


class Suspects:
    """Holds ids, never claims: `claim` is made when a child is ready for it, so that no lease runs while one starts.

    `claim` gives a claim and when it was asked for, None when there is nothing to send or no room at its endpoint;
    `ended` is told when its place is free again. Threads and children begin with the first suspect.
    """

    def __init__(
        self,
        database: Database,
        command: Sequence[str],
        claim: Callable[[int], tuple[Claim, float] | None],
        ended: Callable[[Claim], None],
        *,
        deadline: float,
    ) -> None:
        self._database = database
        self._command = command
        self._claim = claim
        self._ended = ended
        self._patience = deadline + OVER
        self._ids: dict[int, None] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._children: set[Child] = set()
        self._busy = 0  # of them

    def add(self, ids: Sequence[int]) -> None:
        """Send these as soon as there is a child for them; one that waits already waits once."""
        with self._changed:
            if not ids or self._stopping:
                return
            self._ids.update(dict.fromkeys(ids[: MOST - len(self._ids)]))
            if not self._threads:
                self._threads = [start_vital("suspects", self._run) for _ in range(CHILDREN)]
            self._changed.notify_all()

    def hurry(self) -> None:
        """Claim no more; a child ends when it is done with what it has."""
        with self._changed:
            self._stopping = True
            self._ids.clear()
            self._changed.notify_all()

    def stop(self, patience: float) -> None:
        """Give children so many seconds to end, then cut what they have in the air; a repeat does nothing."""
        self.hurry()
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._changed:
            for child in self._children:
                child.kill()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while self._is_wanted():
            if not self._send_all():
                self._rest()

    def _is_wanted(self) -> bool:
        """Waits until more ids wait than there are children for them; False when no child is wanted any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or len(self._ids) > len(self._children) - self._busy)
            return not self._stopping

    def _rest(self) -> None:
        """Leave what waits to others: its outbox rows come up again."""
        with self._changed:
            self._ids.clear()
            self._changed.wait_for(lambda: self._stopping, TROUBLE)

    def _send_all(self) -> bool:
        """Have a child send until it dies or nothing comes for a while; False when there can be none now."""
        slot = take_slot(self._slots, CHILDREN)
        if slot is None:
            log.info("others_have_all_children")
            return False
        with slot:
            child = self._start()
            if child is None:
                return False
            try:
                while (delivery := self._next()) is not None and self._send(child, delivery):
                    pass
            finally:
                self._end(child)
        return True

    @property
    def _slots(self) -> str:
        """All workers of this host that work on the same ledger have these in common."""
        url = self._database.url
        return f"suspects of {url.host}:{url.port}/{url.database}"

    def _start(self) -> Child | None:
        with self._changed:
            if self._stopping:
                return None
            try:
                child = Child(self._command)
            except OSError as error:
                log.warning("child_did_not_start", error=type(error).__name__)
                return None
            self._children.add(child)
        if child.answers(STARTING):
            return child
        child.kill()
        log.warning("child_did_not_start", exit_code=self._end(child))
        return None

    def _end(self, child: Child) -> int:
        exit_code = child.end()
        with self._changed:
            self._children.discard(child)
        return exit_code

    def _next(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._ids, IDLE)
            if not self._ids:
                return None
            delivery = next(iter(self._ids))
            del self._ids[delivery]
            return delivery

    def _send(self, child: Child, delivery: int) -> bool:
        """Whether the child can have another."""
        try:
            claimed = self._claim(delivery)
        except UNDONE as error:
            log.warning("suspect_waits", delivery=public_id("dlv", delivery), error=cause_of(error))
            return True
        if claimed is None:
            return True
        claim, claimed_at = claimed
        with self._changed:
            self._busy += 1
        try:
            return self._has_sent(child, claim, claimed_at)
        except UNDONE as error:  # its lease ends
            log.warning("suspect_left_to_its_lease", delivery=public_id("dlv", delivery), error=cause_of(error))
            return False
        finally:
            with self._changed:
                self._busy -= 1
            self._ended(claim)

    def _has_sent(self, child: Child, claim: Claim, claimed_at: float) -> bool:
        """Whether the child has recorded an outcome and lives; if not, the claim has ended all the same."""
        if not child.give(claim, claimed_at):
            deliveries.give_back(self._database, [claim], after=AGAIN)
            return False
        if child.answers(self._patience):
            return True
        exit_code = child.end(0)
        if deliveries.abandon(self._database, claim, after=AGAIN):
            said = {"attempt": claim.attempt, "abandoned": claim.abandoned + 1, "exit_code": exit_code}
            log.error("suspect_died", delivery=public_id("dlv", claim.delivery), **said)
        return False
