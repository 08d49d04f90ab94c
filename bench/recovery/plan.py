"""How much is overdue, and what comes meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from bench.subscribers import TENANT, Subscription, expiries, orders

TENANTS = 20
ORDERS = 4  # types of order that a tenant's endpoints want; a fifth endpoint wants its expired reservations
FLOOD = 0.7  # of everything is one tenant's


@dataclass(frozen=True, slots=True)
class Plan:
    """What `overdue` counts was due within `stop` seconds, evenly, and the service was not there.

    Fresh events come at `events` a second for as long as anything overdue is left and `seconds` at least, half of
    them for the flooded tenant; reservations at `reservations` a second are held for one to three seconds. `steady` is
    how many deliveries the rate without all that is measured with, as many of them news of expiries in proportion;
    `instant` how many reservations end at one moment.
    """

    expiries: int = 100_000
    deliveries: int = 300_000
    stop: float = 24 * 3600.0
    events: float = 50.0
    reservations: float = 10.0
    seconds: float = 2.0
    steady: int = 60_000
    instant: int = 10_000

    @property
    def steady_expiries(self) -> int:
        """Of the `steady` deliveries: expiring costs as well, and is in both rates."""
        return round(self.steady * self.expiries / (self.expiries + self.deliveries))


QUICK = Plan(expiries=300, deliveries=900, steady=400, instant=200)


def tenants() -> list[str]:
    """The flooded one comes first."""
    return [TENANT, *(f"{TENANT}-{number}" for number in range(1, TENANTS))]


def subscriptions() -> list[Subscription]:
    """A hundred endpoints; each event of this benchmark is wanted by one of them."""
    return [each for tenant in tenants() for each in (*orders(ORDERS, tenant), expiries(tenant))]


def flooded() -> list[Subscription]:
    """Where most of the orders go."""
    return orders(ORDERS)


def others() -> list[Subscription]:
    """Where the other tenants' orders go."""
    return [each for tenant in tenants()[1:] for each in orders(ORDERS, tenant)]


def mixed() -> list[Subscription]:
    """In turn these are what `FLOOD` says."""
    return _mixed(flooded(), others())


def mixed_tenants() -> list[str]:
    """The same for tenants."""
    return [each.tenant for each in mixed()]


def _mixed(few: Sequence[Subscription], many: Sequence[Subscription]) -> list[Subscription]:
    times = round(len(many) * FLOOD / (1 - FLOOD) / len(few))
    turns = [*many, *(each for each in few for _ in range(times))]
    Random(0).shuffle(turns)
    return turns
