"""How far the demo has come, for its display, its faults and its end; the verdict looks for itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.demo.ledger import Counts
from app.demo.plan import SUBSCRIPTIONS, Plan

NOTHING = Counts(0, {})


@dataclass(slots=True)
class Tally:
    """`confirmed` and `late` are the reservations whose confirm the API answered with 200 and with 409.

    `open` is how much the ledger has not finished; None before the first look.
    """

    held: int = 0
    shipped: int = 0
    confirmed: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    expired: int = 0
    open: int | None = None
    receivers: Mapping[str, Counts] = field(default_factory=dict)

    def keys(self, receiver: str) -> int:
        """How many business keys have had an effect there."""
        return self.receivers.get(receiver, NOTHING).keys

    def answers(self, receiver: str, answer: str) -> int:
        """How many requests were answered so there."""
        return self.receivers.get(receiver, NOTHING).answers.get(answer, 0)

    def expected(self, receiver: str, plan: Plan) -> int:
        """How many business keys will have an effect there, as things stand."""
        ends = {"reservation.*": plan.reservations, "reservation.confirmed": len(self.confirmed)}
        ends["reservation.expired"] = plan.reservations - len(self.confirmed)
        return plan.orders + sum(ends.get(pattern, 0) for pattern in SUBSCRIPTIONS[receiver])

    def settled(self, plan: Plan) -> bool:
        """Whether nothing is open in the ledger and as many effects have happened as must."""
        return self.open == 0 and all(self.keys(name) >= self.expected(name, plan) for name in SUBSCRIPTIONS)
