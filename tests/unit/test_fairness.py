"""Dividing a window over those who wait for it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.domain.fairness import shares

CROWDS = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 50)), unique=True, max_size=60).map(sorted)


@given(CROWDS, st.integers(0, 5000), st.floats(0, 1, exclude_max=True))
def test_all_of_it_is_given_away_and_nothing_twice(crowds: list[tuple[str, int]], most: int, chance: float) -> None:
    parts = shares(crowds, most, chance)
    assert len(parts) == len(crowds)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == (most if crowds else 0)


@given(CROWDS, st.integers(0, 5000), st.floats(0, 1, exclude_max=True))
def test_tenants_get_alike_and_each_one_s_endpoints_too(
    crowds: list[tuple[str, int]], most: int, chance: float
) -> None:
    endpoints = Counter(tenant for tenant, _ in crowds)
    for (tenant, _), part in zip(crowds, shares(crowds, most, chance), strict=True):
        assert abs(part - most / len(endpoints) / endpoints[tenant]) < 1.001


def test_over_many_calls_even_a_part_below_one_is_had() -> None:
    crowds = [("many", n) for n in range(99)] + [("one", 0)]
    given_away: Counter[tuple[str, int]] = Counter()
    for n in range(1000):
        given_away.update(dict(zip(crowds, shares(crowds, 10, n / 1000), strict=True)))
    assert abs(given_away["one", 0] - 5000) <= 10
    assert all(40 <= given_away["many", n] <= 60 for n in range(99))
