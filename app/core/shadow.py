"""Shadow: what an adapter would wake if it had all of the work, compared with what is due by the tables themselves.

Both adapters notice by the same rows of the outbox (`taking`), so the comparison holds for either; what differs is how
they wake. Nothing is written: every transaction is read-only.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sqlalchemy import Connection, Engine

from app.domain.identity import Prefix, public_id
from app.domain.wakeups import Kind
from app.ledger import shadow
from app.ledger.database import in_transaction
from app.ledger.outbox import LONGEST_PUBLISH_LEASE
from app.ledger.shadow import DUE, Due
from app.ledger.walking import TOP, Stretch

STRETCH = 10_000
MOMENT = 1.0  # seconds until suspects are looked at again: what moved while we walked has arrived by then
SHOWN = 20  # ids of each difference
PREFIX: Mapping[Kind, Prefix] = {Kind.EVENT: "evt", Kind.DELIVERY: "dlv", Kind.ENDPOINT: "end", Kind.JOB: "job"}


@dataclass(frozen=True, slots=True)
class Difference:
    """How many, and the public ids of the first few."""

    number: int = 0
    ids: tuple[str, ...] = ()


NO_DIFFERENCE = Difference()


@dataclass(slots=True)
class Compared:
    """One kind: `missed` is due and nothing will wake it, `needless` would wake somebody for nothing open."""

    would_wake: int = 0
    on_the_way: int = 0
    missed: Difference = NO_DIFFERENCE
    needless: Difference = NO_DIFFERENCE

    @property
    def due(self) -> int:
        return self.would_wake + self.on_the_way + self.missed.number


def compare(
    engine: Engine,
    *,
    publish_lease: timedelta = LONGEST_PUBLISH_LEASE,
    stretch: int = STRETCH,
    moment: float = MOMENT,
    told: Callable[[int], None] = lambda number: None,
) -> dict[Kind, Compared]:
    """Walk everything once; returns the differences that are still there a moment later, in one snapshot.

    Work goes on meanwhile: what is counted was so when its row was walked. `publish_lease`: the first
    after a publication. `told` hears how many rows each stretch had.
    """
    walking = _Walking(engine, max(publish_lease, LONGEST_PUBLISH_LEASE), stretch, told)
    for kind in DUE:
        walking.look_for_missed(kind)
    walking.look_for_needless()
    if walking.suspects:
        time.sleep(moment)
        in_transaction(engine, walking.settle)
    return walking.compared


def estimate(engine: Engine) -> int:
    """About how many rows `compare` walks."""

    def ask(connection: Connection) -> int:
        shadow.read_only(connection)
        return shadow.estimate(connection)

    return in_transaction(engine, ask)


class _Walking:
    """One comparison as far as it has come."""

    def __init__(self, engine: Engine, longest: timedelta, most: int, told: Callable[[int], None]) -> None:
        self._engine = engine
        self._longest = longest
        self._most = most
        self._told = told
        self._missed: dict[Kind, list[int]] = {kind: [] for kind in DUE}
        self._needless: list[int] = []
        self.compared = {kind: Compared() for kind in Kind}

    @property
    def suspects(self) -> bool:
        return bool(self._needless) or any(self._missed.values())

    def look_for_missed(self, kind: Kind) -> None:
        def look(connection: Connection, below: int) -> tuple[Stretch, Due]:
            shadow.read_only(connection)
            return shadow.due(connection, kind, below, self._most, self._longest)

        below: int | None = TOP
        while below is not None:
            stretch, due = in_transaction(self._engine, partial(look, below=below))
            self.compared[kind].would_wake += due.would_wake
            self.compared[kind].on_the_way += due.on_the_way
            self._missed[kind] += stretch.suspects
            self._told(stretch.number)
            below = stretch.below

    def look_for_needless(self) -> None:
        def look(connection: Connection, below: int) -> Stretch:
            shadow.read_only(connection)
            return shadow.needless(connection, below, self._most)

        below: int | None = TOP
        while below is not None:
            stretch = in_transaction(self._engine, partial(look, below=below))
            self._needless += stretch.suspects
            self._told(stretch.number)
            below = stretch.below

    def settle(self, connection: Connection) -> None:
        """Keep of the suspects what is still wrong, and name the first few."""
        shadow.read_one_snapshot(connection)
        for kind, suspects in self._missed.items():
            missed = [
                key for some in _parts(suspects) for key in shadow.still_missed(connection, kind, some, self._longest)
            ]
            self.compared[kind].missed = _difference(connection, kind, missed)
        needless = [row for some in _parts(self._needless) for row in shadow.still_needless(connection, some)]
        for kind in Kind:
            refs = [ref for its, ref in needless if its is kind]
            self.compared[kind].needless = _difference(connection, kind, refs)


def _parts(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    return (keys[start : start + STRETCH] for start in range(0, len(keys), STRETCH))


def _difference(connection: Connection, kind: Kind, keys: Sequence[int]) -> Difference:
    some = keys[:SHOWN]
    names = shadow.reservation_ids(connection, some) if kind is Kind.RESERVATION else {}
    return Difference(len(keys), tuple(names.get(key) or _name(kind, key) for key in some))


def _name(kind: Kind, key: int) -> str:
    """A row may refer to what never was, or is no more."""
    return public_id(PREFIX[kind], key) if kind in PREFIX and key > 0 else f"row {key}"
