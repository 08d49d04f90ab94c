"""Everybody who may meet, in every order: the invariants hold after each, and what everybody was told is true."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import permutations

import psycopg
import pytest

from app.domain.wakeups import Answer
from app.local.postgres import Postgres
from tests.races.actions import ACTIONS
from tests.races.harness import Race, race
from tests.races.orders import Driver, Work
from tests.races.pairs import MEETINGS, Told, meetings, mend
from tests.races.scenes import Scene
from tests.races.stage import Stage

# Of each scene the first two actions, each killed while the other waits; of the wide run all.
KILLED = [
    (scene, pair)
    for scene, meeting in MEETINGS.items()
    for pair in permutations(meeting.actions if os.environ.get("EVERY_ORDER") else meeting.actions[:2], 2)
]
pytestmark = pytest.mark.slow
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

        return [partial(ACTIONS[name], self.scene) for name in actions], check

    def check(self, told: Told) -> None:
        refused = [name for name, result in told if isinstance(result, Mapping) and Answer.FAILED in result.values()]
        assert not refused, f"the database had to refuse what the guard of a statement lets through: {refused}"
        repaired = [result for name, result in told if name.startswith("audit") and result]
        if self._meeting.damaged:
            if repaired:
                self.stage.audit()  # what it repairs is right from then on, whoever is at it too
            mend(self.scene)
        else:
            assert not repaired, f"the audit repairs what is in order: {repaired}"
        self.stage.audit()
        self._meeting.check(self.scene, told)

    @property
    def damaged(self) -> bool:
        """Whether the scene begins with something that is wrong."""
        return self._meeting.damaged

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


@pytest.mark.parametrize("killed", KILLED, ids=named)
def test_whoever_waits_for_one_that_is_killed_goes_on(
    play: Callable[[str], Play], killed: tuple[str, tuple[str, str]]
) -> None:
    scene, (dying, living) = killed
    on = play(scene)
    points = 0
    while True:
        works, _ = on.begin((dying, living))
        first, second = on.driver.start(works)
        for _ in range(points):
            on.race.settle([first, second])
            if first.point == "done":
                break
            first.go()
        on.race.settle([first, second])
        if first.point == "done":
            second.finish()
            break
        while second not in on.race.settle([first, second]) and second.point != "done":
            second.go()
        first.kill()
        second.finish()
        if not on.damaged:
            on.stage.audit()
        points += 1
    assert points >= 2


@pytest.mark.parametrize(
    "meeting",
    [
        ("an overdue reservation", ("confirm", "expire")),
        ("a parked delivery", ("claim", "delete the endpoint")),
        ("an event whose time has come", ("fan out", "cancel the event")),
    ],
    ids=named,
)
def test_the_orders_left_out_end_as_those_that_are_tried(
    play: Callable[[str], Play], meeting: tuple[str, Sequence[str]]
) -> None:
    scene, actions = meeting
    on = play(scene)

    def ends(driver: Driver) -> tuple[int, set[str]]:
        seen = set()

        def begin() -> tuple[list[Work], Callable[[], None]]:
            works, _ = on.begin(actions)
            return works, lambda: seen.add(repr([actor.outcome() for actor in driver.actors]))

        return driver.every_order(begin).tried, seen

    tried, some = ends(Driver(on.race))
    most, all_of_them = ends(Driver(on.race, each=True))
    assert tried < most
    assert some == all_of_them
