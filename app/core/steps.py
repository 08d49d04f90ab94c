"""What one step of a job came to, whatever kind of job it is."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

Members = Mapping[str, Any]
COUNTED_AT_ONCE = 5_000  # rows that one step counts, while it is not known how many there are


@dataclass(frozen=True, slots=True)
class Step:
    """`place` is where the next one goes on, None when there is nothing left to do.

    `done` counts what was looked at, of `total` as far as that is known; the rest says what became of it. `error` is
    one sentence, when the job can't go on. `pause` is until the next step, when there is something to be waited for.
    """

    place: Members | None
    done: int = 0
    total: int | None = None
    reopened: int = 0
    made: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    erased: Counter[str] | None = None  # of an erasure, which does nothing else
    error: str | None = None
    pause: timedelta = timedelta()

    @property
    def opened(self) -> int:
        """How many deliveries it sent on their way."""
        return self.reopened + self.made


def summed(result: Members | None, step: Step) -> dict[str, Any]:
    """What the job has done by now, this step included."""
    before = result or {}
    if step.erased is not None:
        return {"erased": dict(Counter(before.get("erased", {})) + step.erased)}
    return {
        "reopened": before.get("reopened", 0) + step.reopened,
        "made": before.get("made", 0) + step.made,
        "skipped": dict(Counter(before.get("skipped", {})) + step.skipped),
    }
