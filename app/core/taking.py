"""Noticing what is due, for whoever wakes the core: take a batch of outbox rows → wake somebody → move them.

Two transactions with nothing but the waking in between: whoever dies there leaves rows that come up again, and what
is woken twice finds nothing to do the second time.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from sqlalchemy import Engine

from app.domain.wakeups import Adapter, Kind
from app.ledger import outbox, service
from app.ledger.database import in_transaction
from app.ledger.outbox import Buckets, Taken

FOLLOW = 1.0  # seconds until another division of the work is noticed


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are ours until the take lapses."""

    token: UUID
    rows: Sequence[Taken]


class Taking:
    """One adapter's side of the outbox; used by one thread."""

    def __init__(self, engine: Engine, adapter: Adapter, publish_lease: timedelta) -> None:
        self._engine = engine
        self._adapter = adapter
        self._publish_lease = publish_lease
        self._buckets = Buckets()
        self._followed = -FOLLOW

    def buckets(self) -> Buckets:
        """This adapter's part of the work, at most `FOLLOW` seconds old; the two parts never overlap for longer."""
        if time.monotonic() >= self._followed + FOLLOW:
            share = in_transaction(self._engine, service.scan_share)
            self._buckets = Buckets(end=share) if self._adapter is Adapter.SCAN else Buckets(first=share)
            self._followed = time.monotonic()
        return self._buckets

    @property
    def idle(self) -> bool:
        """Whether the other adapter notices everything."""
        return self._buckets.first == self._buckets.end

    def take(self, limits: Mapping[Kind, int]) -> Batch:
        """What of our part must be looked at now, at most `limits` rows of each kind."""
        buckets, token = self.buckets(), uuid4()
        if self.idle:
            return Batch(token, [])
        return Batch(
            token, in_transaction(self._engine, lambda connection: outbox.take(connection, token, limits, buckets))
        )

    def move(self, batch: Batch) -> None:
        """Somebody is woken: the rows come up again at the end of their publish lease if nothing has come of it."""
        refs = [row.ref for row in batch.rows]
        if refs:
            in_transaction(
                self._engine, lambda connection: outbox.move(connection, batch.token, refs, self._publish_lease)
            )
