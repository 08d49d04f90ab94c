"""The audit that ends every race and fault test finds what it is there to find."""

from datetime import timedelta

import pytest

from tests.clock import Clock
from tests.conftest import Connect
from tests.invariants import VIOLATIONS, violations
from tests.plain import Connection, insert

HOUR = timedelta(hours=1)

# Each breaks its invariant while the guards sleep. rsv_1 is held and rsv_2 confirmed; 'now' has a scheduled and,
# at the second endpoint, a delivered delivery; 'later' waits for its time. A job is queued.
DAMAGE = {
    "the subscriptions are the patterns of the endpoints that are not deleted": "DELETE FROM duehook.subscriptions",
    "an open reservation has exactly one outbox row": "DELETE FROM duehook.outbox WHERE kind = 'reservation'",
    "an event that waits, and no other, has an outbox row": "DELETE FROM duehook.outbox WHERE kind = 'event'",
    "an open delivery has exactly one outbox row": "DELETE FROM duehook.outbox WHERE kind = 'delivery'",
    "an open job has exactly one outbox row": "DELETE FROM duehook.outbox WHERE kind = 'job'",
    "an outbox row refers to something": """
        INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
        VALUES (1, 'event', 'acme', duehook.now(), duehook.now())""",
    "an outbox row says of its thing whose it is and when it is due": """
        UPDATE duehook.outbox SET due_at = due_at + '1 s' WHERE kind = 'event'""",
    "an endpoint that has parked deliveries has an outbox row": """
        UPDATE duehook.deliveries SET parked = true WHERE status = 'scheduled'""",
    "an enabled endpoint with parked deliveries is looked at some day": """
        INSERT INTO duehook.outbox (ref, kind, tenant, endpoint, due_at, look_at)
        SELECT seq, 'endpoint', tenant, seq, 'infinity', 'infinity' FROM duehook.endpoints""",
    "nobody looks later than a lease that ends or a retry that is due, unless a wake-up was published for it": """
        UPDATE duehook.outbox SET look_at = due_at + '1 min' WHERE kind = 'delivery'""",
    "every transition has its one event, and no event is without its transition": """
        DELETE FROM duehook.events WHERE type = 'reservation.confirmed'""",
    "the event of the last transition tells the state": """
        UPDATE duehook.events SET type = 'reservation.released' WHERE type = 'reservation.confirmed'""",
    "a reservation has moved as often as its state allows": """
        UPDATE duehook.reservations SET version = 3 WHERE status = 'confirmed'""",
    "a reservation is expired only after its time and confirmed only before it": """
        UPDATE duehook.reservations SET updated_at = expires_at WHERE status = 'confirmed'""",
    "an expired reservation was never confirmed": """
        UPDATE duehook.reservations SET status = 'expired', updated_at = expires_at WHERE status = 'confirmed'""",
    "the head of an event says what its columns say": """
        ALTER TABLE duehook.events ALTER head DROP EXPRESSION;
        UPDATE duehook.events SET key = 'other' WHERE key = 'now'""",
    "the service's types and keys are its own": "UPDATE duehook.events SET type = 'ping' WHERE key = 'now'",
    "a delivery belongs to the tenant of its event and of its endpoint": """
        UPDATE duehook.endpoints SET tenant = 'other' WHERE event_types = '{*}'""",
    "an event has data or is erased, and what is erased is cancelled": """
        UPDATE duehook.events SET data = NULL WHERE key = 'now'""",
    "nothing of an erased event waits, whatever the round, and what is in the air knows of it": """
        UPDATE duehook.events SET data = NULL, digest = '', erased_at = duehook.now(), cancelled_at = duehook.now()
         WHERE key = 'now'""",
    "when the erasure of an event has completed, nothing of it is in the air and nothing that was answered is left": """
        UPDATE duehook.attempts SET excerpt = 'x';
        UPDATE duehook.jobs SET status = 'completed', kind = 'erase_event', parameters = json_build_object(
            'event', (SELECT seq FROM duehook.events WHERE key = 'now'))""",
    "the tenants that are closed are those that are being erased": "UPDATE duehook.service SET erasing = '{acme}'",
    "nothing is delivered of an event that was not fanned out": """
        UPDATE duehook.events SET fanned_out_at = NULL WHERE key = 'now'""",
    "a cancelled event has nothing that waits, and what is in the air knows of it": """
        UPDATE duehook.events SET cancelled_at = duehook.now() WHERE key = 'now'""",
    "a delivery is delivered if and only if an attempt was, in its first round": "DELETE FROM duehook.attempts",
    "a step is a recorded outcome": "UPDATE duehook.deliveries SET step = step + 1",
    "an attempt number stands once": """
        INSERT INTO duehook.attempts (delivery, number, outcome, started_at)
        SELECT delivery, number, 'abandoned', started_at FROM duehook.attempts""",
    "no attempt is numbered beyond the claims": "UPDATE duehook.attempts SET number = 2",
    "a job that has ended, and no other, has told of it as it is": "UPDATE duehook.jobs SET status = 'failed'",
    "a job has done what its result says, and all of it when it is completed": "UPDATE duehook.jobs SET done = 1",
    "dead letters are the dead deliveries": """
        INSERT INTO duehook.dead_letters (delivery, tenant, endpoint, reason)
        SELECT id, tenant, endpoint, 'gone' FROM duehook.deliveries WHERE status = 'delivered'""",
}


@pytest.fixture
def db(connect: Connect, clock: Clock) -> Connection:
    """A healthy ledger with a little of everything."""
    db = connect(autocommit=True)
    for patterns in (["*"], ["order.*"]):
        insert(db, "endpoints", url="http://127.0.0.1:9/", event_types=patterns)
    for name in ("rsv_1", "rsv_2"):
        insert(db, "reservations", id=name, resource="seat", expires_at=clock.now + HOUR)
    db.execute("UPDATE duehook.reservations SET status = 'confirmed' WHERE id = 'rsv_2'")
    insert(db, "events", type="order.placed", key="now", data="1")
    insert(db, "events", type="order.placed", key="later", data="1", due_at=clock.now + HOUR)
    insert(db, "jobs", kind="redrive", parameters="{}")
    db.execute(
        """WITH delivered AS (
               UPDATE duehook.deliveries SET status = 'leased', attempt = 1, claimed_at = duehook.now(),
                      token = gen_random_uuid(), lease_until = duehook.now()
                WHERE endpoint = (SELECT max(seq) FROM duehook.endpoints) RETURNING id)
           INSERT INTO duehook.attempts (delivery, number, outcome, started_at)
           SELECT id, 1, 'delivered', duehook.now() FROM delivered"""
    )
    db.execute(
        """UPDATE duehook.deliveries SET status = 'delivered', step = 1, delivered_at = duehook.now(),
                  claimed_at = NULL, token = NULL, lease_until = NULL WHERE status = 'leased'"""
    )
    return db


def test_a_healthy_ledger_breaks_no_invariant(db: Connection) -> None:
    assert violations(db) == {}


def test_each_invariant_is_found_broken_when_it_is(db: Connection) -> None:
    assert set(DAMAGE) == set(VIOLATIONS)
    db.execute("SET session_replication_role = replica")
    for name, damage in DAMAGE.items():
        with db.transaction(force_rollback=True):
            db.execute(damage.encode())
            assert violations(db).get(name), f"the audit did not find: {name}"
