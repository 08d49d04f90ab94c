"""What the demo found out, and what of it is not right."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Lag:
    """Seconds between two moments, over many pairs of them."""

    p50: float
    p95: float
    p99: float
    most: float


def lag_of(seconds: Sequence[float]) -> Lag | None:
    """By nearest rank; None of nothing."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Lag(*(round(ordered[ceil(share * len(ordered)) - 1], 4) for share in (0.5, 0.95, 0.99, 1)))


@dataclass(frozen=True, slots=True)
class ReceiverReport:
    """`answers` as the receiver logged them, `outcomes` as the sender recorded them; effects by business key."""

    requests: int
    answers: Mapping[str, int]
    outcomes: Mapping[str, int]
    expected_effects: int
    effects: int
    duplicates_received: int
    duplicate_effects: int
    lost_effects: int
    unexpected_effects: int


@dataclass(frozen=True, slots=True)
class ReservationReport:
    """`confirmed_yet_expired` counts both kinds: confirmed in the ledger, and confirmed to the client.

    `not_expired_once` are those not confirmed which have not expired, or have not exactly one event that says so.
    """

    planned: int
    held: int
    confirmed: int
    expired: int
    confirms_accepted: int
    confirms_too_late: int
    confirmed_yet_expired: int
    not_expired_once: int
    expiry_lag: Lag | None


@dataclass(frozen=True, slots=True)
class Repairs:
    """Claims of dead workers that others took over, roles with a new process, and what the audit had to mend (0)."""

    claims_taken_over: int
    roles_restarted: int
    audit_repairs: int


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    seed: int
    seconds: float
    receivers: Mapping[str, ReceiverReport]
    reservations: ReservationReport
    delivery_lag: Lag | None
    faults: Sequence[str]
    unfinished: Sequence[str]
    repairs: Repairs

    def problems(self) -> list[str]:
        """A sentence for each thing that is not right; none when every business effect is."""
        return [*self.unfinished, *self._of_reservations(), *self._of_receivers()]

    def to_json(self) -> str:
        """All of it, and whether it is right."""
        problems = self.problems()
        return json.dumps({"right": not problems, "problems": problems, **asdict(self)}, indent=2)

    def _of_reservations(self) -> Iterator[str]:
        found = self.reservations
        if found.held != found.planned:
            yield f"{found.planned - found.held} reservations were not made."
        if found.confirmed_yet_expired:
            yield f"{found.confirmed_yet_expired} reservations were confirmed and expired all the same."
        if found.not_expired_once:
            yield f"{found.not_expired_once} reservations that nobody confirmed did not expire exactly once."
        if found.confirms_accepted != found.confirmed:
            yield f"{found.confirms_accepted} confirms were accepted, {found.confirmed} reservations are confirmed."

    def _of_receivers(self) -> Iterator[str]:
        for name, found in self.receivers.items():
            if found.lost_effects:
                yield f"{found.lost_effects} effects never happened at {name}."
            if found.duplicate_effects:
                yield f"{found.duplicate_effects} effects happened more than once at {name}."
            if found.unexpected_effects:
                yield f"{found.unexpected_effects} effects happened at {name} for no reason."
