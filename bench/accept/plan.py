"""How much is measured, and of what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Each round posts single events over `connections` and lists of `batch` over `batches`, each for `seconds`.

    Then `tenants` post `rate` single events a second together for `seconds`, alone, beside one more that floods the
    API with single events over `flood` connections, and beside one that floods it with lists. Every event goes to
    `endpoints` endpoints.
    """

    rounds: int = 3
    seconds: float = 8.0
    endpoints: int = 3
    connections: int = 8
    batch: int = 1_000
    batches: int = 2
    tenants: int = 49
    rate: float = 50.0
    flood: int = 32


QUICK = Plan(rounds=1, seconds=1.0, connections=2, batch=20, tenants=4, rate=20.0, flood=4)
