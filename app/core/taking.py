"""Noticing what is due, for whoever wakes the core: take a batch of outbox rows → wake somebody → move them.

Two transactions with nothing but the waking in between: whoever dies there leaves rows that come up again, and what
is woken twice finds nothing to do the second time.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID, uuid4

import structlog
from sqlalchemy import Connection, Engine

from app.core.wakeups import ROLE, WORKER, fleet
from app.domain.fairness import shares
from app.domain.wakeups import Adapter, Kind
from app.ledger import outbox, service
from app.ledger.database import in_transaction
from app.ledger.outbox import EVERY_BUCKET, Buckets, Crowd, Room, Taken

log = structlog.get_logger("duehook.taking")

FOLLOW = 1.0  # seconds until another division of the work is noticed
# What is due within it is nearly due: a worker gets it by then, whose host's clock may be off by a second, and whose
# Celery may look at its timer a second late.
AHEAD = timedelta(seconds=2)
MOST_HELD = 20_000  # ids in somebody's hands before they are due; more of their kind waits until it is nearly due
NO_TIME = timedelta()
FRESH = timedelta(seconds=2)  # what fell due within it gets half of each share
NEWEST = 4  # part of the room that is for what fell due last, while more waits than there is room for
MOST_SLOW = 10  # rows of a slow endpoint: parking them must not be noticed by the others
MOST_CROWDS = 2_000  # that share one window; the others have their turn after them
CENSUS = 0.25  # seconds between two looks at who is waiting, or ten times what one costs
CENSUS_PART = 10
LATELY = 1.0  # seconds for which somebody who had something due counts as one who waits
FIRST: Crowd = ("", 0)
HOLDERS = (WORKER, ROLE[Adapter.SCAN])  # the roles of those that hold what is not due yet


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are ours until the take lapses."""

    token: UUID
    rows: Sequence[Taken]


@dataclass(slots=True)
class Crowds:
    """Who waits for more room of a kind than there is; `at` is when that was looked up last.

    Of the `congested` endpoints something is parked, so that what else is due for them will hardly do more than be
    parked too; as long as others have something due, they are slow and let in by few.
    """

    waiting: bool = False
    who: list[Crowd] = field(default_factory=list)
    congested: set[int] = field(default_factory=set)
    others_at: float = -LATELY
    at: float = -CENSUS
    pause: float = CENSUS

    def see(self, endpoints: Iterable[int]) -> None:
        """These have something due just now."""
        if not self.congested.issuperset(endpoints):
            self.others_at = time.monotonic()

    @property
    def slow(self) -> set[int]:
        return self.congested if time.monotonic() < self.others_at + LATELY else set()


class Taking:
    """One adapter's side of the outbox; used by one thread.

    While there is room for all that is due, it is taken in order. When there is not, what fell due last is taken first,
    and the room of the backlog is shared: over the tenants that wait, then over their endpoints, and half of each
    share is for what fell due just now. So a backlog delays its own endpoint and nobody else.
    """

    def __init__(self, engine: Engine, adapter: Adapter, publish_lease: timedelta, horizon: timedelta) -> None:
        self._engine = engine
        self._adapter = adapter
        self._publish_lease = publish_lease
        self._hold_off = max(horizon - AHEAD, NO_TIME)
        self._fresh = horizon + FRESH  # a look comes up that much before the work is due
        self._buckets = Buckets()
        self._followed = -FOLLOW
        self._silent: set[UUID] = set()
        self._crowds = {kind: Crowds() for kind in Kind}

    def buckets(self) -> Buckets:
        """This adapter's part of the work, at most `FOLLOW` seconds old; the two parts overlap no longer than that."""
        if time.monotonic() >= self._followed + FOLLOW:
            share, silent, back = in_transaction(self._engine, self._follow)
            self._silent = silent
            if back:
                log.warning("worker_silent", published_again=back)
            self._buckets = Buckets(end=share) if self._adapter is Adapter.SCAN else Buckets(first=share)
            self._followed = time.monotonic()
        return self._buckets

    def _follow(self, connection: Connection) -> tuple[int, set[UUID], int]:
        """The scan's share, who is silent, and how much comes up again that those may have held who were not before.

        Whoever is killed holds what was published and is not due yet, which would wait for its publish lease. What
        others hold is woken twice, which changes nothing; so is everything when we have just begun.
        """
        silent = {each.who.id for each in fleet(connection).silent if each.who.role.startswith(HOLDERS)}
        kinds, lease, back = list(Kind), self._publish_lease, 0
        if silent - self._silent:
            back = outbox.look_at_published(connection, kinds, EVERY_BUCKET, lease)
        return service.scan_share(connection), silent, back

    @property
    def idle(self) -> bool:
        """Whether the other adapter notices everything."""
        return self._buckets.first == self._buckets.end

    def room(self, most: int, held: int, backlog: int | None = None) -> Room:
        """Room for `most` rows of a kind, `held` of which are in hands already and not due yet.

        When that is very many, what is nearly due goes first: a horizon full of work must not fill any memory.
        """
        return Room(most, self._hold_off if held >= MOST_HELD else NO_TIME, backlog)

    def take(self, rooms: Mapping[Kind, Room]) -> Batch:
        """What of our part must be looked at now and has room."""
        buckets, token = self.buckets(), uuid4()
        wanted = {kind: room for kind, room in rooms.items() if room.most > 0}
        if self.idle or not wanted:
            return Batch(token, [])
        rows = in_transaction(self._engine, lambda connection: self._take(connection, token, wanted, buckets))
        return Batch(token, rows)

    def move(self, batch: Batch) -> None:
        """Somebody is woken: the rows come up again at the end of their publish lease if nothing has come of it."""
        refs = [row.ref for row in batch.rows]
        if refs:
            in_transaction(
                self._engine, lambda connection: outbox.move(connection, batch.token, refs, self._publish_lease)
            )

    def look_at_published(self) -> int:
        """What was published is lost: it comes up again at once. Returns how much that is."""
        kinds, buckets, lease = list(Kind), self.buckets(), self._publish_lease
        return in_transaction(
            self._engine, lambda connection: outbox.look_at_published(connection, kinds, buckets, lease)
        )

    def _take(self, connection: Connection, token: UUID, rooms: Mapping[Kind, Room], buckets: Buckets) -> list[Taken]:
        crowded = [kind for kind in rooms if self._crowds[kind].waiting]
        for kind in crowded:
            self._take_census(connection, kind)
        newest = [each for kind in crowded for each in self._take_newest(connection, token, kind, rooms[kind], buckets)]
        rooms = {kind: self._left(room, newest, kind) if kind in crowded else room for kind, room in rooms.items()}
        fair = [each for kind in crowded for each in self._take_fairly(connection, token, kind, rooms[kind], buckets)]
        given = Counter(row.kind for row in fair)
        left = {kind: replace(room, most=room.most - given[kind]) for kind, room in rooms.items()}
        left = {kind: room for kind, room in left.items() if kind not in crowded or not self._crowds[kind].slow}
        rest = outbox.take(connection, token, left, buckets)
        used = Counter(row.kind for row in rest)
        for kind, room in left.items():
            self._crowds[kind].waiting = used[kind] == room.most
        return newest + fair + rest

    def _take_newest(
        self, connection: Connection, token: UUID, kind: Kind, room: Room, buckets: Buckets
    ) -> list[Taken]:
        most = max(1, room.most // NEWEST)
        slow = self._crowds[kind].slow
        due = max(self._hold_off, room.hold_off)
        newest = outbox.take_newest(
            connection, token, kind, most, due=due, fresh=self._fresh, but=slow, buckets=buckets
        )
        self._crowds[kind].see(row.endpoint for row in newest)
        return sorted(newest, key=lambda row: row.due_at, reverse=True)

    @staticmethod
    def _left(room: Room, newest: Sequence[Taken], kind: Kind) -> Room:
        left = room.most - sum(row.kind is kind for row in newest)
        return replace(room, most=left if room.backlog is None else min(left, room.backlog))

    def _take_fairly(
        self, connection: Connection, token: UUID, kind: Kind, room: Room, buckets: Buckets
    ) -> list[Taken]:
        crowds = self._crowds[kind]
        parts = zip(crowds.who, shares(crowds.who, room.most, random.random()), strict=True)
        some = {crowd: min(share, MOST_SLOW) if crowd[1] in crowds.slow else share for crowd, share in parts}
        if not any(some.values()):
            crowds.waiting = bool(crowds.who)
            return []
        some = {crowd: share for crowd, share in some.items() if share}
        fair = outbox.take_fairly(
            connection, token, kind, some, fresh=self._fresh, hold_off=room.hold_off, buckets=buckets
        )
        number = Counter((row.tenant, row.endpoint) for row in fair)
        crowds.waiting = any(number[crowd] >= share for crowd, share in some.items())
        return fair

    def _take_census(self, connection: Connection, kind: Kind) -> None:
        crowds, now = self._crowds[kind], time.monotonic()
        if now < crowds.at + crowds.pause:
            return
        after = crowds.who[-1] if len(crowds.who) == MOST_CROWDS else FIRST
        crowds.who = outbox.crowds(connection, kind, after, MOST_CROWDS)
        endpoints = {endpoint for _, endpoint in crowds.who}
        crowds.congested = outbox.congested(connection, sorted(endpoints))
        crowds.see(endpoints)
        crowds.at = time.monotonic()
        crowds.pause = max(CENSUS, CENSUS_PART * (crowds.at - now))
