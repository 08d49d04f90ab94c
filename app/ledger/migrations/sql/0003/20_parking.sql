-- A parked delivery waits for its endpoint and not for its own time: the endpoint's row of the outbox wakes the next few
-- when there is a slot, however many they are. Their own rows come up at the age limit, to end them.
SET LOCAL search_path = pg_catalog, pg_temp;

ALTER TABLE duehook.service ADD max_age interval NOT NULL DEFAULT '5 days' CHECK (max_age > interval '0');

CREATE FUNCTION duehook.max_age() RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (SELECT max_age FROM duehook.service);
REVOKE ALL ON FUNCTION duehook.max_age FROM PUBLIC;

-- The oldest first. Neither column ever changes, and `parked` only when it is parked or claimed: claim and record of
-- all others stay heap-only updates.
CREATE INDEX deliveries_parked ON duehook.deliveries (endpoint, id) WHERE parked;

INSERT INTO duehook.audit_marks (kind) VALUES ('endpoint');

-- As it was, but for what is parked. Whoever parks holds the endpoint's row until he commits (an update that changes
-- nothing), and whoever finds nothing parked holds it while he looks: or one would delete the row while the other
-- parks, and a delivery would wait for days.
CREATE OR REPLACE FUNCTION duehook.delivery_after_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    service duehook.service;
    closed  bigint[] := ARRAY(SELECT id FROM new_rows WHERE status IN ('delivered', 'dead', 'cancelled'));
    opened  bigint[] := ARRAY(SELECT id FROM new_rows WHERE status = 'scheduled' AND round > 1 AND step = 0);
BEGIN
    SELECT * INTO service FROM duehook.service;
    IF cardinality(closed) > 0 THEN
        DELETE FROM duehook.outbox WHERE ref = ANY (closed);
        INSERT INTO duehook.dead_letters (delivery, tenant, endpoint, reason)
        SELECT id, tenant, endpoint, reason FROM new_rows WHERE status = 'dead' ORDER BY id
        ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(opened) > 0 THEN
        DELETE FROM duehook.dead_letters WHERE delivery = ANY (opened);
    END IF;
    INSERT INTO duehook.outbox AS o (ref, kind, tenant, endpoint, due_at, look_at)
    SELECT id, 'delivery', tenant, endpoint,
           CASE WHEN status = 'leased' THEN lease_until WHEN parked THEN age_from + service.max_age
                ELSE next_attempt_at END,
           CASE WHEN status = 'leased' THEN lease_until WHEN parked THEN age_from + service.max_age
                ELSE next_attempt_at - service.horizon END
      FROM (SELECT id, tenant, endpoint, status, next_attempt_at, lease_until, parked,
                   CASE WHEN parked THEN age_from END AS age_from FROM new_rows WHERE status IN ('scheduled', 'leased')
            EXCEPT
            SELECT id, tenant, endpoint, status, next_attempt_at, lease_until, parked,
                   CASE WHEN parked THEN age_from END FROM old_rows) moved
     ORDER BY id
    ON CONFLICT (ref) DO UPDATE
       SET due_at = excluded.due_at, look_at = excluded.look_at, publications = 0, taken = NULL;
    IF EXISTS (SELECT FROM new_rows WHERE parked) THEN
        INSERT INTO duehook.outbox AS o (ref, kind, tenant, endpoint, due_at, look_at)
        SELECT endpoint, 'endpoint', min(tenant), endpoint, duehook.now(), duehook.now()
          FROM new_rows WHERE parked GROUP BY endpoint ORDER BY endpoint
        ON CONFLICT (ref) DO UPDATE SET publications = o.publications;
    END IF;
    RETURN NULL;
END $$;
