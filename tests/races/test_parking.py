"""Parking against everything that wakes what is parked, in every order: nothing is stranded, nothing is sent twice."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from app.core import deliveries as core
from app.core import endpoints, pacing
from app.core.pacing import News
from app.domain.pacing import TROUBLES, Heard
from app.domain.states import Outcome
from tests.clock import Clock
from tests.ledgers import ROOM, TENANT, TERMS, an_endpoint, deliveries_of, row, rows, some_events
from tests.races.orders import Work, every_order

TURN = 200
MOST_LOOKS = 20


class Parked:
    """An endpoint with a delivery that is parked and one that is about to be."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self.endpoint = an_endpoint(engine)
        self.first, self.second = (
            each for event in some_events(engine, 2) for each in deliveries_of(engine, event) if self._mine(each)
        )
        core.park(engine, [self.first])

    def _mine(self, delivery: int) -> bool:
        return bool(row(self._engine, "deliveries", "id", delivery)["endpoint"] == self.endpoint)

    def park(self, engine: Engine) -> None:
        core.park(engine, [self.second])

    def attend(self, engine: Engine) -> None:
        pacing.attend(engine, {self.endpoint: TURN})

    def claim(self, engine: Engine) -> None:
        core.claim(engine, [self.first, self.second], TERMS, ROOM)

    def enable(self, engine: Engine) -> None:
        with engine.begin() as connection:
            endpoints.enable(connection, TENANT, self.endpoint)

    def disable(self, engine: Engine) -> None:
        with engine.begin() as connection:
            endpoints.disable(connection, TENANT, self.endpoint)

    def delete(self, engine: Engine) -> None:
        with engine.begin() as connection:
            endpoints.delete(connection, TENANT, self.endpoint)

    def trip(self, engine: Engine) -> None:
        pacing.hear(engine, [self._news(Outcome.FAILED)] * TROUBLES, timedelta(days=5))

    def recover(self, engine: Engine) -> None:
        pacing.hear(engine, [self._news(Outcome.DELIVERED)], timedelta(days=5))

    def _news(self, outcome: Outcome) -> News:
        revision = row(self._engine, "endpoints", "seq", self.endpoint)["revision"]
        return News(self.endpoint, revision, Heard(outcome, self._clock.now), "said")

    def settle(self) -> None:
        """Look at what is due, as a worker would, until nothing is; what is closed has its pause first."""
        for _ in range(MOST_LOOKS):
            given = pacing.attend(self._engine, dict.fromkeys(self._due("endpoint"), TURN)).slots
            ids = {each for slots in given.values() for _, each in slots} | set(self._due("delivery"))
            if not ids and not self._due("endpoint", within="10 s"):
                return
            if ids:
                away = core.claim(self._engine, sorted(ids), TERMS, ROOM).turned_away
                core.park(self._engine, sorted(away))
            self._clock.advance(seconds=1)

    def _due(self, kind: str, within: str = "0 s") -> list[int]:
        due = """SELECT ref FROM duehook.outbox WHERE endpoint = :endpoint AND kind = :kind
                    AND look_at <= duehook.now() + CAST(:within AS interval)"""
        return rows(self._engine, due, endpoint=self.endpoint, kind=kind, within=within)

    def check(self) -> None:
        self.settle()
        self.recover(self._engine)  # a probe's success, if it was closed
        self.settle()
        endpoint = row(self._engine, "endpoints", "seq", self.endpoint)
        states = [row(self._engine, "deliveries", "id", each) for each in (self.first, self.second)]
        if endpoint["deleted_at"] is not None:
            assert {each["status"] for each in states} <= {"cancelled", "leased"}
        elif endpoint["status"] == "disabled":
            assert {(each["status"], each["parked"]) for each in states} <= {("scheduled", True), ("leased", False)}
            self.enable(self._engine)
            self.check()
        else:
            assert [(each["status"], each["attempt"]) for each in states] == [("leased", 1)] * 2


Doing = Callable[[Parked], Work]
PAIRS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "parking and a look": ((), ("park", "attend")),
    "parking and a look at what is claimed already": (("claim_first",), ("park", "attend")),
    "parking and enabling": (("disable", "attend"), ("park", "enable")),
    "parking and disabling": ((), ("park", "disable")),
    "parking and deleting": ((), ("park", "delete")),
    "parking and a claim": ((), ("park", "claim")),
    "parking and a breaker that closes": ((), ("park", "trip")),
    "parking and a breaker that opens": (("trip",), ("park", "recover")),
    "a look and enabling": (("disable", "attend"), ("attend", "enable")),
    "a look and disabling": ((), ("attend", "disable")),
    "a look and deleting": ((), ("attend", "delete")),
    "a look and a claim": ((), ("attend", "claim")),
    "a look and a breaker that closes": ((), ("attend", "trip")),
    "a look and a breaker that opens": (("trip",), ("attend", "recover")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_in_every_order(engine: Engine, database_url: str, clock: Clock, name: str) -> None:
    before, together = PAIRS[name]

    def begin() -> tuple[Sequence[Work], Callable[[], None]]:
        parked = Parked(engine, clock)
        for each in before:
            if each == "claim_first":
                core.claim(engine, [parked.first], TERMS, ROOM)
            else:
                getattr(parked, each)(engine)
        return [getattr(parked, each) for each in together], parked.check

    assert every_order(database_url, begin) >= 5
