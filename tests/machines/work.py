"""Redrives and replays as a model: what one step of a job changes, and when the next is."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.machines.ground import Row
from tests.machines.ledger import Ledger
from tests.machines.things import Delivery, Endpoint

MOST = 200  # rows of a step; of one with a rate a fifth of a second's worth


@dataclass(eq=False)
class Work:
    """A job; `after` is the last dead letter that a redrive has looked at."""

    seq: int
    kind: str
    created_at: datetime
    next_step_at: datetime
    endpoint: Endpoint | None
    rate: float | None = None
    since: datetime | None = None
    statuses: tuple[str, ...] = ()
    status: str = "queued"
    done: int = 0
    total: int | None = None
    made: int = 0
    reopened: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    error: str | None = None
    after: tuple[datetime, int] | None = None

    @property
    def is_open(self) -> bool:
        return self.status in ("queued", "running")

    def step(self, ledger: Ledger) -> None:
        """One transaction's worth."""
        self.status = "running"
        before = self.made + self.reopened
        if self.kind == "redrive":
            self.redrive(ledger)
        else:
            self.replay(ledger)
        opened = self.made + self.reopened - before
        self.next_step_at = ledger.now() + timedelta(seconds=opened / (self.rate or 1000))

    def redrive(self, ledger: Ledger) -> None:
        """Those alone that were dead when it was made, the longest dead first."""
        dead = sorted(
            (one.died_at, one.id, one)
            for one in ledger.deliveries
            if one.died_at is not None and one.died_at <= self.created_at and self.endpoint in (None, one.endpoint)
        )
        self.total = len(dead) if self.total is None else self.total
        most = MOST if self.rate is None else int(self.rate / 5)
        chosen = [each for each in dead if self.after is None or each[:2] > self.after][:most]
        for died_at, id_, one in chosen:
            self.after = died_at, id_
            self.open_again(ledger, one)
        self.done += len(chosen)
        self.total = max(self.total, self.done)
        if len(chosen) < most:
            self.status, self.total = "completed", self.done

    def open_again(self, ledger: Ledger, one: Delivery) -> None:
        answer = "event_cancelled" if one.event.cancelled_at else ledger.reopen(one)
        if answer == "open":
            self.reopened += 1
            ledger.see(*["a replay re-opens"] * (self.kind == "replay"))
        else:
            self.skipped[answer] += 1
            ledger.see(*["a redrive passes over a cancelled event"] * (answer == "event_cancelled"))

    def replay(self, ledger: Ledger) -> None:
        """What the endpoint wants of the window: what it never got is made, the rest re-opened by its status."""
        endpoint, since = self.endpoint, self.since
        assert endpoint is not None and since is not None
        if endpoint.deleted:
            self.status, self.error = "failed", f"{endpoint.id} was deleted before all of it was replayed"
            ledger.see("a replay fails for its endpoint is deleted")
            return
        inside = [event for event in ledger.events if since <= event.created_at <= self.created_at]
        had = {one.event: one for one in ledger.deliveries if one.endpoint is endpoint}
        for event in inside:
            one = had.get(event)
            if event.fanned_out_at is None or event.only_to or not event.is_for(endpoint):
                continue
            if one is not None and one.status not in self.statuses:
                continue
            if one is not None:
                self.open_again(ledger, one)
            elif event.cancelled_at:
                self.skipped["event_cancelled"] += 1
            else:
                at = max(event.due_at, ledger.now())
                ledger.deliveries.append(Delivery(event, endpoint, at, at))
                self.made += 1
                ledger.see("a replay makes what is missing")
        self.done = self.total = len(inside)
        self.status = "completed"

    def row(self) -> Row:
        result: dict[str, Any] | None = None
        if self.status != "queued" and (self.status != "cancelled" or self.total is not None):
            result = {"reopened": self.reopened, "made": self.made, "skipped": dict(self.skipped)}
        if result is not None and self.error is not None:
            result["error"] = self.error
        return self.status, self.done, self.total, result, self.next_step_at
