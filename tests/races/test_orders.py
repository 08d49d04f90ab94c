"""Everybody who may meet, in every order: the invariants hold after each, and what everybody was told is true."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import psycopg
import pytest

from app.local.postgres import Postgres
from tests.races.actions import ACTIONS
from tests.races.harness import Race, race
from tests.races.orders import Driver, Work
from tests.races.pairs import MEETINGS, Told, meetings, mend
from tests.races.scenes import Scene
from tests.races.stage import Stage

WIDE = bool(os.environ.get("EVERY_ORDER"))


class Play:
    """A scene with its actors, kept for all who meet in it."""

    def __init__(self, name: str, database_url: str) -> None:
        self._meeting = MEETINGS[name]
        self._open = ExitStack()
        self.stage = Stage(database_url)
        self._open.callback(self.stage.close)
        self.scene: Scene = self._meeting.make(self.stage)
        self.stage.photograph()
        self.race: Race = self._open.enter_context(race(database_url))
        self.driver = Driver(self.race)

    def begin(self, actions: Sequence[str]) -> tuple[list[Work], Callable[[], None]]:
        """The scene as it was, and who meets there; with what must hold after they have."""
        self.stage.put_back()

        def check() -> None:
            self.check([(name, actor.outcome()) for name, actor in zip(actions, self.driver.actors, strict=False)])

        return [lambda engine, do=ACTIONS[name]: do(self.scene, engine) for name in actions], check

    def check(self, told: Told) -> None:
        if self._meeting.damaged:
            mend(self.scene)
        else:
            repaired = [result for name, result in told if name.startswith("audit") and result]
            assert not repaired, f"the audit repairs what is in order: {repaired}"
        self.stage.audit()
        self._meeting.check(self.scene, told)

    def close(self) -> None:
        self._open.close()


@pytest.fixture(scope="module")
def play(postgres: Postgres, template: str) -> Iterator[Callable[[str], Play]]:
    """The play of a scene: a database of its own, made when the first wants it."""
    plays: dict[str, Play] = {}

    def play_of(scene: str) -> Play:
        if scene not in plays:
            name = f"orders_{len(plays)}"
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
                connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
            plays[scene] = Play(scene, postgres.url_of(name))
        return plays[scene]

    yield play_of
    for each in plays.values():
        each.close()


def named(meeting: tuple[str, Sequence[str]]) -> str:
    scene, actions = meeting
    return f"{scene}: {', '.join(actions)}"


@pytest.mark.timeout(3600 if WIDE else 120)
@pytest.mark.parametrize("meeting", meetings(wide=WIDE), ids=named)
def test_in_every_order(
    play: Callable[[str], Play],
    meeting: tuple[str, Sequence[str]],
    record_property: Callable[[str, object], None],
) -> None:
    scene, actions = meeting
    on = play(scene)
    orders = on.driver.every_order(lambda: on.begin(actions))
    record_property("orders", [scene, actions, orders.numbers()])
    assert orders.tried > 0
