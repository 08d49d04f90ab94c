"""The database keeps its promises about deliveries whatever statement touches them."""

from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from tests.clock import Clock
from tests.conftest import Connect
from tests.plain import Connection, Row, column, columns_of, insert, refused, row, rows, sqlstate_of, update, value

HORIZON = timedelta(seconds=10)
LEASE = timedelta(seconds=45)
OURS, THEIRS = UUID(int=1), UUID(int=2)
OPEN = ("scheduled", "leased")
TERMINAL = ("delivered", "dead", "cancelled")
STATES = OPEN + TERMINAL


@pytest.fixture
def db(connect: Connect, clock: Clock) -> Connection:
    return connect(autocommit=True)


def deliveries(db: Connection, count: int = 1) -> list[Row]:
    """New deliveries, all of one endpoint."""
    insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=["*"])
    db.execute(
        "INSERT INTO duehook.events (tenant, type, data) SELECT 'acme', 'a', '{}' FROM generate_series(1, %s)", [count]
    )
    return rows(db, "SELECT * FROM duehook.deliveries ORDER BY id")


def as_state(clock: Clock, status: str, token: UUID = OURS) -> dict[str, Any]:
    """The columns that make a delivery of this state, and clear what belongs to others."""
    leased = status == "leased"
    return {
        "status": status,
        "token": token if leased else None,
        "claimed_at": clock.now if leased else None,
        "lease_until": clock.now + LEASE if leased else None,
        "reason": "refused" if status == "dead" else None,
        "delivered_at": clock.now if status == "delivered" else None,
    }


def bring(db: Connection, clock: Clock, delivery: Row, *states: str, **columns: Any) -> Row:
    """Takes it through states as the ledger would: a claim counts, a re-opened one begins a round."""
    for status in states:
        now = row(db, "deliveries", delivery["id"])
        if status == "leased":
            columns["attempt"] = now["attempt"] + 1
        elif status == "scheduled" and now["status"] in TERMINAL:
            columns |= {"round": now["round"] + 1, "step": 0}
        assert update(db, "deliveries", delivery, **(as_state(clock, status) | columns)) == 1
    return row(db, "deliveries", delivery["id"])


def a_delivery(db: Connection, clock: Clock, *states: str) -> Row:
    return bring(db, clock, deliveries(db)[0], *states)


def wakeup(db: Connection, delivery: Row) -> Row | None:
    found = rows(db, "SELECT * FROM duehook.outbox WHERE ref = %s", [delivery["id"]])
    return found[0] if found else None


def looks(db: Connection, delivery: Row) -> tuple[Any, Any]:
    found = wakeup(db, delivery)
    assert found is not None
    return found["due_at"], found["look_at"]


# from, to, attempts more, rounds more, whose token
LEGAL = {
    ("scheduled", "scheduled", 0, 0, None),
    ("scheduled", "leased", 1, 0, OURS),
    ("scheduled", "leased", 1, 0, THEIRS),
    ("scheduled", "dead", 0, 0, None),
    ("scheduled", "cancelled", 0, 0, None),
    ("leased", "leased", 0, 0, OURS),
    ("leased", "leased", 1, 0, THEIRS),
    *(("leased", after, 0, 0, None) for after in ("scheduled", *TERMINAL)),
    *((before, before, 0, 0, None) for before in TERMINAL),
    *((before, "scheduled", 0, 1, None) for before in TERMINAL),
}


@pytest.mark.parametrize("before", STATES)
def test_each_step_between_states_is_taken_or_refused_by_the_rules(db: Connection, clock: Clock, before: str) -> None:
    path = {"scheduled": [], "leased": ["leased"]}.get(before, ["leased", before])
    delivery = a_delivery(db, clock, *path)
    taken = set()
    for after, attempts, rounds, token in product(STATES, (-1, 0, 1, 2), (-1, 0, 1, 2), (OURS, THEIRS)):
        columns = as_state(clock, after, token)
        columns |= {"attempt": delivery["attempt"] + attempts, "round": delivery["round"] + rounds, "step": 0}
        refusal = sqlstate_of(db, partial(update, db, "deliveries", delivery, **columns))
        assert refusal in (None, "DH001")
        if refusal is None:
            taken.add((before, after, attempts, rounds, token if after == "leased" else None))
    assert taken == {step for step in LEGAL if step[0] == before}


def test_a_refused_step_says_in_a_sentence_which_delivery_and_from_where_to_where(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock, "leased", "delivered")
    words = f"delivery {delivery['id']} can't go from delivered (attempt 1, round 1) to leased (attempt 2, round 1)"
    with refused(db, "DH001", words):
        bring(db, clock, delivery, "leased")


def test_a_delivery_is_re_opened_only_with_a_schedule_that_begins_anew(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock, "leased", "dead")
    update(db, "deliveries", delivery, step=3)
    again = as_state(clock, "scheduled") | {"round": 2}
    with refused(db, "DH001"):
        update(db, "deliveries", delivery, **again)
    assert update(db, "deliveries", delivery, **again, step=0) == 1


def test_whose_delivery_it_is_never_changes(db: Connection, clock: Clock) -> None:
    others = {"id": 1, "event": 1, "endpoint": 1, "tenant": "other", "created_at": clock.now - LEASE}
    for path in ([], ["leased"], ["leased", "cancelled"]):
        delivery = a_delivery(db, clock, *path)
        for name, other in others.items():
            with refused(db, "DH001"):
                update(db, "deliveries", delivery, **{name: other})
        db.execute("DELETE FROM duehook.deliveries; DELETE FROM duehook.endpoints")


def test_a_dead_delivery_keeps_its_reason(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock, "leased", "dead")
    with refused(db, "DH001"):
        update(db, "deliveries", delivery, reason="gone")


def test_a_delivery_begins_scheduled_before_its_first_attempt(db: Connection, clock: Clock) -> None:
    event = insert(db, "events", type="a", data="{}")
    born = {"event": event["seq"], "next_attempt_at": clock.now, "age_from": clock.now}
    grown = [as_state(clock, status) for status in STATES if status != "scheduled"]
    for columns in (*grown, {"attempt": 1}, {"step": 1}, {"round": 2}):
        with refused(db, "DH001", "a delivery begins as scheduled"):
            insert(db, "deliveries", endpoint=1, **born, **columns)
    assert looks(db, insert(db, "deliveries", endpoint=1, **born)) == (clock.now, clock.now - HORIZON)


def test_an_event_has_one_delivery_per_endpoint(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock)
    again = {name: delivery[name] for name in ("event", "endpoint", "next_attempt_at", "age_from")}
    with refused(db, "23505", "deliveries_event_endpoint_key"):
        insert(db, "deliveries", **again)
    insert(db, "deliveries", **again | {"endpoint": 1})


def test_a_state_stands_with_what_belongs_to_it_and_nothing_else(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock)
    lease = {
        name: found
        for name, found in as_state(clock, "leased").items()
        if name in ("token", "claimed_at", "lease_until")
    }
    foreign: list[dict[str, Any]] = [{name: found} for name, found in lease.items()]
    foreign += [{"reason": "gone"}, {"delivered_at": clock.now}]
    for columns in (*foreign, {"status": "lost"}, {"status": "dead"}, {"status": "cancelled", "parked": True}):
        with refused(db, "23514"):
            update(db, "deliveries", delivery, **columns)
    for name in lease:
        with refused(db, "23514"):
            update(db, "deliveries", delivery, **as_state(clock, "leased") | {"attempt": 1, name: None})
    bring(db, clock, delivery, "leased")
    with refused(db, "23514"):
        update(db, "deliveries", delivery, parked=True)
    for name in lease:
        with refused(db, "23514"):
            update(db, "deliveries", delivery, **as_state(clock, "scheduled") | {name: lease[name]})
    with refused(db, "23514"):
        update(db, "deliveries", delivery, **as_state(clock, "delivered") | {"delivered_at": None})


def test_the_outbox_row_follows_a_delivery_through_its_life(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock)
    assert looks(db, delivery) == (clock.now, clock.now - HORIZON)
    db.execute("UPDATE duehook.outbox SET publications = 3, taken = %s", [THEIRS])
    bring(db, clock, delivery, "leased")
    assert looks(db, delivery) == (clock.now + LEASE, clock.now + LEASE)
    found = wakeup(db, delivery)
    assert found is not None and (found["publications"], found["taken"]) == (0, None)
    clock.advance(seconds=30)
    update(db, "deliveries", delivery, lease_until=clock.now + LEASE)
    assert looks(db, delivery) == (clock.now + LEASE, clock.now + LEASE)
    retry_at = clock.now + timedelta(minutes=5)
    bring(db, clock, delivery, "scheduled", next_attempt_at=retry_at)
    assert looks(db, delivery) == (retry_at, retry_at - HORIZON)
    for end in TERMINAL:
        bring(db, clock, delivery, "leased", end)
        assert wakeup(db, delivery) is None
        bring(db, clock, delivery, "scheduled", next_attempt_at=clock.now)
        assert looks(db, delivery) == (clock.now, clock.now - HORIZON)


def test_a_retry_that_is_due_just_when_the_lease_would_have_ended_is_looked_at_in_time(
    db: Connection, clock: Clock
) -> None:
    delivery = a_delivery(db, clock, "leased")
    bring(db, clock, delivery, "scheduled", next_attempt_at=clock.now + LEASE)
    assert looks(db, delivery) == (clock.now + LEASE, clock.now + LEASE - HORIZON)


def test_the_horizon_of_the_moment_decides_when_the_relay_looks(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock, "leased")
    db.execute("UPDATE duehook.service SET horizon = '1 minute'")
    bring(db, clock, delivery, "scheduled")
    assert looks(db, delivery) == (clock.now, clock.now - timedelta(minutes=1))


@pytest.mark.parametrize("status", OPEN)
def test_a_look_that_was_moved_by_hand_is_not_disturbed_by_unrelated_updates(
    db: Connection, clock: Clock, status: str
) -> None:
    delivery = a_delivery(db, clock, *([] if status == "scheduled" else [status]))
    db.execute("UPDATE duehook.outbox SET look_at = '2040-01-01Z', publications = 3, taken = %s", [THEIRS])
    before = wakeup(db, delivery)
    moving = {"status", "attempt", "round", "next_attempt_at", "token", "claimed_at", "lease_until"}
    closing = {"reason", "delivered_at", "parked"}
    identity = {"id", "event", "endpoint", "tenant", "created_at"}
    unrelated = {
        "step": 5,
        "abandoned": 1,
        "cancel_requested": True,
        "age_from": clock.now - LEASE,
        "updated_at": clock.now + LEASE,
    }
    assert {*moving, *closing, *identity, *unrelated} == set(columns_of(db, "deliveries"))
    for name, other in unrelated.items():
        assert update(db, "deliveries", delivery, **{name: other}) == 1
        assert wakeup(db, delivery) == before, f"disturbed by {name}"
    update(db, "deliveries", delivery, next_attempt_at=clock.now + LEASE + LEASE)
    found = wakeup(db, delivery)
    assert found is not None and found["publications"] == 0


def test_dead_letters_are_the_dead_deliveries(db: Connection, clock: Clock) -> None:
    delivery = a_delivery(db, clock, "leased", "dead")
    (letter,) = rows(db, "SELECT * FROM duehook.dead_letters")
    assert letter == {
        "delivery": delivery["id"],
        "tenant": "acme",
        "endpoint": delivery["endpoint"],
        "reason": "refused",
        "died_at": clock.now,
    }
    update(db, "deliveries", delivery, cancel_requested=True)
    clock.advance(days=1)
    bring(db, clock, delivery, "scheduled")
    assert rows(db, "SELECT * FROM duehook.dead_letters") == []
    bring(db, clock, delivery, "dead", reason="age_exhausted")
    (letter,) = rows(db, "SELECT * FROM duehook.dead_letters")
    assert (letter["reason"], letter["died_at"]) == ("age_exhausted", clock.now)
    for other in ("delivered", "cancelled"):
        bring(db, clock, delivery, "scheduled")
        bring(db, clock, delivery, "leased", other)
        assert rows(db, "SELECT * FROM duehook.dead_letters") == []


def test_a_deleted_delivery_takes_its_outbox_row_and_its_dead_letter_along(db: Connection, clock: Clock) -> None:
    waiting, leased, dead, kept = deliveries(db, 4)
    bring(db, clock, leased, "leased")
    bring(db, clock, dead, "leased", "dead")
    gone = [waiting["id"], leased["id"], dead["id"]]
    assert db.execute("DELETE FROM duehook.deliveries WHERE id = ANY (%s)", [gone]).rowcount == 3
    assert column(db, "SELECT ref FROM duehook.outbox") == [kept["id"]]
    assert value(db, "SELECT count(*) FROM duehook.dead_letters") == 0


def test_one_statement_over_a_thousand_deliveries_keeps_every_outbox_row(db: Connection, clock: Clock) -> None:
    deliveries(db, 1000)
    db.execute(
        """UPDATE duehook.deliveries SET status = 'leased', attempt = 1, token = %s, claimed_at = duehook.now(),
                  lease_until = duehook.now() + '45 s'""",
        [OURS],
    )
    assert rows(db, "SELECT look_at, count(*) AS n FROM duehook.outbox GROUP BY 1") == [
        {"look_at": clock.now + LEASE, "n": 1000}
    ]
    ends = "(ARRAY['scheduled', 'delivered', 'dead', 'cancelled'])[id %% 4 + 1]"
    counted = db.execute(
        f"""UPDATE duehook.deliveries SET status = {ends}, token = NULL, claimed_at = NULL, lease_until = NULL,
                   next_attempt_at = duehook.now() + '1 min',
                   reason = CASE {ends} WHEN 'dead' THEN 'gone' END,
                   delivered_at = CASE {ends} WHEN 'delivered' THEN duehook.now() END
             WHERE token = %s""",
        [OURS],
    )
    assert counted.rowcount == 1000
    scheduled = "SELECT id FROM duehook.deliveries WHERE status = 'scheduled' ORDER BY id"
    assert column(db, "SELECT ref FROM duehook.outbox ORDER BY ref") == column(db, scheduled)
    assert column(db, "SELECT DISTINCT look_at FROM duehook.outbox") == [clock.now + timedelta(seconds=50)]
    dead = "SELECT id FROM duehook.deliveries WHERE status = 'dead' ORDER BY id"
    assert column(db, "SELECT delivery FROM duehook.dead_letters ORDER BY delivery") == column(db, dead)


def test_the_days_of_attempts_are_made_once_and_by_utc(connect: Connect, db: Connection, clock: Clock) -> None:
    elsewhere = connect(autocommit=True, options="-c timezone=Pacific/Kiritimati")
    db.execute(
        "INSERT INTO duehook.attempts (delivery, number, outcome, started_at) VALUES (1, 1, 'failed', '2030-01-02Z')"
    )
    made = "SELECT duehook.make_attempt_days(2)"
    assert [value(elsewhere, made), value(db, made)] == [2, 0], "the day with rows in the rest is passed over"
    clock.advance(days=1)
    assert value(elsewhere, made) == 1
    for at in ("2030-01-01T00:00:00Z", "2030-01-03T23:59:59.999999Z"):
        db.execute(
            "INSERT INTO duehook.attempts (delivery, number, outcome, started_at) VALUES (2, 1, 'failed', %s)", [at]
        )
    homes = column(
        db,
        """SELECT c.relname::text FROM duehook.attempts a JOIN pg_class c ON c.oid = a.tableoid
            WHERE delivery = 2 ORDER BY started_at""",
    )
    assert homes == ["attempts_20300101", "attempts_20300103"]
