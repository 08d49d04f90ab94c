"""The relay's steps, which every machine has: take, publish or die, move, find the broker empty."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.domain.wakeups import Kind
from app.ledger import outbox
from app.ledger.outbox import EVERY_BUCKET, Room
from tests.machines.ground import Ground
from tests.machines.outbox import PUBLISH, Outbox
from tests.machines.running import Machine

number = st.integers(0, 2) | st.integers(0, 99)  # picks one of what there is, the newest by 0
beside = st.sampled_from([0, -0.001, 0.001])  # seconds from an instant
some = st.lists(number, min_size=1, max_size=4)
ALL = list(range(12))
FAR = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass
class Take:
    """What a relay holds; it may die with it, be late, or move twice."""

    token: UUID
    refs: list[int]
    moved: bool = False


class Relaying(Machine):
    """The outbox as a relay sees it; `takes` are all there ever were."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.outbox = Outbox()
        self.takes: list[Take] = []

    @property
    def now(self) -> datetime:
        return self.ground.clock.now

    def see(self, *situations: str) -> None:
        self.ground.see(*situations)

    @rule(seconds=st.sampled_from([0.001, 0.5, 2, 5, 20, 45, 120]))
    def time_goes_on(self, seconds: float) -> None:
        self.ground.clock.advance(seconds=seconds)

    @rule(index=number, beside=beside)
    def time_goes_on_to_a_look(self, index: int, beside: float) -> None:
        """To the very instant at which something is due, or just beside it: there a clock's two sides meet."""
        times = {at for look in self.outbox.looks.values() for at in (look.due_at, look.look_at)}
        ahead = sorted(at for at in times if self.now < at < FAR)
        if ahead:
            self.go_on_to(ahead[index % len(ahead)], beside)
            self.see("the very instant of a look")

    def go_on_to(self, at: datetime, beside: float) -> None:
        self.ground.clock.advance(seconds=max(0, (at - self.now).total_seconds() + beside))

    @rule(most=st.sampled_from([2, 100]))
    def relay_takes(self, most: int) -> None:
        free, token = self.outbox.can_take(self.now), uuid4()
        rooms = dict.fromkeys(Kind, Room(most))
        taken = [row.ref for row in self.ground.do(lambda connection: outbox.take(connection, token, rooms))]
        assert set(taken) <= set(free)
        for kind in Kind:
            due = [ref for ref in free if self.outbox.looks[ref].kind == kind]
            got = [ref for ref in due if ref in taken]
            assert len(got) == min(most, len(due))
            looks = [self.outbox.looks[ref].look_at for ref in due[: len(got)]]
            assert sorted(self.outbox.looks[ref].look_at for ref in got) == looks  # the earliest
        if any(self.outbox.looks[ref].taken for ref in taken):
            self.see("what a dead relay had taken is taken anew")
        self.outbox.take(taken, token, self.now)
        if taken:
            self.takes.append(Take(token, taken))

    @precondition(lambda self: self.takes)
    @rule(index=number)
    def relay_moves(self, index: int) -> None:
        """By any take there ever was: also one that lapsed, that another relay has by now, or that was moved before."""
        some = [each for each in self.takes if not each.moved or index % 3 == 2] or self.takes
        take = some[-1 - index // 3 % len(some)]
        held = [ref for ref in take.refs if ref in self.outbox.looks and self.outbox.looks[ref].taken == take.token]
        twice = any(self.outbox.looks[ref].publications for ref in held)
        stale = not take.moved and len(held) < len(take.refs)
        expected = self.outbox.move(take.refs, take.token, self.now)
        assert self.ground.do(lambda connection: outbox.move(connection, take.token, take.refs, PUBLISH)) == expected
        self.see(*["a publication moves a row"] * bool(held), *["published a second time"] * twice)
        self.see(*["a move finds the row changed meanwhile"] * stale, *["a take is moved twice"] * take.moved)
        take.moved = True

    @precondition(lambda self: self.outbox.looks)
    @rule(index=number, times=st.integers(1, 3))
    def nobody_comes(self, index: int, times: int) -> None:
        """A wake-up is published, nobody acts on it, and it is published again at the end of its publish lease."""
        ref = list(self.outbox.looks)[-1 - index % len(self.outbox.looks)]
        for _ in range(times):
            if self.outbox.looks[ref].look_at < FAR:
                self.go_on_to(self.outbox.looks[ref].look_at, 0)
                self.relay_takes(100)
                self.relay_moves(0)

    @rule()
    def broker_is_emptied(self) -> None:
        expected = self.outbox.lose_published(self.now)
        lost = self.ground.do(
            lambda connection: outbox.look_at_published(connection, list(Kind), EVERY_BUCKET, PUBLISH)
        )
        assert lost == expected
        self.see(*["what an emptied broker held comes up"] * bool(lost))


SITUATIONS = [
    "the very instant of a look",
    "what a dead relay had taken is taken anew",
    "a publication moves a row",
    "a move finds the row changed meanwhile",
    "a take is moved twice",
    "published a second time",
    "what an emptied broker held comes up",
]
