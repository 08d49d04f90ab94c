"""Every order in which the steps of two or three pieces of work can fall, each tried on real connections.

A step is what an actor does from one statement, or its commit or rollback, to the next. One that waits for a lock takes
no step until it has it; whether it waits is asked of PostgreSQL.

Orders that differ only in which of two steps that can't notice each other came first are one order, and the first of
them is tried (`Orders.same` is how many others were begun and left). What a transaction has touched is asked of
PostgreSQL too, so triggers count. Two statements notice each other when both write or lock rows of one table; an end
and a statement when the one has written or locked what the other reads, writes or locks; whoever waits, frees somebody
who waits, or gets an error is noticed by everybody. (Sleep sets: Godefroid, 1996.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from tests.races.harness import Actor, Race, Touched, race

Work = Callable[[Engine], Any]
RETRIED = ("40P01", "40001")


@dataclass(slots=True)
class Orders:
    """How many were tried, how many were the same as one of these, and what happened in them."""

    tried: int = 0
    same: int = 0
    steps: int = 0
    waited: int = 0  # steps that began to wait for somebody's lock
    deadlocks: int = 0

    def numbers(self) -> list[int]:
        """All of it, as a report of a test can carry it."""
        return [self.tried, self.same, self.steps, self.waited, self.deadlocks]


@dataclass(frozen=True, slots=True)
class Step:
    """What actor number `who` did from `point` on."""

    who: int
    point: str
    touched: Touched
    loud: bool  # noticed by everybody

    @property
    def ends(self) -> bool:
        return self.point in ("before commit", "before rollback")

    def notices(self, other: "Step") -> bool:
        """Whether it may matter which of the two comes first."""
        if self.loud or other.loud or self.who == other.who:
            return True
        if self.ends and other.ends:
            return False
        mine, theirs = self.touched, other.touched
        if self.ends:
            return bool(mine.writes & (theirs.reads | theirs.writes))
        if other.ends:
            return bool(theirs.writes & (mine.reads | mine.writes))
        return bool(mine.writes & theirs.writes)


@dataclass(slots=True)
class Crossing:
    """A place where somebody has to be the next: who is, who has been, who will be."""

    asleep: list[Step]  # would lead to an order that was tried elsewhere
    ahead: list[int]
    next: int
    step: Step | None = None  # what came of it
    tried: list[Step] = field(default_factory=list)

    def turn(self) -> bool:
        """On to the next who may be; whether there is one."""
        assert self.step is not None
        self.tried.append(self.step)
        if not self.ahead:
            return False
        self.next, *self.ahead = self.ahead
        return True

    def asleep_after(self, step: Step) -> list[Step]:
        return [each for each in self.asleep + self.tried if not each.notices(step)]


class Driver:
    """Runs works in every order on actors that it keeps."""

    def __init__(self, running: Race, *, each: bool = False) -> None:
        """`each`: try those too that can't differ."""
        self._race = running
        self._each = each
        self.actors: list[Actor] = []

    def every_order(self, begin: Callable[[], tuple[Sequence[Work], Callable[[], None]]]) -> Orders:
        """Run the works that `begin` returns in every order.

        `begin` is called anew for each order and must find or make the same things; the check that it returns is
        called when all have ended.
        """
        orders, path = Orders(), list[Crossing]()
        while True:
            works, check = begin()
            actors = self.start(works)
            if self._run(actors, path, orders):
                try:
                    check()
                except BaseException as error:
                    error.add_note(f"in this order: {self._told(path)}")
                    raise
                orders.tried += 1
            else:
                orders.same += 1
            while path and not path[-1].turn():
                path.pop()
            if not path:
                return orders

    def start(self, works: Sequence[Work]) -> list[Actor]:
        """Actors that stand at the first points of these works."""
        while len(self.actors) < len(works):
            self.actors.append(self._race.actor(f"actor {len(self.actors)}", afterwards=False))
        actors = self.actors[: len(works)]
        for actor, work in zip(actors, works, strict=True):
            actor.start(work)
        return actors

    def _run(self, actors: Sequence[Actor], path: list[Crossing], orders: Orders) -> bool:
        """One order: along `path`, then always the first that can; whether it is one that was not tried."""
        place, asleep, fresh = 0, list[Step](), True
        waiting = self._race.settle(actors)
        while ready := [n for n, actor in enumerate(actors) if actor not in waiting and actor.point != "done"]:
            if place == len(path):
                able = [n for n in ready if n not in {each.who for each in asleep}]
                if not able:
                    fresh = False
                    break
                path.append(Crossing(asleep, able[1:], able[0]))
            crossing = path[place]
            assert crossing.next in ready, f"not as it was before: {self._told(path[:place])}, then {crossing.next}"
            crossing.step, waiting = self._step(actors, crossing.next, waiting, orders)
            asleep = crossing.asleep_after(crossing.step)
            place += 1
        for actor in actors:
            actor.free()
        for actor in actors:
            actor.end()
        orders.deadlocks += sum(state in RETRIED for actor in actors for state in actor.refusals)
        return fresh

    def _step(self, actors: Sequence[Actor], who: int, waited: list[Actor], orders: Orders) -> tuple[Step, list[Actor]]:
        actor = actors[who]
        point, refusals = actor.point or "", len(actor.refusals)
        ends = point in ("before commit", "before rollback")
        before = self._touched(actor) if ends else None
        actor.go()
        waiting = self._race.settle(actors)
        loud = self._each or waiting != waited or len(actor.refusals) > refusals
        touched = Touched() if loud else before or self._touched(actor)
        orders.steps += 1
        orders.waited += actor in waiting
        return Step(who, point, touched, loud), waiting

    def _touched(self, actor: Actor) -> Touched:
        return Touched() if self._each else self._race.touched(actor)

    def _told(self, path: Sequence[Crossing]) -> str:
        return ", ".join(f"{each.step.who} {each.step.point}" for each in path if each.step)


def every_order(database_url: str, begin: Callable[[], tuple[Sequence[Work], Callable[[], None]]]) -> int:
    """Run the works that `begin` returns in every order; returns how many there were."""
    with race(database_url) as running:
        return Driver(running, each=True).every_order(begin).tried
