"""Keeps everything running: what dies is started again, soon at first and then less and less often."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.local.errors import LocalServiceError

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
LONG_LIFE = 30.0  # seconds; what lived that long has recovered, and its next death counts as a first one


class Unit(Protocol):
    """What is kept running: a process of ours, or an embedded server."""

    @property
    def role(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def how_it_ended(self) -> str: ...


@dataclass(slots=True)
class _Watch:
    unit: Unit
    started_at: float
    pause: float = FIRST_PAUSE
    again_at: float | None = None  # None while it runs

    def mourn(self, now: float) -> float:
        """Set the time of its next start; returns the pause until then."""
        if now - self.started_at >= LONG_LIFE:
            self.pause = FIRST_PAUSE
        pause, self.pause = self.pause, min(self.pause * 2, LONGEST_PAUSE)
        self.again_at = now + pause
        return pause


@dataclass(slots=True)
class Supervisor:
    """Call `tend` often. `say` gets one line for each death and each start; `changed` is called when pids are other."""

    say: Callable[[str], None]
    changed: Callable[[], object]
    clock: Callable[[], float] = time.monotonic
    _watches: list[_Watch] = field(default_factory=list)

    def watch(self, units: Iterable[Unit]) -> None:
        """Keep these running from now on; they run already."""
        self._watches += [_Watch(unit, self.clock()) for unit in units]

    def pids(self) -> dict[str, Sequence[int]]:
        """Of all that runs, by role; a role all of whose processes are dead has an empty list."""
        found: dict[str, list[int]] = {}
        for watch in self._watches:
            found.setdefault(watch.unit.role, []).extend([watch.unit.pid] if watch.unit.running else [])
        return dict(found)

    def tend(self) -> None:
        """Look once at each: notice deaths, and start again what has waited long enough."""
        now = self.clock()
        changes = [self._tend(watch, now) for watch in self._watches]
        if any(changes):
            self.changed()

    def _tend(self, watch: _Watch, now: float) -> bool:
        if watch.again_at is None:
            if watch.unit.running:
                return False
            pause = watch.mourn(now)
            self.say(f"{watch.unit.role} {watch.unit.how_it_ended()}; it is started again in {pause:g} s.")
            return True
        return now >= watch.again_at and self._restart(watch)

    def _restart(self, watch: _Watch) -> bool:
        watch.started_at, watch.again_at = self.clock(), None
        try:
            watch.unit.start()
        except (OSError, LocalServiceError) as error:
            self.say(
                f"{watch.unit.role} can't be started ({error}); the next try is in {watch.mourn(self.clock()):g} s."
            )
            return False
        self.say(f"{watch.unit.role} runs again as pid {watch.unit.pid}.")
        return True
