"""How much is measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """`rate` and `seconds` are those of the lateness measures, `ahead` how long before its time work is scheduled."""

    rounds: int = 3
    endpoints: int = 100
    deliveries: int = 20_000
    rate: float = 200.0
    seconds: float = 10.0
    ahead: float = 2.0
    expiries: int = 10_000


QUICK = Plan(rounds=1, deliveries=400, rate=100.0, seconds=2.0, expiries=200)
