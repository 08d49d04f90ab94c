"""What the demo will do, decided before it begins."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SUBSCRIPTIONS: Mapping[str, tuple[str, ...]] = {
    "storefront": ("order.*", "reservation.*"),
    "warehouse": ("order.*", "reservation.confirmed", "reservation.expired"),
    "notifications": ("order.*", "reservation.expired"),
}
LAST_MOMENTS = 0.3  # seconds before a reservation expires, in which half of the confirms come


@dataclass(frozen=True, slots=True)
class Hold:
    """One reservation: when to ask for it, for how long, and when to confirm it, if at all.

    `confirm_before` is how long before its end a confirm is to arrive; small ones race against the expiry.
    """

    at: float
    id: str
    resource: str
    seconds: float
    confirm_before: float | None


@dataclass(frozen=True, slots=True)
class Shipment:
    """Orders that are posted together: one alone as an event, several as a list."""

    at: float
    orders: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds` is what the work is spread over, `patience` what all of it may take until the last effect."""

    reservations: int = 2_000
    orders: int = 500
    seconds: float = 25.0
    patience: float = 110.0
    windows: tuple[float, float] = (2.0, 6.0)
    batch: int = 25
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(1_000_000))

    def holds(self) -> Iterator[Hold]:
        """In order of time; every third is to be confirmed, half of these in the last moments."""
        chance = random.Random(self.seed)
        for number in range(self.reservations):
            window = round(chance.uniform(*self.windows), 3)
            last_moments, earlier = chance.uniform(0, LAST_MOMENTS), chance.uniform(LAST_MOMENTS, window)
            before = (last_moments if number % 2 else earlier) if number % 3 == 0 else None
            at = self.seconds * number / self.reservations
            yield Hold(at, f"rsv_demo{number:05}", f"seat {number}", window, before)

    def shipments(self) -> Iterator[Shipment]:
        """In order of time; half of the orders come one by one, half in batches."""
        single = self.orders // 2
        sizes = [1] * single + [self.batch] * ((self.orders - single) // self.batch)
        sizes += [self.orders - sum(sizes)] if sum(sizes) < self.orders else []
        random.Random(self.seed).shuffle(sizes)
        first = 0
        for size in sizes:
            yield Shipment(self.seconds * first / self.orders, tuple(order(first + number) for number in range(size)))
            first += size

    def order_keys(self) -> set[str]:
        """The business keys of all orders."""
        return {order_key(number) for number in range(self.orders)}


def order_key(number: int) -> str:
    """What an order is known by everywhere."""
    return f"order:{number:05}"


def order(number: int) -> dict[str, Any]:
    """An event as it is posted."""
    data = {"order": number, "lines": [{"sku": f"seat-{number}", "count": 1 + number % 4}], "note": "¡Olé! \N{ROCKET}"}
    return {"type": "order.placed", "key": order_key(number), "data": data}
