"""How a measured time is spread."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds, by nearest rank."""

    p50: float
    p95: float
    p99: float
    most: float


def spread_of(seconds: Iterable[float]) -> Spread:
    """Of one value or more."""
    ordered = sorted(seconds)
    ranks = (ceil(share * len(ordered)) - 1 for share in (0.5, 0.95, 0.99, 1))
    return Spread(*(round(ordered[rank] * 1000, 2) for rank in ranks))
