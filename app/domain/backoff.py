"""How long a delivery waits between attempts: the two schedules, and the jitter on top."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, TypeAlias

# Seconds before the second attempt, the third, and so on: n entries are n + 1 attempts.
Schedule: TypeAlias = Sequence[float]

# Trouble that passes by itself: 41 h 36 m of waiting, so that a night or a Sunday is survived.
FULL: Final[Schedule] = (5, 60, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 24 * 3600)
# Answers that only a person changes: hours apart, and over after 31 h 5 m.
SHORT: Final[Schedule] = (5 * 60, 3600, 6 * 3600, 24 * 3600)

_MOST_JITTER: Final = 0.2


def wait(seconds: float, jitter: float) -> timedelta:
    """A step of a schedule with its jitter, which is a random number in [0, 1) that the caller drew.

    Upward only: a receiver is never asked again sooner than the documented step.
    """
    return timedelta(seconds=seconds * (1 + _MOST_JITTER * jitter))
