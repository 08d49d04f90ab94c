"""The median round of several."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from statistics import median
from typing import Any


def median_of(rounds: Sequence[Any]) -> Any:
    """Figure by figure, for measures that are made of dataclasses, mappings and numbers; of the same kind as they."""
    first = rounds[0]
    if is_dataclass(first) and not isinstance(first, type):
        return replace(
            first, **{each.name: median_of([getattr(one, each.name) for one in rounds]) for each in fields(first)}
        )
    if isinstance(first, Mapping):
        return {name: median_of([one[name] for one in rounds]) for name in first}
    return median(rounds)
