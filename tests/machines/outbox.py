"""The outbox as a model: one row for each open thing, and what a relay does with it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tests.machines.ground import HORIZON, Row

TAKE = timedelta(seconds=2)
PUBLISH = timedelta(seconds=60)
LONGEST = timedelta(minutes=15)


@dataclass
class Look:
    """When somebody must look at a thing."""

    kind: str
    endpoint: int
    due_at: datetime
    look_at: datetime
    publications: int = 0
    taken: UUID | None = None
    taken_until: datetime | None = None


class Outbox:
    """By what each row refers to."""

    def __init__(self) -> None:
        self.looks: dict[int, Look] = {}

    def set(self, ref: int, kind: str, endpoint: int, due_at: datetime, look_at: datetime) -> None:
        """Whatever was published or taken of it is void."""
        self.looks[ref] = Look(kind, endpoint, due_at, look_at)

    def close(self, ref: int) -> None:
        self.looks.pop(ref, None)

    def can_take(self, now: datetime) -> list[int]:
        """What a relay finds: the earliest look first."""
        free = [ref for ref, look in self.looks.items() if look.look_at <= now and not _is_live(look, now)]
        return sorted(free, key=lambda ref: self.looks[ref].look_at)

    def take(self, refs: Iterable[int], token: UUID, now: datetime) -> None:
        for ref in refs:
            self.looks[ref].taken, self.looks[ref].taken_until = token, now + TAKE

    def move(self, refs: Collection[int], token: UUID, now: datetime) -> int:
        """To the end of a publish lease that doubles, but only what the take still holds."""
        mine = [self.looks[ref] for ref in refs if ref in self.looks and self.looks[ref].taken == token]
        for look in mine:
            look.look_at = max(look.due_at, now) + min(PUBLISH * 2**look.publications, LONGEST)
            look.publications = min(look.publications + 1, 20)
            look.taken = None
        return len(mine)

    def lose_published(self, now: datetime) -> int:
        """The broker was emptied: what it held comes up at once."""
        lost = [
            look
            for look in self.looks.values()
            if look.publications and now < look.look_at <= now + HORIZON + LONGEST and not _is_live(look, now)
        ]
        for look in lost:
            look.look_at, look.publications, look.taken = now, 0, None
        return len(lost)

    def sooner(self, ref: int, now: datetime, pause: timedelta = timedelta(seconds=1)) -> None:
        """Looked at again after a pause, or as its time nears; never later than before."""
        if look := self.looks.get(ref):
            look.look_at = min(look.look_at, max(look.due_at - HORIZON, now + pause))
            look.taken = None

    def rows(self) -> dict[int, Row]:
        return {
            ref: (
                each.kind,
                each.endpoint,
                each.due_at,
                each.look_at,
                each.publications,
                each.taken,
                each.taken_until if each.taken else None,
            )
            for ref, each in self.looks.items()
        }


def _is_live(look: Look, now: datetime) -> bool:
    return look.taken is not None and look.taken_until is not None and now < look.taken_until <= now + TAKE
