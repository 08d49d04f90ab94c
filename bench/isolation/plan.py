"""How much is measured, and of what."""

from dataclasses import dataclass

from bench.subscribers import TENANT, Subscription, expiries, orders

SLOW = Subscription(TENANT, "order.slow", "slow")
HANGING = Subscription(TENANT, "order.hanging", "hanging")


@dataclass(frozen=True, slots=True)
class Plan:
    """Each round is a run without and one with `slow` deliveries due to the slow endpoint and `hanging` to the other.

    Meanwhile `rate` events a second go to `endpoints` that answer at once, and `expiries` reservations a second end;
    for `seconds`. Then `parked` deliveries to the hanging endpoint are left alone for `idle` seconds.
    """

    rounds: int = 3
    seconds: float = 20.0
    endpoints: int = 100
    rate: float = 200.0
    expiries: float = 50.0
    slow: int = 5_000
    hanging: int = 3_000
    parked: int = 100_000
    idle: float = 30.0


QUICK = Plan(rounds=1, seconds=3.0, endpoints=10, rate=40.0, expiries=10.0, slow=60, hanging=40, parked=200, idle=2.0)


def fast(wanted: Plan) -> list[Subscription]:
    """The endpoints that answer at once."""
    return orders(wanted.endpoints)


def everybody(wanted: Plan) -> list[Subscription]:
    """All endpoints of a run, the bad ones too: whether they have anything due is all that differs."""
    return [*fast(wanted), expiries(), SLOW, HANGING]
