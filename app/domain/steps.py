"""How much one step of long work does, and how long it is until the next."""

from datetime import timedelta

MOST = 200  # rows of one step
MOMENT = 0.2  # seconds that one step should take at most
USUAL_RATE = 1_000.0  # re-openings per second where nobody says otherwise: what is fresh must have room beside them
SLOWEST, FASTEST = 0.01, 100_000.0  # re-openings per second that one may ask for
STEPS_PER_SECOND = 5  # of one that has a rate: a second's worth at once would be a burst


def rows_of(rate: float | None) -> int:
    """How many rows a step of this rate re-opens at most."""
    return max(1, min(MOST, int((rate or USUAL_RATE) / STEPS_PER_SECOND)))


def pause_after(opened: int, rate: float | None) -> timedelta:
    """From the beginning of a step that re-opened so many to the next: what was late is never made up for.

    So over any stretch of time, a stop in the middle included, there are at most `rate` a second and one step more.
    """
    return timedelta(seconds=opened / (rate or USUAL_RATE))


def rows_after(rows: int, seconds: float) -> int:
    """How many rows to try next, when so many took so long: half, if that was too long, else up to twice as many."""
    return max(1, rows // 2) if seconds > MOMENT else min(MOST, rows * 2)
