"""Keeping the leases of what is in the air: for as long as a send may take, and no longer."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from app.core.threads import start_vital
from app.ledger.deliveries import Claim

LEFT = 1 / 3  # of its lease: a claim that has no more than this left is renewed
OVER = 1.1  # deadlines after its start a send is over, whatever came of it, or stuck
PACE = 1 / 10  # of a lease between two renewals, each for all that are due by then


@dataclass(slots=True)
class _Flight:
    """A claim in the air, in seconds of the monotonic clock."""

    token: UUID
    renew_at: float
    over_at: float


class Leases:
    """Renews, in a thread of its own, the claims that would outlive their lease by taking their whole deadline.

    `renew` is given tokens by delivery and returns those that it renewed. Where the lease is twice the deadline or
    so, as it is by default, there is nothing to renew and the thread sleeps. A send that is not over in its time is
    stuck: its lease is left to end, so that somebody else has the delivery.
    """

    def __init__(
        self, renew: Callable[[Mapping[int, UUID]], Collection[int]], *, lease: float, deadline: float
    ) -> None:
        self._renew = renew
        self._lease = lease
        self._deadline = deadline
        self._flights: dict[int, _Flight] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = start_vital("leases", self._run)

    def keep(self, claims: Iterable[Claim], claimed_at: float) -> None:
        """These are sent from now on; `claimed_at` is the monotonic time before they were claimed."""
        over_at, renew_at = time.monotonic() + self._deadline * OVER, self._renewal_after(claimed_at)
        if over_at <= renew_at:
            return
        with self._changed:
            self._flights |= {claim.delivery: _Flight(claim.token, renew_at, over_at) for claim in claims}
            self._changed.notify()

    def drop(self, claims: Iterable[Claim]) -> None:
        """These have ended; a newer claim on the same delivery goes on."""
        with self._changed:
            for claim in claims if self._flights else ():
                flight = self._flights.get(claim.delivery)
                if flight is not None and flight.token == claim.token:
                    del self._flights[claim.delivery]

    def stop(self) -> None:
        """Renew nothing any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _renewal_after(self, moment: float) -> float:
        return moment + self._lease * (1 - LEFT)

    def _run(self) -> None:
        while due := self._wait():
            asked_at = time.monotonic()
            renewed = self._renew({each: flight.token for each, flight in due.items()})
            for each, flight in due.items():
                flight.renew_at = self._renewal_after(asked_at) if each in renewed else asked_at
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, self._lease * PACE)

    def _wait(self) -> dict[int, _Flight]:
        """What must be renewed, as soon as something must; nothing when stopped."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                self._flights = {each: flight for each, flight in self._flights.items() if flight.over_at > now}
                if due := {each: flight for each, flight in self._flights.items() if flight.renew_at <= now}:
                    return due
                self._changed.wait(min((flight.renew_at - now for flight in self._flights.values()), default=None))
            return {}
