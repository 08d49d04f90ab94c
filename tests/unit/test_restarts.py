"""Restarts: soon at first, then less and less often, and the slate is clean after a long life."""

from dataclasses import dataclass, field

import pytest

from app.local.errors import LocalServiceError
from app.local.up.supervisor import Supervisor


@dataclass
class Unit:
    """Dies and starts when the test says so."""

    role: str = "relay"
    running: bool = True
    pid: int = 1
    refuses: bool = False

    def start(self) -> None:
        if self.refuses:
            raise LocalServiceError("no room")
        self.running, self.pid = True, self.pid + 1

    def how_it_ended(self) -> str:
        return "was ended by SIGKILL"


@dataclass
class World:
    """A supervisor whose clock is the test's."""

    now: float = 0.0
    said: list[str] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(self.said.append, self.count, lambda: self.now)

    def count(self) -> None:
        self.changes += 1

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.supervisor.tend()


@pytest.fixture
def world() -> World:
    return World()


def pause_after_death(world: World, unit: Unit) -> float:
    """How long the supervisor waits until it starts a unit that dies right now."""
    unit.running = False
    world.pass_time(0)
    died_at = world.now
    while not unit.running:
        world.pass_time(0.25)
    return world.now - died_at


def test_the_pause_doubles_up_to_ten_seconds(world: World) -> None:
    unit = Unit()
    world.supervisor.watch([unit])
    assert [pause_after_death(world, unit) for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_after_a_long_life_the_pause_is_short_again(world: World) -> None:
    unit = Unit()
    world.supervisor.watch([unit])
    for _ in range(4):
        pause_after_death(world, unit)
    world.pass_time(29.75)
    assert pause_after_death(world, unit) == 8
    world.pass_time(30)
    assert pause_after_death(world, unit) == 0.5


def test_a_death_and_a_start_are_said_in_a_line_each_and_change_the_pids(world: World) -> None:
    unit = Unit()
    world.supervisor.watch([unit, Unit("api", pid=9)])
    unit.running = False
    world.pass_time(0)
    assert world.supervisor.pids() == {"relay": [], "api": [9]}
    world.pass_time(0.5)
    assert world.supervisor.pids() == {"relay": [2], "api": [9]}
    assert world.said == [
        "relay was ended by SIGKILL; it is started again in 0.5 s.",
        "relay runs again as pid 2.",
    ]
    assert world.changes == 2


def test_what_can_t_be_started_is_tried_again_later_and_holds_nobody_up(world: World) -> None:
    full, other = Unit("postgres", refuses=True), Unit()
    world.supervisor.watch([full, other])
    full.running = other.running = False
    for _ in range(3):
        world.pass_time(0.5)
    assert other.running and not full.running
    assert "postgres can't be started (no room); the next try is in 1 s." in world.said
    full.refuses = False
    world.pass_time(2)
    assert full.running


def test_while_all_is_well_nothing_is_said_or_changed(world: World) -> None:
    world.supervisor.watch([Unit(), Unit("api")])
    world.pass_time(100)
    assert (world.said, world.changes) == ([], 0)
