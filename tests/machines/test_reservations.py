"""Reservations: held, confirmed, released, expired; by the core, by a producer's own SQL, and by the clock."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.core import events, reservations
from app.core.events import KeyTaken
from app.core.reservations import Held, Hold, Refused
from app.domain.wakeups import Answer
from app.ledger.events import NewEvent
from app.ledger.reservations import Reservation
from tests.ledgers import TENANT
from tests.machines.ground import HORIZON, Ground, Rows
from tests.machines.relaying import ALL, Relaying, beside, number, some
from tests.machines.running import PATIENCE, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]

LEGAL = {("held", "confirmed"), ("held", "released"), ("held", "expired"), ("confirmed", "released")}
SITUATIONS = [
    "confirmed at the last moment",
    "confirmed too late, expired on the spot",
    "expired at the very instant",
    "expired too early",
    "expired twice",
    "confirmed twice",
    "released after its confirmation",
    "an illegal transition is refused",
    "a late confirm by SQL is refused",
    "an early expiry by SQL is passed over",
    "an overdue holder makes room",
    "a holder keeps its resource",
    "the same request again",
    "another request with the same id",
    "a producer has the key that a transition needs",
]


@dataclass
class Mine:
    """A reservation as it must be."""

    id: str
    resource: str
    expires_at: datetime
    exclusive: bool
    request: str
    updated_at: datetime
    seq: int = 0
    status: str = "held"
    version: int = 1


class Reservations(Relaying):
    """Two resources, so that exclusive ones meet."""

    tables: ClassVar = ["reservations", "outbox", "repairs", "deliveries"]

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.all: dict[str, Mine] = {}
        self.told: dict[tuple[str, str], tuple[str, object]] = {}  # (origin, key) -> type, what it says
        self.bodies: dict[tuple[str, str], str] = {}

    # What follows from a transition

    def move(self, one: Mine, status: str) -> None:
        one.status, one.version, one.updated_at = status, one.version + 1, self.now
        self.outbox.close(one.seq)
        kind = f"reservation.{status}"
        self.told["service", f"{kind}:{one.id}:v{one.version}"] = (kind, {"status": status, "version": one.version})
        if ("producer", f"{kind}:{one.id}:v{one.version}") in self.told:
            self.see("a producer has the key that a transition needs")

    def is_due(self, one: Mine) -> bool:
        return one.expires_at <= self.now

    def pick(self, index: int) -> Mine:
        return list(self.all.values())[-1 - index % len(self.all)]

    # Holding

    @rule(
        identity=st.sampled_from([None, None, None, "rsv_a", "rsv_b"]),
        resource=st.sampled_from(["seat", "room"]),
        seconds=st.sampled_from([1, 30, 30, 600]),
        exclusive=st.booleans(),
    )
    def hold(self, identity: str | None, resource: str, seconds: int, exclusive: bool) -> None:
        request = "as ever" if identity == "rsv_a" else f"{resource} {seconds} {exclusive}"
        asked = Hold(resource, identity, seconds, exclusive=exclusive, data='{"n": 1.0}', request=request)
        expected = self.expect_hold(identity, resource, request, exclusive)
        answer = self.ground.do(lambda connection: reservations.hold(connection, TENANT, asked))
        if expected is not None:
            assert (type(answer), getattr(answer, "made", None)) == expected
            return
        assert isinstance(answer, Held) and answer.made
        found = answer.reservation
        one = Mine(found.id, resource, self.now + timedelta(seconds=seconds), exclusive, request, self.now)
        row = self.ground.sql.execute("SELECT seq FROM duehook.reservations WHERE id = %s", [found.id]).fetchone()
        assert row is not None
        one.seq = row[0]
        self.all[one.id] = one
        self.outbox.set(one.seq, "reservation", 0, one.expires_at, one.expires_at - HORIZON)

    def expect_hold(
        self, identity: str | None, resource: str, request: str, exclusive: bool
    ) -> tuple[type, bool | None] | None:
        """None when there will be a new one."""
        holders = [
            one
            for one in self.all.values()
            if exclusive and one.exclusive and one.resource == resource and one.status in ("held", "confirmed")
        ]
        for one in holders:
            if one.status == "held" and self.is_due(one):
                self.move(one, "expired")
                self.see("an overdue holder makes room")
        existing = self.all.get(identity or "")
        if existing is not None and existing.request == request:
            self.see("the same request again")
            return Held, False
        if existing is not None:
            self.see("another request with the same id")
            return Refused, None
        if any(one.status in ("held", "confirmed") for one in holders):
            self.see("a holder keeps its resource")
            return Refused, None
        return None

    # Ending

    @precondition(lambda self: self.all)
    @rule(index=number)
    def confirm(self, index: int) -> None:
        one = self.pick(index)
        before = one.status
        if before == "held" and self.is_due(one):
            self.move(one, "expired")
            self.see("confirmed too late, expired on the spot")
        elif before == "held":
            self.move(one, "confirmed")
            self.see(*["confirmed at the last moment"] * (one.expires_at - self.now < timedelta(seconds=1)))
        self.see(*["confirmed twice"] * (before == "confirmed"))
        answer = self.ground.do(lambda connection: reservations.confirm(connection, TENANT, one.id))
        assert isinstance(answer, Reservation if one.status == "confirmed" else Refused)

    @precondition(lambda self: self.all)
    @rule(index=number)
    def release(self, index: int) -> None:
        one = self.pick(index)
        self.see(*["released after its confirmation"] * (one.status == "confirmed"))
        if one.status in ("held", "confirmed"):
            self.move(one, "released")
        answer = self.ground.do(lambda connection: reservations.release(connection, TENANT, one.id))
        assert isinstance(answer, Reservation if one.status == "released" else Refused)

    @precondition(lambda self: self.all)
    @rule(indexes=some | st.just(ALL))
    def expire(self, indexes: list[int]) -> None:
        chosen = {one.seq: one for one in map(self.pick, indexes)}
        expected = {1: Answer.GONE}
        for seq, one in chosen.items():
            if one.status != "held":
                expected[seq] = Answer.GONE
                self.see(*["expired twice"] * (one.status == "expired"))
            elif self.is_due(one):
                expected[seq] = Answer.TAKEN
                self.move(one, "expired")
                self.see(*["expired at the very instant"] * (one.expires_at == self.now))
            else:
                expected[seq] = Answer.EARLY
                self.outbox.sooner(seq, self.now)
                self.see("expired too early")
        looked = reservations.expire(self.ground.engine, [1, *chosen])
        assert (looked.answers, looked.again) == (expected, [])

    @precondition(lambda self: self.all)
    @rule(index=number, beside=beside, confirms=st.booleans())
    def meets_its_end(self, index: int, beside: float, confirms: bool) -> None:
        """On either side of the instant that decides; what then follows are the steps of every day."""
        self.go_on_to(self.pick(index).expires_at, beside)
        self.confirm(index) if confirms else self.expire([index])

    # What a producer may try by SQL

    @precondition(lambda self: self.all)
    @rule(index=number, status=st.sampled_from(["held", "confirmed", "released", "expired"]))
    def sql_moves(self, index: int, status: str) -> None:
        one = self.pick(index)
        expected = None
        if status == one.status:
            pass
        elif (one.status, status) not in LEGAL:
            expected = "DH001"
            self.see("an illegal transition is refused")
        elif status == "confirmed" and self.is_due(one):
            expected = "DH002"
            self.see("a late confirm by SQL is refused")
        elif status == "expired" and not self.is_due(one):
            self.see("an early expiry by SQL is passed over")
        else:
            self.move(one, status)
        statement = "UPDATE duehook.reservations SET status = %s WHERE tenant = 'acme' AND id = %s"
        assert self.ground.refused(statement, status, one.id) == expected

    @precondition(lambda self: self.all)
    @rule(index=number, status=st.sampled_from(["confirmed", "released", "expired"]))
    def sql_breaks_in(self, index: int, status: str) -> None:
        """A rewritten time, an event that only the service may tell, the business key that a transition needs."""
        one, sql = self.pick(index), self.ground.refused
        later = "UPDATE duehook.reservations SET expires_at = expires_at + interval '1 minute' WHERE id = %s"
        forged = "INSERT INTO duehook.events (tenant, type, data) VALUES ('acme', 'reservation.expired', '{}')"
        assert (sql(later, one.id), sql(forged)) == ("DH003", "DH005")
        key = f"reservation.{status}:{one.id}:v{one.version + 1}"
        known = ("producer", key) in self.told
        self.told["producer", key] = ("order.placed", {"status": "mine", "version": None})
        event = NewEvent("order.placed", '{"status": "mine"}', key)
        (answer,) = self.ground.do(lambda connection: events.accept_each(connection, TENANT, [event]))
        assert not isinstance(answer, KeyTaken) and answer.made is not known

    # What must be there

    def expected(self, found: Rows) -> Rows:
        self.every_event_is_there()
        rows = {
            one.id: (one.resource, one.status, one.version, one.expires_at, one.exclusive, one.updated_at)
            for one in self.all.values()
        }
        return {"reservations": rows, "outbox": self.outbox.rows(), "repairs": {}, "deliveries": {}}

    def every_event_is_there(self) -> None:
        """One for each transition, with what it says, in the bytes in which it was first seen."""
        rows = self.ground.read(["events"])["events"].values()
        assert len(rows) == len(self.told)
        for origin, kind, key, *_, body in rows:
            said = json.loads(body)["data"]
            told = self.told[origin, key]
            assert told == (kind, {name: said.get(name) for name in ("status", "version")})
            assert self.bodies.setdefault((origin, key), body) == body


def test_reservations_are_as_the_model_says_after_every_step(ground: Ground) -> None:
    run(ground, Reservations, examples=20, steps=1000, situations=SITUATIONS)
