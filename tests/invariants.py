"""The invariants of the design, audited over a whole database: run after every race and fault."""

from typing import Any

import psycopg

# Each query returns what is wrong, and nothing on a healthy database.
VIOLATIONS = {
    "the subscriptions are the patterns of the endpoints that are not deleted": """
        SELECT coalesce(s.endpoint, e.seq) FROM duehook.subscriptions s
          FULL JOIN (SELECT DISTINCT tenant, pattern, seq FROM duehook.endpoints, unnest(event_types) AS pattern
                      WHERE deleted_at IS NULL) e
            ON (s.tenant, s.pattern, s.endpoint) = (e.tenant, e.pattern, e.seq)
         WHERE s.endpoint IS NULL OR e.seq IS NULL""",
    "an open reservation has exactly one outbox row": """
        SELECT r.id FROM duehook.reservations r LEFT JOIN duehook.outbox o ON o.ref = r.seq AND o.kind = 'reservation'
         WHERE (r.status = 'held') <> (o.ref IS NOT NULL)""",
    "an event that waits, and no other, has an outbox row": """
        SELECT e.id FROM duehook.events e LEFT JOIN duehook.outbox o ON o.ref = e.seq AND o.kind = 'event'
         WHERE (e.fanned_out_at IS NULL AND e.cancelled_at IS NULL) <> (o.ref IS NOT NULL)""",
    "an open delivery has exactly one outbox row": """
        SELECT d.id FROM duehook.deliveries d LEFT JOIN duehook.outbox o ON o.ref = d.id AND o.kind = 'delivery'
         WHERE (d.status IN ('scheduled', 'leased')) <> (o.ref IS NOT NULL)""",
    "an open job has exactly one outbox row": """
        SELECT j.id FROM duehook.jobs j LEFT JOIN duehook.outbox o ON o.ref = j.seq AND o.kind = 'job'
         WHERE (j.status IN ('queued', 'running')) <> (o.ref IS NOT NULL)""",
    "an outbox row refers to something": """
        SELECT o.ref FROM duehook.outbox o
         WHERE NOT EXISTS (SELECT FROM duehook.reservations WHERE seq = o.ref AND o.kind = 'reservation')
           AND NOT EXISTS (SELECT FROM duehook.events WHERE seq = o.ref AND o.kind = 'event')
           AND NOT EXISTS (SELECT FROM duehook.deliveries WHERE id = o.ref AND o.kind = 'delivery')
           AND NOT EXISTS (SELECT FROM duehook.endpoints WHERE seq = o.ref AND o.kind = 'endpoint')
           AND NOT EXISTS (SELECT FROM duehook.jobs WHERE seq = o.ref AND o.kind = 'job')""",
    "an outbox row says of its thing whose it is and when it is due": """
        SELECT o.ref FROM duehook.outbox o
          LEFT JOIN duehook.reservations r ON r.seq = o.ref
          LEFT JOIN duehook.events e ON e.seq = o.ref
          LEFT JOIN duehook.deliveries d ON d.id = o.ref
          LEFT JOIN duehook.jobs j ON j.seq = o.ref
         WHERE o.kind <> 'endpoint'
           AND (o.tenant, o.endpoint, o.due_at) IS DISTINCT FROM
               (coalesce(r.tenant, e.tenant, d.tenant, j.tenant), coalesce(d.endpoint, 0),
                coalesce(r.expires_at, e.due_at, d.lease_until,
                         CASE WHEN d.parked THEN d.age_from + (SELECT max_age FROM duehook.service) END,
                         d.next_attempt_at, j.next_step_at))""",
    "an endpoint that has parked deliveries has an outbox row": """
        SELECT endpoint FROM duehook.deliveries d
         WHERE parked AND NOT EXISTS (SELECT FROM duehook.outbox o WHERE o.ref = d.endpoint AND o.kind = 'endpoint')""",
    "an enabled endpoint with parked deliveries is looked at some day": """
        SELECT e.seq FROM duehook.endpoints e JOIN duehook.outbox o ON o.ref = e.seq
         WHERE o.look_at = 'infinity' AND (e.status = 'enabled' OR e.deleted_at IS NOT NULL)""",
    "nobody looks later than a lease that ends or a retry that is due, unless a wake-up was published for it": """
        SELECT d.id FROM duehook.deliveries d JOIN duehook.outbox o ON o.ref = d.id
         WHERE o.publications = 0 AND o.taken IS NULL AND NOT d.parked
           AND o.look_at > greatest(coalesce(d.lease_until, d.next_attempt_at), duehook.now() + interval '1 second')""",
    "every transition has its one event, and no event is without its transition": """
        SELECT r.id FROM duehook.reservations r
          LEFT JOIN (SELECT tenant, substring(key FROM '^reservation[.][a-z]+:(.*):v[0-9]+$') AS reservation, count(*)
                       FROM duehook.events WHERE origin = 'service' AND key LIKE 'reservation.%' GROUP BY 1, 2) e
            ON (e.tenant, e.reservation) = (r.tenant, r.id)
         WHERE r.version - 1 <> coalesce(e.count, 0)""",
    "the event of the last transition tells the state": """
        SELECT r.id FROM duehook.reservations r
         WHERE r.version > 1
           AND NOT EXISTS (SELECT FROM duehook.events e
                            WHERE e.tenant = r.tenant AND e.origin = 'service' AND e.type = 'reservation.' || r.status
                              AND e.key = 'reservation.' || r.status || ':' || r.id || ':v' || r.version)""",
    "a reservation has moved as often as its state allows": """
        SELECT id FROM duehook.reservations
         WHERE version NOT BETWEEN CASE status WHEN 'held' THEN 1 ELSE 2 END
                               AND CASE status WHEN 'held' THEN 1 WHEN 'released' THEN 3 ELSE 2 END""",
    "a reservation is expired only after its time and confirmed only before it": """
        SELECT id FROM duehook.reservations
         WHERE status = 'expired' AND updated_at < expires_at OR status = 'confirmed' AND updated_at >= expires_at""",
    "an expired reservation was never confirmed": """
        SELECT r.id FROM duehook.reservations r
          JOIN duehook.events e ON e.tenant = r.tenant AND e.origin = 'service'
           AND e.type = 'reservation.confirmed' AND e.key LIKE 'reservation.confirmed:' || r.id || ':v%'
         WHERE r.status = 'expired'""",
    "the head of an event says what its columns say": """
        SELECT id FROM duehook.events
         WHERE ((head || 'null}')::json ->> 'id', (head || 'null}')::json ->> 'type', (head || 'null}')::json ->> 'key')
               IS DISTINCT FROM (id, type, key)""",
    "the service's types and keys are its own": """
        SELECT id FROM duehook.events
         WHERE (type ~ '^(reservation[.]|endpoint[.]|job[.]|ping$)') <> (origin = 'service')""",
    "a delivery belongs to the tenant of its event and of its endpoint": """
        SELECT d.id FROM duehook.deliveries d
          LEFT JOIN duehook.events e ON e.seq = d.event
          LEFT JOIN duehook.endpoints n ON n.seq = d.endpoint
         WHERE d.tenant IS DISTINCT FROM e.tenant OR d.tenant IS DISTINCT FROM n.tenant""",
    "an event has data or is erased, and what is erased is cancelled": """
        SELECT id FROM duehook.events
         WHERE num_nonnulls(erased_at, digest) <> CASE WHEN data IS NULL THEN 2 ELSE 0 END
            OR erased_at IS NOT NULL AND cancelled_at IS NULL""",
    "nothing of an erased event waits, whatever the round, and what is in the air knows of it": """
        SELECT d.id FROM duehook.deliveries d JOIN duehook.events e ON e.seq = d.event
         WHERE e.erased_at IS NOT NULL
           AND (d.status = 'scheduled' OR d.status = 'leased' AND NOT d.cancel_requested)""",
    "when the erasure of an event has completed, nothing of it is in the air and nothing that was answered is left": """
        SELECT j.id FROM duehook.jobs j
          JOIN duehook.deliveries d ON d.event = (j.parameters ->> 'event')::bigint
         WHERE j.kind = 'erase_event' AND j.status = 'completed'
           AND (d.status = 'leased' OR EXISTS (SELECT FROM duehook.attempts a WHERE a.delivery = d.id
                                                AND num_nonnulls(a.excerpt, a.location) > 0))""",
    "the tenants that are closed are those that are being erased": """
        SELECT tenant FROM (SELECT unnest(erasing) AS tenant FROM duehook.service) closed
          FULL JOIN (SELECT tenant FROM duehook.jobs
                      WHERE kind = 'erase_tenant' AND status IN ('queued', 'running')) open USING (tenant)
         WHERE closed IS NULL OR open IS NULL""",
    "nothing is delivered of an event that was not fanned out": """
        SELECT d.id FROM duehook.deliveries d JOIN duehook.events e ON e.seq = d.event WHERE e.fanned_out_at IS NULL""",
    "a cancelled event has nothing that waits, and what is in the air knows of it": """
        SELECT d.id FROM duehook.deliveries d JOIN duehook.events e ON e.seq = d.event
         WHERE e.cancelled_at IS NOT NULL AND d.round = 1
           AND (d.status = 'scheduled' OR d.status = 'leased' AND NOT d.cancel_requested)""",
    "a delivery is delivered if and only if an attempt was, in its first round": """
        SELECT d.id FROM duehook.deliveries d
         WHERE d.round = 1 AND (d.status = 'delivered')::int <>
               (SELECT count(*) FROM duehook.attempts a WHERE a.delivery = d.id AND a.outcome = 'delivered')""",
    "a step is a recorded outcome": """
        SELECT d.id FROM duehook.deliveries d
         WHERE d.round = 1 AND d.step <>
               (SELECT count(*) FROM duehook.attempts a WHERE a.delivery = d.id AND a.outcome <> 'abandoned')""",
    "an attempt number stands once": """
        SELECT delivery FROM duehook.attempts GROUP BY delivery, number HAVING count(*) > 1""",
    "no attempt is numbered beyond the claims": """
        SELECT d.id FROM duehook.deliveries d JOIN duehook.attempts a ON a.delivery = d.id
         WHERE a.number > d.attempt""",
    "a job that has ended, and no other, has told of it as it is": """
        SELECT j.id FROM duehook.jobs j
          LEFT JOIN duehook.events e
            ON e.tenant = j.tenant AND e.origin = 'service' AND e.key = 'job.completed:' || j.id
         WHERE (j.status IN ('completed', 'failed', 'cancelled')) <> (e.seq IS NOT NULL)
               AND j.kind <> 'erase_tenant'
            OR e.data ->> 'status' IS DISTINCT FROM j.status AND e.data IS NOT NULL""",
    "a job has done what its result says, and all of it when it is completed": """
        SELECT id FROM duehook.jobs
         WHERE status = 'completed' AND total IS DISTINCT FROM done
            OR kind = 'redrive' AND done > 0
               AND done IS DISTINCT FROM (result ->> 'reopened')::bigint
                           + (SELECT coalesce(sum(value::bigint), 0) FROM json_each_text(result -> 'skipped'))""",
    "dead letters are the dead deliveries": """
        SELECT d.id FROM duehook.deliveries d FULL JOIN duehook.dead_letters l ON l.delivery = d.id
         WHERE (d.status = 'dead') IS DISTINCT FROM (l.delivery IS NOT NULL)""",
}


def violations(connection: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """What is wrong, by the invariant it breaks; empty on a healthy database."""
    found = {name: [row[0] for row in connection.execute(query)] for name, query in VIOLATIONS.items()}
    return {name: broken for name, broken in found.items() if broken}


def assert_invariants(database_url: str) -> None:
    """Fails with every broken invariant and whom it concerns."""
    with psycopg.connect(database_url) as connection:
        broken = violations(connection)
    assert not broken, f"broken invariants: {broken}"
