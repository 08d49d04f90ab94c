"""The audit: every kind of damage is repaired and counted, health is zero, and a call is bounded."""

import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from app.core import deliveries as core
from app.core import endpoints, reservations
from app.core.reconciliation import TERMS, Pace, audit
from app.core.reservations import Hold
from app.domain.states import JobKind, JobStatus
from app.domain.wakeups import Kind
from app.ledger import endpoints as endpoint_ledger
from app.ledger import events, jobs, outbox
from app.ledger.outbox import Room
from app.ledger.reconciliation import Terms, Walk, lock_audit, repair
from tests.clock import Clock
from tests.conftest import Connect
from tests.ledgers import TENANT, a_delivery, an_endpoint, claimed, deliveries_of, row, rows, some_events

KINDS = ["reservation", "event", "delivery", "job"]
ONE_STRETCH = Pace(quiet=0, busy=0, stretch=4)
ROWS = """SELECT (ref, kind, tenant, endpoint, due_at, look_at, publications, taken)::text
            FROM duehook.outbox ORDER BY ref"""


def everything(engine: Engine) -> None:
    """One open thing of each kind, and a closed one; of the deliveries one is claimed."""
    a_delivery(engine)
    some_events(engine, delay_seconds=3600)
    (event,) = some_events(engine)
    claimed(engine, *deliveries_of(engine, event))
    with engine.begin() as connection:
        for _ in range(2):
            job = jobs.insert(connection, TENANT, JobKind.REDRIVE, {})
        jobs.end(connection, job.seq, JobStatus.FAILED, None)
        reservations.hold(connection, TENANT, Hold("truck 7", hold_seconds=60))
        reservations.hold(connection, TENANT, Hold("truck 8", id="rsv_8", hold_seconds=60))
        reservations.release(connection, TENANT, "rsv_8")


def damage(engine: Engine, statement: str, **parameters: Any) -> int:
    """As a bug or a hand in the database would: no trigger sees it."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        return connection.execute(text(statement), parameters).rowcount


def test_a_healthy_ledger_needs_no_repair(engine: Engine, clock: Clock) -> None:
    everything(engine)
    clock.advance(minutes=30)
    before = rows(engine, ROWS)
    assert audit(engine) == Counter()
    assert rows(engine, ROWS) == before
    assert rows(engine, "SELECT kind FROM duehook.repairs") == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_thing_without_a_row_gets_one_that_says_when(engine: Engine, clock: Clock, kind: str) -> None:
    everything(engine)
    before = rows(engine, ROWS)
    lost = damage(engine, f"DELETE FROM duehook.outbox WHERE kind = '{kind}'")
    assert audit(engine) == Counter({f"{kind}_without_row": lost})
    assert rows(engine, ROWS) == before
    assert audit(engine) == Counter()


def test_a_row_of_nothing_open_is_deleted(engine: Engine, clock: Clock) -> None:
    everything(engine)
    damage(
        engine,
        """INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
           SELECT seq, 'reservation', tenant, expires_at, expires_at FROM duehook.reservations WHERE status <> 'held'
           UNION ALL VALUES (1, 'delivery', 'acme', now(), now()), (2, 'endpoint', 'acme', now(), now())""",
    )
    assert audit(engine) == Counter(row_of_nothing=3)
    assert audit(engine) == Counter()


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ("due_at = due_at + '1 s'", "row_says_wrong"),
        ("due_at = 'infinity', look_at = 'infinity'", "row_says_wrong"),
        ("tenant = 'other'", "row_says_wrong"),
        ("endpoint = endpoint + 1", "row_says_wrong"),
        ("kind = 'endpoint'", "row_says_wrong"),
        ("kind = CASE kind WHEN 'event' THEN 'delivery' ELSE 'event' END", "row_says_wrong"),
        ("look_at = 'infinity'", "look_too_late"),
        ("look_at = greatest(due_at, duehook.now()) + '15 min 1 s', publications = 3", "look_too_late"),
    ],
)
def test_a_row_that_says_something_wrong_is_written_anew(
    engine: Engine, clock: Clock, change: str, counted: str
) -> None:
    everything(engine)
    before = rows(engine, ROWS)
    wrong = damage(engine, f"UPDATE duehook.outbox SET {change}")
    assert wrong == 7  # among them the job, and what tells of the one that ended
    assert audit(engine) == Counter({counted: wrong})
    assert rows(engine, ROWS) == before
    assert audit(engine) == Counter()


def test_a_look_as_late_as_a_publish_lease_may_end_is_left(engine: Engine, clock: Clock) -> None:
    everything(engine)
    clock.advance(seconds=30)
    published = "look_at = greatest(due_at, duehook.now()) + interval '15 min', publications = 5"
    damage(engine, f"UPDATE duehook.outbox SET {published}")
    before = rows(engine, ROWS)
    assert audit(engine) == Counter()
    damage(engine, f"UPDATE duehook.outbox SET {published.replace('15', '60')}")
    assert audit(engine, Terms(longest=timedelta(hours=1))) == Counter()
    damage(engine, f"UPDATE duehook.outbox SET {published}")
    assert rows(engine, ROWS) == before


@pytest.fixture
def parked(engine: Engine, clock: Clock) -> int:
    """A parked delivery; its endpoint's row is the other one there is."""
    delivery = a_delivery(engine)
    core.park(engine, [delivery])
    return delivery


def endpoint_row(engine: Engine) -> list[Any]:
    return rows(engine, "SELECT look_at FROM duehook.outbox WHERE kind = 'endpoint'")


def test_what_is_parked_has_a_row_at_its_age_limit_and_its_endpoint_one_that_wakes_it(
    engine: Engine, clock: Clock, parked: int
) -> None:
    assert audit(engine) == Counter()
    damage(engine, "DELETE FROM duehook.outbox WHERE kind = 'endpoint'")
    assert audit(engine) == Counter(endpoint_without_row=1)
    assert endpoint_row(engine) == [clock.now]
    damage(engine, "UPDATE duehook.outbox SET due_at = due_at + interval '1 s' WHERE kind = 'delivery'")
    assert audit(engine) == Counter(row_says_wrong=1)
    damage(engine, "DELETE FROM duehook.outbox WHERE kind = 'delivery'")
    assert audit(engine) == Counter(delivery_without_row=1)
    assert row(engine, "outbox", "ref", parked)["due_at"] == clock.now + timedelta(days=5)
    assert audit(engine) == Counter()


def test_only_a_disabled_endpoint_s_row_may_wait_for_ever(engine: Engine, clock: Clock, parked: int) -> None:
    never = "UPDATE duehook.outbox SET look_at = 'infinity', due_at = 'infinity' WHERE kind = 'endpoint'"
    damage(engine, never)
    assert audit(engine) == Counter(row_says_wrong=1)
    assert endpoint_row(engine) == [clock.now]
    damage(engine, "UPDATE duehook.endpoints SET status = 'disabled', disabled_at = now()")
    damage(engine, never)
    assert audit(engine) == Counter()


@pytest.mark.parametrize(
    "pace",
    ["closed_until = duehook.now() + interval '6 h', closed_at = duehook.now(), closed_why = 'retry_after'",
     "slot_at = duehook.now() + interval '5 h 50 min'"],
)  # fmt: skip
def test_an_endpoint_s_row_may_wait_as_long_as_its_pace_says(
    engine: Engine, clock: Clock, parked: int, pace: str
) -> None:
    damage(
        engine,
        """UPDATE duehook.outbox SET due_at = duehook.now() + interval '6 h', look_at = duehook.now() + interval '6 h'
            WHERE kind = 'endpoint'""",
    )
    damage(engine, "UPDATE duehook.endpoints SET rate_per_second = 0.001")
    damage(engine, f"UPDATE duehook.paces SET {pace}")
    assert audit(engine) == Counter()
    damage(engine, "DELETE FROM duehook.paces")
    assert audit(engine) == Counter(row_says_wrong=1)


def test_an_endpoint_s_row_with_nothing_parked_is_left_to_its_next_look(
    engine: Engine, clock: Clock, parked: int
) -> None:
    claimed(engine, parked)
    assert audit(engine) == Counter()
    assert len(endpoint_row(engine)) == 1


def test_a_look_that_is_long_past_is_left_for_the_next_take(engine: Engine, clock: Clock) -> None:
    delivery = a_delivery(engine)
    damage(engine, "UPDATE duehook.outbox SET look_at = '-infinity'")
    assert audit(engine) == Counter()
    with engine.begin() as connection:
        assert [row.ref for row in outbox.take(connection, uuid4(), {Kind.DELIVERY: Room(1)})] == [delivery]


def test_a_delivery_that_a_fan_out_owes_is_made(engine: Engine, clock: Clock) -> None:
    owed = [an_endpoint(engine, event_types=types) for types in (["*"], ["order.*"], ["order.placed", "order.*"])]
    clock.advance(minutes=1)
    some_events(engine)
    later = some_events(engine, delay_seconds=60)
    clock.advance(minutes=1)
    with engine.begin() as connection:
        assert events.fan_out(connection, later) == later
    before = rows(engine, DELIVERIES)
    assert len(before) == 2 * len(owed)
    damage(engine, "DELETE FROM duehook.outbox")
    kept = "(SELECT id FROM duehook.deliveries ORDER BY event, endpoint LIMIT 1)"
    damage(engine, f"DELETE FROM duehook.deliveries WHERE id <> ALL {kept}")
    assert audit(engine) == Counter(delivery_missing=5, delivery_without_row=1)
    assert rows(engine, DELIVERIES) == before
    assert audit(engine) == Counter()


DELIVERIES = """SELECT (event, endpoint, tenant, status, next_attempt_at, age_from)::text
                  FROM duehook.deliveries ORDER BY event, endpoint"""


def test_nobody_is_owed_what_he_did_not_want_when_it_was_fanned_out(engine: Engine, clock: Clock) -> None:
    told, about, deleted = an_endpoint(engine), an_endpoint(engine), an_endpoint(engine)
    an_endpoint(engine, event_types=["order", "order.placed.*", "invoice.*"])
    with engine.begin() as connection:
        other = endpoint_ledger.insert(connection, "other", url="http://127.0.0.1:9/", event_types=["*"]).seq
    clock.advance(seconds=59)
    an_endpoint(engine)  # its transaction may have been late
    clock.advance(seconds=1)
    some_events(engine)
    post = "INSERT INTO duehook.events (tenant, type, data, {}) VALUES ('acme', 'order.placed', '1', :endpoint)"
    with engine.begin() as connection:
        for column, endpoint in (("only_to", told), ("not_to", about), ("only_to", other), ("only_to", deleted)):
            connection.execute(text(post.format(column)), {"endpoint": endpoint})
        endpoints.delete(connection, TENANT, deleted)
    (cancelled,) = some_events(engine)
    damage(engine, "UPDATE duehook.events SET cancelled_at = duehook.now() WHERE seq = :seq", seq=cancelled)
    damage(engine, "DELETE FROM duehook.outbox")
    damage(engine, "DELETE FROM duehook.deliveries")
    assert audit(engine) == Counter(delivery_missing=4)
    with engine.begin() as connection:
        assert repair(connection, Walk.FAN_OUT, [cancelled], TERMS) == Counter(), "cancelled after it was walked"
    made = rows(engine, "SELECT DISTINCT endpoint FROM duehook.deliveries")
    assert sorted(made) == [told, about]


def test_a_fan_out_that_is_history_owes_nothing_more(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    clock.advance(minutes=1)
    some_events(engine)
    damage(engine, "DELETE FROM duehook.outbox")
    damage(engine, "DELETE FROM duehook.deliveries")
    clock.advance(hours=1)
    assert audit(engine, Terms(recent=timedelta(hours=1))) == Counter()
    assert audit(engine, Terms(recent=timedelta(hours=1, seconds=1))) == Counter(delivery_missing=1)


def test_what_is_right_by_the_time_it_is_locked_stays_as_it_is(engine: Engine, clock: Clock) -> None:
    everything(engine)
    clock.advance(minutes=1)
    some_events(engine)
    damage(engine, "UPDATE duehook.outbox SET look_at = look_at + interval '1 min', publications = 2")
    before = rows(engine, ROWS)
    every = rows(engine, "SELECT ref FROM duehook.outbox UNION SELECT seq FROM duehook.events")
    for which in Walk:
        with engine.begin() as connection:
            assert repair(connection, which, every, TERMS) == Counter(), which
    assert rows(engine, ROWS) == before


LOCKS = {
    "delivery_without_row": ("DELETE FROM duehook.outbox", "deliveries"),
    "row_of_nothing": ("INSERT INTO duehook.outbox VALUES (1, 'event', 'acme', 0, now(), now())", "outbox"),
    "row_says_wrong": ("UPDATE duehook.outbox SET tenant = 'other'", "deliveries"),
    "look_too_late": ("UPDATE duehook.outbox SET look_at = 'infinity'", "outbox"),
    "delivery_missing": ("DELETE FROM duehook.deliveries", "events"),
}


@pytest.mark.parametrize("kind", LOCKS)
def test_what_somebody_is_changing_just_now_is_left_alone(engine: Engine, clock: Clock, kind: str) -> None:
    an_endpoint(engine)
    clock.advance(minutes=1)
    some_events(engine)
    change, locked = LOCKS[kind]
    damage(engine, change)
    if kind == "delivery_missing":
        damage(engine, "DELETE FROM duehook.outbox")
    with engine.begin() as other:
        other.execute(text(f"SELECT FROM duehook.{locked} FOR UPDATE"))
        began = time.monotonic()
        assert audit(engine) == Counter()
        assert time.monotonic() - began < 5, "it waited for the lock"
    assert audit(engine) == Counter({kind: 1})


def test_repairs_are_counted_for_good(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    counted = "SELECT (kind, number, last_at)::text FROM duehook.repairs"
    for number in (1, 2):
        damage(engine, "DELETE FROM duehook.outbox")
        audit(engine)
        at = f"{clock.now:%Y-%m-%d %H:%M:%S}+00"
        assert rows(engine, counted) == [f'(delivery_without_row,{number},"{at}")']
        clock.advance(hours=1)


def test_a_call_walks_a_bounded_number_of_rows_and_the_next_goes_on(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    some_events(engine, 18)
    damage(engine, "DELETE FROM duehook.outbox")
    repairs = [audit(engine, pace=ONE_STRETCH).total() for _ in range(5)]
    assert repairs == [8, 4, 4, 3, 0]


def test_the_newest_are_looked_at_in_each_call_and_the_rest_where_the_last_one_ended(
    engine: Engine, clock: Clock
) -> None:
    a_delivery(engine)
    some_events(engine, 19)
    ids = deliveries(engine)
    repaired = []
    for _ in range(5):
        damage(engine, "DELETE FROM duehook.outbox WHERE ref = ANY (:ids)", ids=[ids[0], ids[-1]])
        repaired.append(audit(engine, pace=ONE_STRETCH).total())
    assert repaired == [1, 1, 1, 2, 1], "the newest every time, the oldest when the long walk has come to it"
    audit(engine)


def deliveries(engine: Engine) -> list[int]:
    return list(rows(engine, "SELECT id FROM duehook.deliveries ORDER BY id"))


def test_while_it_finds_something_it_goes_on(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    some_events(engine, 39)
    oldest = deliveries(engine)[0]
    damage(engine, "DELETE FROM duehook.outbox")
    assert audit(engine, pace=Pace(quiet=0, busy=60, stretch=4)) == Counter(delivery_without_row=40)
    damage(engine, "DELETE FROM duehook.outbox WHERE ref = :oldest", oldest=oldest)
    assert audit(engine, pace=Pace(quiet=0, busy=60, stretch=4)) == Counter(), "and stops when it finds nothing"
    assert audit(engine) == Counter(delivery_without_row=1)


def test_a_second_audit_at_the_same_time_does_nothing(engine: Engine, clock: Clock) -> None:
    a_delivery(engine)
    damage(engine, "DELETE FROM duehook.outbox")
    with engine.begin() as first:
        assert lock_audit(first)
        assert audit(engine) == Counter()
    assert audit(engine) == Counter(delivery_without_row=1)


def test_an_audit_that_comes_too_soon_after_another_does_nothing(engine: Engine, clock: Clock) -> None:
    terms = Terms(every=timedelta(seconds=30))
    a_delivery(engine)
    assert audit(engine, terms) == Counter()
    damage(engine, "DELETE FROM duehook.outbox")
    clock.advance(seconds=14.9)
    assert audit(engine, terms) == Counter()
    clock.advance(seconds=0.1)
    assert audit(engine, terms) == Counter(delivery_without_row=1)
    damage(engine, "DELETE FROM duehook.outbox")
    clock.advance(hours=-1)
    assert audit(engine, terms) == Counter(delivery_without_row=1), "a time that has not come yet says nothing"


def test_audits_side_by_side_repair_each_damage_once(engine: Engine) -> None:
    a_delivery(engine)
    some_events(engine, 199)
    damage(engine, "DELETE FROM duehook.outbox")
    found: Counter[str] = Counter()
    start = threading.Barrier(3)

    def run() -> None:
        start.wait()
        for _ in range(4):
            repairs = audit(engine, pace=Pace(stretch=10))
            found.update(repairs)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == Counter(delivery_without_row=200)
    assert rows(engine, "SELECT number FROM duehook.repairs") == [200]


def test_two_producers_at_work_are_never_repaired(engine: Engine, connect: Connect) -> None:
    """Open transactions of producers: nothing of them is visible, or all of it."""
    an_endpoint(engine)
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            (event,) = some_events(engine)
            claimed(engine, *deliveries_of(engine, event))
            with engine.begin() as connection:
                reservations.hold(connection, TENANT, Hold("truck 7", hold_seconds=0.01))

    threads = [threading.Thread(target=produce) for _ in range(2)]
    for thread in threads:
        thread.start()
    found = sum((audit(engine) for _ in range(12)), Counter[str]())
    stop.set()
    for thread in threads:
        thread.join()
    assert found == Counter()
