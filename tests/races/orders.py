"""Every order in which the steps of two pieces of work can fall, each tried on real connections.

A step is what an actor does from one statement, or its commit, to the next. One that waits for a lock takes no step
until it has it; whether it waits is asked of PostgreSQL.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Engine

from tests.races.harness import Actor, race

Work = Callable[[Engine], Any]


def every_order(database_url: str, begin: Callable[[], tuple[Sequence[Work], Callable[[], None]]]) -> int:
    """Run the works that `begin` returns in every order; returns how many there were.

    `begin` is called anew for each order and makes things of its own; the check that it returns is called when all
    have ended.
    """
    tried = 0
    path: list[int] = []  # who stepped in the last order
    choices: list[list[int]] = []  # and who at each of its steps was not tried there yet
    with race(database_url) as running:
        actors: list[Actor] = []
        while True:
            works, check = begin()
            actors = actors or [running.actor(f"actor {n}") for n in range(len(works))]
            for actor, work in zip(actors, works, strict=True):
                actor.start(work)
            path, choices = _run(actors, path, choices)
            check()
            tried += 1
            while choices and not choices[-1]:
                path.pop()
                choices.pop()
            if not choices:
                return tried
            path[-1] = choices[-1].pop()


def _run(actors: Sequence[Actor], path: list[int], choices: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """One order: along `path`, then always the first that can; the rest of who could is left in the choices."""
    taken: list[int] = []
    left = choices[: len(path)]
    while ready := [n for n, actor in enumerate(actors) if _stands(actor)]:
        if len(taken) < len(path):
            chosen = path[len(taken)]
        else:
            chosen, *others = ready
            left.append(others)
        taken.append(chosen)
        actors[chosen].step()
    for actor in actors:
        actor.finish()
    return taken, left


def _stands(actor: Actor) -> bool:
    """Whether it can take a step; waits until it stands, waits for a lock or has ended."""
    actor.wait()
    return actor.point not in (None, "done")
