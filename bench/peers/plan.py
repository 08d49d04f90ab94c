"""How much is measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """`deliveries` is the backlog of those that are quick; `window` the seconds that anybody gets to send it.

    `warm_up` deliveries go before. CPU time is counted until `afterwards` seconds after the last receipt.
    """

    rounds: int = 3
    endpoints: int = 100
    deliveries: int = 20_000
    window: float = 20.0
    warm_up: int = 1_000
    afterwards: float = 1.0


QUICK = Plan(rounds=1, deliveries=200, window=10.0, warm_up=100, afterwards=0.2)
