"""Sharing a window between those who wait for it."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise


def shares(crowds: Sequence[tuple[str, int]], most: int, chance: float) -> list[int]:
    """Divide `most` places over (tenant, endpoint) pairs: tenants alike, and each tenant's part over its endpoints.

    Parts are fractions; `chance`, from 0 to 1, decides how they are rounded, so that over many calls each pair gets
    its exact part however small (systematic sampling). The sum is `most`.
    """
    if not crowds:
        return []
    endpoints = Counter(tenant for tenant, _ in crowds)
    ends, end = [0], chance
    for tenant, _ in crowds:
        end += most / len(endpoints) / endpoints[tenant]
        ends.append(min(int(end), most))
    ends[-1] = most  # whatever the errors of the sum have come to
    return [after - before for before, after in pairwise(ends)]
