"""The judge of a chaos run is judged: a right world has no violation, and each way to be wrong is named.

The world is small and real: a migrated database, filled by the service's own core, and the receivers' own files.
"""

import copy
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine

from app.client import Accepted, Reservation
from app.core import deliveries as core
from app.core import reservations
from app.core.reservations import Hold
from app.domain.identity import public_id
from app.domain.states import Outcome
from app.ledger.database import connect_engine
from app.local.postgres import Postgres
from tests.chaos.accounts import Place, read
from tests.chaos.judges import LATE, Verdict, judge_accounts
from tests.chaos.load import RESOURCE, Act, Told, askings
from tests.chaos.plan import Plan, Step, payload_of
from tests.chaos.receiver import TABLES
from tests.clock import Clock
from tests.ledgers import TENANT, TERMS, an_endpoint, claimed, ending, rows, some_events

DATABASE = "chaos_verdict"
RECEIVERS = ("quick", "other")
SINGLE, SCHEDULED = "single:1:0", "scheduled:2:0"
PLAN = Plan(seed=1, deliveries=2_000, faults=0, minutes=1.0)
EXPIRED, CONFIRMED = "reservation.expired:rsv_3:v2", "reservation.confirmed:rsv_4:v2"


class Builder:
    """Makes things happen in the database, and writes down what receivers would keep of them."""

    def __init__(self, engine: Engine, clock: Clock, folder: Path) -> None:
        self.engine, self.clock = engine, clock
        self.places = [Place(name, TENANT, f"http://127.0.0.1:9/{name}", folder / name) for name in RECEIVERS]
        for place in self.places:
            an_endpoint(engine, url=place.url)
            with closing(sqlite3.connect(place.path)) as ledger:
                ledger.executescript(TABLES)

    @property
    def now(self) -> float:
        return self.clock.now.timestamp()

    def post(self, key: str, delay_seconds: float | None = None) -> str:
        """The id of a new event."""
        data = json.dumps(payload_of(key))
        (seq,) = some_events(self.engine, key=key, data=data, delay_seconds=delay_seconds)
        return str(rows(self.engine, "SELECT id FROM duehook.events WHERE seq = :seq", seq=seq)[0])

    def hold(self, id: str) -> float:
        """When it ends."""
        with self.engine.begin() as connection:
            held = reservations.hold(connection, TENANT, Hold(RESOURCE, id=id, hold_seconds=5))
            assert isinstance(held, reservations.Held)
            return held.reservation.expires_at.timestamp()

    def expire(self, id: str) -> None:
        reservations.expire(
            self.engine, rows(self.engine, "SELECT seq FROM duehook.reservations WHERE id = :id", id=id)
        )

    def attempt(self, key: str, receiver: str, outcome: Outcome | None, answer: str | None) -> None:
        """One claim, what was recorded of it, and what the receiver kept of it, if that was anything."""
        at = self.clock.now
        (delivery,) = rows(
            self.engine,
            "SELECT d.id FROM duehook.deliveries d JOIN duehook.events e ON e.seq = d.event"
            " JOIN duehook.endpoints n ON n.seq = d.endpoint WHERE e.key = :key AND n.url LIKE '%' || :receiver",
            key=key,
            receiver=receiver,
        )
        (claim,) = claimed(self.engine, delivery)
        if answer:
            self._keep(key, receiver, claim.attempt, delivery, answer)
        if outcome:
            end = ending(claim, outcome, started_at=at, ended_at=at, after=timedelta(seconds=1))
            core.record(self.engine, [end], max_age=TERMS.max_age)

    def _keep(self, key: str, receiver: str, number: int, delivery: int, answer: str) -> None:
        said = "SELECT id || ' ' || type || ' ' || head || data::text || '}' FROM duehook.events WHERE key = :key"
        id, type, body = rows(self.engine, said, key=key)[0].split(" ", 2)
        digest = hashlib.sha256(body.encode()).hexdigest()
        (place,) = (each for each in self.places if each.name == receiver)
        with closing(sqlite3.connect(place.path, isolation_level=None)) as ledger:
            known = (id, number, public_id("dlv", delivery), digest, answer, self.now)
            ledger.execute("INSERT INTO requests VALUES (?,?,?,?,?,?)", known)
            if answer == "applied":
                ledger.execute("INSERT INTO effects VALUES (?,?,?,?)", (id, key, type, self.now))


@dataclass(slots=True)
class World:
    """The three accounts, to be spoiled: `sql` is of a transaction that is rolled back, the rest are copies."""

    connection: psycopg.Connection[Any]
    places: list[Place]
    told: Told
    over_at: float

    def sql(self, statement: str) -> "World":
        assert self.connection.execute(statement.encode()).rowcount, "nothing was spoiled"
        return self

    def without(self, guard: str) -> "World":
        """Or the database would not let itself be spoiled."""
        self.connection.execute(guard.encode())
        return self

    def ledger(self, statement: str) -> "World":
        """Of the quick receiver."""
        with closing(sqlite3.connect(self.places[0].path, isolation_level=None)) as ledger:
            assert ledger.execute(statement).rowcount, "nothing was spoiled"
        return self

    def act(self, id: str, **changes: Any) -> None:
        self.told.acts[id] = replace(self.told.acts[id], **changes)

    def judged(self) -> Verdict:
        verdict = Verdict()
        judge_accounts(verdict, read(self.connection, self.places, self.told), self.over_at)
        return verdict


def build(engine: Engine, clock: Clock, folder: Path) -> tuple[list[Place], Told, float]:
    """One event was delivered at once, one scheduled one with trouble; a reservation was confirmed, one expired."""
    made = Builder(engine, clock, folder)
    began, ids = made.now, {SINGLE: made.post(SINGLE), SCHEDULED: made.post(SCHEDULED, 5)}
    held = {id: made.hold(id) for id in ("rsv_3", "rsv_4")}
    for receiver in RECEIVERS:
        made.attempt(SINGLE, receiver, Outcome.DELIVERED, "applied")
    clock.advance(seconds=1)
    with engine.begin() as connection:
        reservations.confirm(connection, TENANT, "rsv_4")
    for receiver in RECEIVERS:
        made.attempt(CONFIRMED, receiver, Outcome.DELIVERED, "applied")
    clock.advance(seconds=4)
    made.expire("rsv_3")
    made.attempt(SCHEDULED, "other", Outcome.DELIVERED, "applied")
    made.attempt(EXPIRED, "other", Outcome.DELIVERED, "applied")
    made.attempt(SCHEDULED, "quick", Outcome.THROTTLED, "throttled")
    made.attempt(EXPIRED, "quick", Outcome.UNREACHED, None)
    clock.advance(seconds=1)
    made.attempt(EXPIRED, "quick", Outcome.DELIVERED, "applied")
    made.attempt(SCHEDULED, "quick", None, "applied")  # and its worker dies
    clock.advance(seconds=TERMS.lease.total_seconds())
    made.attempt(SCHEDULED, "quick", Outcome.DELIVERED, "duplicate")
    told = Told(
        expected={(TENANT, SINGLE), (TENANT, SCHEDULED)},
        rolled_back={(TENANT, "rolled-back:9:0")},
        ids={(TENANT, key): {id} for key, id in ids.items()},
        due={SINGLE: began, SCHEDULED: began + 5},
        windows={
            SINGLE: (began, began),
            SCHEDULED: (began + 5, began + 5),
            **dict.fromkeys(held, (began + 5, began + 5)),
        },
        held=held,
        tenants=dict.fromkeys(held, TENANT),
        acts={
            "rsv_3": Act("confirm", began + 6, began + 6, yes=False),
            "rsv_4": Act("confirm", began + 1, began + 1, yes=True),
        },
    )
    return made.places, told, began


@pytest.fixture(scope="module")
def built(
    postgres: Postgres, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[Place], Told, float]]:
    """A right world, and the URL of its database."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE {template}".encode())
    url = postgres.url_of(DATABASE)
    engine = connect_engine(url, application_name="test")
    with psycopg.connect(url, autocommit=True) as connection:
        yield url, *build(engine, Clock(connection), tmp_path_factory.mktemp("ledgers"))
    engine.dispose()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)".encode())


@pytest.fixture
def world(built: tuple[str, list[Place], Told, float], tmp_path: Path) -> Iterator[World]:
    """As it was built, whatever tests before have done."""
    url, places, told, began = built
    copies = [replace(each, path=Path(shutil.copy(each.path, tmp_path))) for each in places]
    with psycopg.connect(url) as connection:
        connection.execute("SET session_replication_role = replica")  # the guards would not let it be spoiled
        yield World(connection, copies, copy.deepcopy(told), began)
        connection.rollback()


def test_a_right_world_has_no_violation(world: World) -> None:
    verdict = world.judged()
    assert not verdict.violations
    assert (verdict.events, verdict.wanted, verdict.lost, verdict.duplicate_effects) == (4, 8, 0, 0)
    assert (verdict.requests, verdict.repeatable, verdict.overtaken, verdict.latest) == (10, 1, 0, 1.0)


Spoils = Callable[[World], object]
A_SECOND_EVENT = """
    INSERT INTO duehook.events (seq, tenant, origin, type, key, data, created_at, due_at, fanned_out_at)
    SELECT 1, tenant, origin, type, '{key}', data, created_at, due_at, fanned_out_at
      FROM duehook.events WHERE key = '{of}'"""
A_SECOND_DELIVERY = """
    INSERT INTO duehook.deliveries (tenant, event, endpoint, status, next_attempt_at, age_from, delivered_at)
    SELECT tenant, event, endpoint, status, next_attempt_at, age_from, delivered_at
      FROM duehook.deliveries ORDER BY id LIMIT 1"""
SWAPPED = """
    UPDATE duehook.endpoints SET url = CASE WHEN url LIKE '%/quick' THEN replace(url, 'quick', 'other')
                                            ELSE replace(url, 'other', 'quick') END"""
OF_QUICK = """
    delivery = (SELECT d.id FROM duehook.deliveries d JOIN duehook.endpoints n ON n.seq = d.endpoint
                  JOIN duehook.events e ON e.seq = d.event WHERE n.url LIKE '%/quick' AND e.key = '{of}')"""


def an_event_more(key: str, of: str) -> str:
    return A_SECOND_EVENT.format(key=key, of=of)


def attempt_becomes(outcome: str, number: int, of: str) -> str:
    return f"UPDATE duehook.attempts SET outcome = '{outcome}' WHERE number = {number} AND {OF_QUICK.format(of=of)}"


def end_says(path: str, value: str) -> str:
    """In the event of the expiry; its body, and so what receivers got, is another then, too."""
    return f"UPDATE duehook.events SET data = jsonb_set(data::jsonb, '{{{path}}}', '{value}') WHERE key = '{EXPIRED}'"


def at(key: str) -> str:
    """The requests of an event, in the ledger of a receiver."""
    return f"event = (SELECT event FROM effects WHERE key = '{key}')"


WRONG: dict[str, tuple[Spoils, str]] = {
    # the database against what producers were told
    "an accepted event is gone": (
        lambda w: w.sql(f"DELETE FROM duehook.events WHERE key = '{SINGLE}'"),
        "1 accepted events are not there",
    ),
    "a rolled back event is there": (
        lambda w: w.sql(an_event_more("rolled-back:9:0", SINGLE)),
        "though they were rolled back",
    ),
    "an event twice": (
        lambda w: w.without("DROP INDEX duehook.events_key").sql(an_event_more(SINGLE, SINGLE)),
        "1 events are there more than once",
    ),
    "an event that nobody posted": (lambda w: w.sql(an_event_more("x", SINGLE)), "that nobody posted"),
    "an event of another tenant": (
        lambda w: w.sql(f"UPDATE duehook.events SET tenant = 'globex' WHERE key = '{SINGLE}'"),
        "1 accepted events are not there",
    ),
    "other data": (
        lambda w: w.sql(f"UPDATE duehook.events SET data = '{{}}' WHERE key = '{SINGLE}'"),
        "1 events hold something else than was posted",
    ),
    "another type": (
        lambda w: w.sql(f"UPDATE duehook.events SET type = 'order.x' WHERE key = '{SINGLE}'"),
        "1 events hold something else than was posted",
    ),
    "another id than was told": (
        lambda w: w.told.ids.update({(TENANT, SINGLE): {"evt_8"}}),
        "1 events have another id than producers were told",
    ),
    "two ids for a repeat": (
        lambda w: w.told.ids[TENANT, SINGLE].add("evt_8"),
        "1 events have another id than producers were told",
    ),
    "due at another time than was told": (
        lambda w: w.told.due.update({SINGLE: w.over_at + 1}),
        "1 events are due at another time",
    ),
    "due sooner than was asked for": (
        lambda w: w.told.windows.update({SCHEDULED: (w.over_at + 6, w.over_at + 9)}),
        "1 events are due at another time",
    ),
    "due later than was asked for": (
        lambda w: w.told.windows.update({SCHEDULED: (w.over_at, w.over_at + 4)}),
        "1 events are due at another time",
    ),
    "an answer that contradicts": (lambda w: w.told.contradictions.append("two answers"), "two answers"),
    "a reservation is gone": (
        lambda w: w.sql("DELETE FROM duehook.reservations WHERE id = 'rsv_3'"),
        "1 reservations are missing, or nobody asked for them",
    ),
    "a reservation that nobody asked for": (lambda w: w.told.held.pop("rsv_3"), "or nobody asked for them"),
    "a reservation of another tenant": (
        lambda w: w.sql("UPDATE duehook.reservations SET tenant = 'globex' WHERE id = 'rsv_3'"),
        "1 reservations are another tenant's",
    ),
    "another end than was told": (
        lambda w: w.sql("UPDATE duehook.reservations SET expires_at = expires_at + interval '1s' WHERE id = 'rsv_3'"),
        "1 reservations end at another time",
    ),
    "another end than was asked for": (
        lambda w: w.told.windows.update(rsv_3=(w.over_at + 6, w.over_at + 6)),
        "1 reservations end at another time",
    ),
    "expired though it was confirmed": (lambda w: w.act("rsv_3", yes=True), "1 reservations ended otherwise"),
    "confirmed though it was refused": (
        lambda w: w.sql("UPDATE duehook.reservations SET status = 'confirmed' WHERE id = 'rsv_3'"),
        "1 reservations ended otherwise",
    ),
    "confirmed though it was released": (lambda w: w.act("rsv_4", what="release"), "1 reservations ended otherwise"),
    "held for ever": (
        lambda w: w.sql("UPDATE duehook.reservations SET status = 'held' WHERE id = 'rsv_3'"),
        "1 reservations ended otherwise",
    ),
    "confirmed too late": (
        lambda w: w.act("rsv_4", asked_at=w.over_at + 5.1),
        "rsv_4 was confirmed though it was asked for after its end",
    ),
    "refused too soon": (
        lambda w: w.act("rsv_3", answered_at=w.over_at + 4.9),
        "confirm of rsv_3 was refused before its end",
    ),
    "no news of an end": (
        lambda w: w.sql(f"DELETE FROM duehook.events WHERE key = '{EXPIRED}'"),
        "rsv_3 is expired, and its events say []",
    ),
    "news of another end": (lambda w: w.sql(end_says("status", '"released"')), "rsv_3 is expired, and its events say"),
    "news of another reservation": (lambda w: w.sql(end_says("id", '"rsv_4"')), "rsv_3 is expired, and its events say"),
    "news of another resource": (lambda w: w.sql(end_says("resource", '"x"')), "rsv_3 is expired, and its events say"),
    "news of another version": (lambda w: w.sql(end_says("version", "3")), "rsv_3 is expired, and its events say"),
    "news without a time": (lambda w: w.sql(end_says("expires_at", "null")), "rsv_3 is expired, and its events say"),
    "news of an end twice": (
        lambda w: w.sql(an_event_more("reservation.expired:rsv_3:v3", EXPIRED)),
        "rsv_3 is expired, and its events say",
    ),
    "news of nobody's end": (
        lambda w: w.sql(an_event_more("reservation.expired:rsv_8:v2", EXPIRED)),
        "1 events end no reservation",
    ),
    # the database against the receivers
    "a delivery is gone": (
        lambda w: w.sql(
            f"DELETE FROM duehook.deliveries WHERE event = (SELECT seq FROM duehook.events WHERE key = '{SINGLE}')"
        ),
        "2 deliveries are not there",
    ),
    "a delivery twice": (
        lambda w: w.without("ALTER TABLE duehook.deliveries DROP CONSTRAINT deliveries_event_endpoint_key").sql(
            A_SECOND_DELIVERY
        ),
        "1 deliveries are there more than once",
    ),
    "a delivery to somebody else": (
        lambda w: w.sql("UPDATE duehook.endpoints SET url = url || '/x' WHERE url LIKE '%/quick'"),
        "deliveries go where they should not",
    ),
    "a delivery that died": (
        lambda w: w.sql(f"""UPDATE duehook.deliveries SET status = 'dead', reason = 'gone', delivered_at = NULL
                 WHERE id = (SELECT delivery FROM duehook.attempts WHERE {OF_QUICK.format(of=SINGLE)})"""),
        "1 deliveries are not delivered",
    ),
    "a request of another's delivery": (
        lambda w: w.ledger(f"UPDATE requests SET delivery = 'dlv_1' WHERE {at(SINGLE)}"),
        "1 requests came to quick of deliveries that are not its own",
    ),
    "requests of deliveries to somebody else": (
        lambda w: w.sql(SWAPPED),
        "6 requests came to quick of deliveries that are not its own",
    ),
    "an effect is lost": (
        lambda w: w.ledger(f"DELETE FROM effects WHERE key = '{SINGLE}'"),
        "1 effects are lost at quick",
    ),
    "an effect twice": (
        lambda w: w.ledger("INSERT INTO effects SELECT * FROM effects LIMIT 1"),
        "1 effects happened twice at quick",
    ),
    "an effect of nothing": (
        lambda w: w.ledger("INSERT INTO effects VALUES ('evt_9', NULL, 'order.placed', 0)"),
        "1 effects of events that were never committed happened at quick",
    ),
    "an unverified request": (
        lambda w: w.ledger(f"UPDATE requests SET answer = 'unverified no_match' WHERE {at(SINGLE)}"),
        "1 signatures did not verify at quick",
    ),
    "other bytes on a retry": (
        lambda w: w.ledger("UPDATE requests SET body = '0' WHERE answer = 'duplicate'"),
        "1 requests to quick had other bytes",
    ),
    "one attempt on two requests": (
        lambda w: w.ledger("INSERT INTO requests SELECT * FROM requests LIMIT 1"),
        "1 deliveries to quick had the same attempt number",
    ),
    "a request without an attempt": (
        lambda w: w.sql(f"DELETE FROM duehook.attempts WHERE {OF_QUICK.format(of=SINGLE)}"),
        "1 requests came of which no attempt is kept",
    ),
    "accepted, and recorded as failed": (
        lambda w: w.sql(attempt_becomes("failed", 1, SINGLE)),
        "1 answers were recorded as something else",
    ),
    "throttled, and recorded as delivered": (
        lambda w: w.sql(attempt_becomes("delivered", 1, SCHEDULED)),
        "1 answers were recorded as something else",
    ),
    "delivered, and nobody accepted it": (
        lambda w: w.sql(attempt_becomes("delivered", 1, EXPIRED)),
        "1 attempts are kept as delivered that nobody accepted",
    ),
    "delivered, and the receiver remembers nothing": (
        lambda w: w.ledger(f"DELETE FROM requests WHERE {at(SINGLE)}"),
        "1 attempts are kept as delivered that nobody accepted",
    ),
    "never sent, and it came": (
        lambda w: w.sql(attempt_becomes("unreached", 1, SCHEDULED)),
        "1 attempts are kept as never sent that came",
    ),
    "sent again though its outcome was known": (
        lambda w: w.sql(attempt_becomes("throttled", 2, SCHEDULED)),
        "1 deliveries were accepted more often than an outcome was unknown",
    ),
    "sent again after it was recorded as delivered": (
        lambda w: w.sql(attempt_becomes("delivered", 2, SCHEDULED)),
        "1 deliveries were accepted more often than an outcome was unknown",
    ),
    "delivered without the attempt that was": (
        lambda w: w.sql(attempt_becomes("unknown", 1, SINGLE)),
        "1 deliveries are delivered without the one attempt that was",
    ),
    # the receivers against what producers were told
    "a lost event, effect and all": (
        lambda w: w.sql(f"DELETE FROM duehook.events WHERE key = '{SINGLE}'").ledger(
            f"DELETE FROM effects WHERE key = '{SINGLE}'"
        ),
        "1 promised effects did not happen at quick",
    ),
    "an effect of what was rolled back": (
        lambda w: w.ledger("INSERT INTO effects VALUES ('evt_9', 'rolled-back:9:0', 'order.placed', 0)"),
        "1 effects happened at quick that nobody was promised",
    ),
    "an end that was never told": (
        lambda w: w.ledger(f"DELETE FROM effects WHERE key = '{EXPIRED}'"),
        "quick was not told once of rsv_3, which is expired",
    ),
    "another end was told": (
        lambda w: w.ledger(
            "UPDATE effects SET type = 'reservation.released', key = 'reservation.released:rsv_3:v2'"
            f" WHERE key = '{EXPIRED}'"
        ),
        "quick was not told once of rsv_3, which is expired",
    ),
    "an end was told by two events": (
        lambda w: w.ledger("INSERT INTO effects SELECT 'evt_9', key, type, 0 FROM effects WHERE key LIKE '%rsv_3%'"),
        "quick was not told once of rsv_3, which is expired",
    ),
    "the end of another's reservation": (
        lambda w: w.ledger(
            "INSERT INTO effects VALUES ('evt_9', 'reservation.expired:rsv_8:v2', 'reservation.expired', 0)"
        ),
        "1 news came to quick of reservations that nobody has",
    ),
    # time
    "before its time": (
        lambda w: w.ledger(f"UPDATE requests SET came_at = came_at - 0.01 WHERE {at(SCHEDULED)} AND attempt = 1"),
        "1 requests came to quick before their time",
    ),
    "before the time that was told, and the database is wrong with it": (
        lambda w: w.sql(f"UPDATE duehook.events SET due_at = due_at - interval '1 s' WHERE key = '{SCHEDULED}'").ledger(
            f"UPDATE requests SET came_at = came_at - 0.01 WHERE {at(SCHEDULED)} AND attempt = 1"
        ),
        "1 requests came to quick before their time",
    ),
    "expired before its promised end": (
        lambda w: w.sql(f"UPDATE duehook.events SET due_at = due_at - interval '2 s' WHERE key = '{EXPIRED}'").ledger(
            f"UPDATE requests SET came_at = came_at - 1.01 WHERE {at(EXPIRED)}"
        ),
        "1 requests came to quick before their time",
    ),
    "too late": (
        lambda w: w.ledger(f"UPDATE requests SET came_at = came_at + {LATE + 1} WHERE {at(SINGLE)}"),
        "1 events were accepted at quick later than 60 s",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(world: World, name: str) -> None:
    spoil, sentence = WRONG[name]
    spoil(world)
    violations = world.judged().violations
    assert any(sentence in each for each in violations), violations


def test_a_release_may_come_after_the_end_while_nobody_has_expired_it(world: World) -> None:
    world.act("rsv_4", what="release", asked_at=world.over_at + 5.1)
    assert not any("after its end" in each for each in world.judged().violations)


def test_nothing_is_late_that_comes_soon_after_the_faults(world: World) -> None:
    world.ledger(f"UPDATE requests SET came_at = came_at + {LATE + 1} WHERE {at(SINGLE)}")
    world.over_at += 2
    verdict = world.judged()
    assert not verdict.violations
    assert LATE - 2 < verdict.latest < LATE


AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
HELD = Reservation(
    id="rsv_3",
    resource=RESOURCE,
    status="held",
    version=1,
    expires_at=AT,
    overdue=False,
    exclusive=False,
    raw_data="null",
    created_at=AT,
    updated_at=AT,
)
ACCEPTED = Accepted(id="evt_1", type="order.placed", key=SINGLE, created_at=AT, due_at=AT, deliveries=2)
POST = Step(0.0, "single", TENANT, (SINGLE,))
ASK = Step(0.0, "hold", TENANT, ("rsv_3",))
CONFIRM = Step(0.0, "confirm", TENANT, ("rsv_3",))
ANSWERS: dict[str, tuple[Callable[[Told], object], str]] = {
    "another event": (lambda told: told.accepted(POST, 0.0, [replace(ACCEPTED, key="x")]), "was of ('x',)"),
    "no event": (lambda told: told.accepted(POST, 0.0, []), "was of ()"),
    "another due time": (
        lambda told: told.accepted(POST, 0.0, [replace(ACCEPTED, due_at=AT + timedelta(seconds=1))]),
        "due at two times",
    ),
    "another reservation": (lambda told: told.hold(ASK, 0.0, replace(HELD, id="rsv_4")), "answered with rsv_4"),
    "another resource": (lambda told: told.hold(ASK, 0.0, replace(HELD, resource="x")), "answered with rsv_3"),
    "another end": (
        lambda told: told.hold(ASK, 0.0, replace(HELD, expires_at=AT + timedelta(seconds=1))),
        "end at two times",
    ),
    "another status": (lambda told: told.act(CONFIRM, 0.0, "released"), "made it released"),
    "no after yes": (lambda told: told.act(CONFIRM, 0.0, None), "with yes and with no"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_does_not_fit_is_a_contradiction(name: str) -> None:
    told, (answer, sentence) = Told(), ANSWERS[name]
    told.accepted(POST, 0.0, [ACCEPTED])
    told.hold(ASK, 0.0, HELD)
    told.act(CONFIRM, 0.0, "confirmed")
    assert not told.contradictions
    answer(told)
    assert any(sentence in each for each in told.contradictions), told.contradictions


def test_a_repeat_with_another_id_is_kept_beside_the_first() -> None:
    told = Told()
    told.accepted(POST, 0.0, [ACCEPTED])
    told.accepted(POST, 0.0, [replace(ACCEPTED, id="evt_2")])
    assert told.ids == {(TENANT, SINGLE): {"evt_1", "evt_2"}}


def test_some_steps_of_every_kind_are_asked_for_once_more_without_their_idempotency_key() -> None:
    asked = {step.what: 0 for step in PLAN.steps()}
    for step in PLAN.steps():
        first, *again = askings(step)
        assert first["idempotency_key"]
        assert again in ([], [{}])
        asked[step.what] += len(again)
    assert all(asked.values())
