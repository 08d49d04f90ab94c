-- One delivery per event and endpoint: the delivery clock. A claim takes it with a token until lease_until;
-- whoever ends the claim names the token. No index on a column that claim or record changes, and room on the
-- page, so that both stay heap-only updates.
CREATE TABLE duehook.deliveries (
    id               bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    event            bigint      NOT NULL,
    endpoint         bigint      NOT NULL,
    tenant           text        COLLATE "C" NOT NULL,
    status           text        COLLATE "C" NOT NULL DEFAULT 'scheduled',
    attempt          integer     NOT NULL DEFAULT 0,
    step             smallint    NOT NULL DEFAULT 0,
    round            smallint    NOT NULL DEFAULT 1,
    abandoned        smallint    NOT NULL DEFAULT 0,
    parked           boolean     NOT NULL DEFAULT false,
    cancel_requested boolean     NOT NULL DEFAULT false,
    next_attempt_at  timestamptz NOT NULL,
    age_from         timestamptz NOT NULL,
    token            uuid,
    claimed_at       timestamptz,
    lease_until      timestamptz,
    reason           text        COLLATE "C",
    created_at       timestamptz NOT NULL DEFAULT duehook.now(),
    updated_at       timestamptz NOT NULL DEFAULT duehook.now(),
    delivered_at     timestamptz,
    UNIQUE (event, endpoint),
    CHECK (status IN ('scheduled', 'leased', 'delivered', 'dead', 'cancelled')),
    CHECK (num_nonnulls(token, claimed_at, lease_until) = CASE status WHEN 'leased' THEN 3 ELSE 0 END),
    CHECK ((status = 'dead') = (reason IS NOT NULL)),
    CHECK ((status = 'delivered') = (delivered_at IS NOT NULL)),
    CHECK (status = 'scheduled' OR NOT parked)
) WITH (
    fillfactor = 55,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX deliveries_newest ON duehook.deliveries (endpoint, id);
COMMENT ON COLUMN duehook.deliveries.attempt IS 'claims so far: the number receivers see, never reset';
COMMENT ON COLUMN duehook.deliveries.step IS 'outcomes recorded in this round: alone drives the schedule';
COMMENT ON COLUMN duehook.deliveries.round IS 'one more for each retry, redrive or replay that re-opened it';
COMMENT ON COLUMN duehook.deliveries.abandoned IS 'claims in a row that ended without a record';
COMMENT ON COLUMN duehook.deliveries.age_from IS 'due time, or the moment it was re-opened';

-- Every recorded end of a claim, by day, so that old days can be dropped whole.
CREATE TABLE duehook.attempts (
    delivery    bigint      NOT NULL,
    number      integer     NOT NULL,
    outcome     text        COLLATE "C" NOT NULL,
    status_code smallint,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    address     text,
    key_ids     text[],
    error       text,
    excerpt     bytea,
    location    text,
    retry_after interval
) PARTITION BY RANGE (started_at);
CREATE INDEX attempts_delivery ON duehook.attempts (delivery, number);
CREATE TABLE duehook.attempts_rest PARTITION OF duehook.attempts DEFAULT;

-- Makes the partitions of today and the days ahead; safe to repeat and from two places. A day whose rows are in
-- the rest already is passed over.
CREATE FUNCTION duehook.make_attempt_days(ahead integer DEFAULT 7) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    day  date;
    name text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('duehook.attempts'));
    FOR n IN 0 .. ahead LOOP
        day := (duehook.now())::date + n;
        name := 'attempts_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('duehook.' || name) IS NOT NULL;
        CONTINUE WHEN EXISTS (SELECT FROM duehook.attempts_rest WHERE started_at >= day AND started_at < day + 1);
        EXECUTE format('CREATE TABLE duehook.%I PARTITION OF duehook.attempts FOR VALUES FROM (%L) TO (%L)',
                       name, day, day + 1);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

-- Dead deliveries in the order they died. A table of its own: an index on deliveries.status would make every
-- claim and record an index update too.
CREATE TABLE duehook.dead_letters (
    delivery bigint      NOT NULL PRIMARY KEY REFERENCES duehook.deliveries ON DELETE CASCADE,
    tenant   text        COLLATE "C" NOT NULL,
    endpoint bigint      NOT NULL,
    reason   text        COLLATE "C" NOT NULL,
    died_at  timestamptz NOT NULL DEFAULT duehook.now()
);
CREATE INDEX dead_letters_newest ON duehook.dead_letters (tenant, died_at, delivery);

CREATE FUNCTION duehook.delivery_refused() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'a delivery begins as scheduled, attempt 0, step 0, round 1' USING ERRCODE = 'DH001';
    END IF;
    RAISE EXCEPTION 'delivery % can''t go from % (attempt %, round %) to % (attempt %, round %)',
        OLD.id, OLD.status, OLD.attempt, OLD.round, NEW.status, NEW.attempt, NEW.round USING ERRCODE = 'DH001';
END $$;

CREATE TRIGGER born AFTER INSERT ON duehook.deliveries
    FOR EACH ROW WHEN (NEW.status <> 'scheduled' OR NEW.attempt <> 0 OR NEW.step <> 0 OR NEW.round <> 1)
    EXECUTE FUNCTION duehook.delivery_refused();

-- Legal steps, as conditions that cost no function call. A claim counts; a renewed lease keeps its token; a
-- terminal state is left only into a new round, and keeps its reason; whose delivery it is never changes.
CREATE TRIGGER legal AFTER UPDATE ON duehook.deliveries
    FOR EACH ROW WHEN (
        (NEW.id, NEW.event, NEW.endpoint, NEW.tenant, NEW.created_at)
            IS DISTINCT FROM (OLD.id, OLD.event, OLD.endpoint, OLD.tenant, OLD.created_at)
        OR CASE
            WHEN OLD.status IN ('scheduled', 'leased') AND NEW.status = 'leased' THEN
                NEW.round = OLD.round AND (NEW.attempt = OLD.attempt + 1 AND NEW.token IS DISTINCT FROM OLD.token
                                           OR NEW.attempt = OLD.attempt AND NEW.token = OLD.token)
            WHEN OLD.status = 'scheduled' THEN
                NEW.status IN ('scheduled', 'cancelled', 'dead') AND NEW.attempt = OLD.attempt
                AND NEW.round = OLD.round
            WHEN OLD.status = 'leased' THEN NEW.attempt = OLD.attempt AND NEW.round = OLD.round
            WHEN NEW.status = 'scheduled' THEN
                NEW.round = OLD.round + 1 AND NEW.step = 0 AND NEW.attempt = OLD.attempt
            ELSE NEW.status = OLD.status AND NEW.attempt = OLD.attempt AND NEW.round = OLD.round
                 AND NEW.reason IS NOT DISTINCT FROM OLD.reason
        END IS NOT TRUE -- a condition that came to null would let everything pass
    )
    EXECUTE FUNCTION duehook.delivery_refused();

CREATE FUNCTION duehook.delivery_after_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    horizon interval := duehook.horizon();
BEGIN
    INSERT INTO duehook.outbox (ref, kind, tenant, endpoint, due_at, look_at)
    SELECT id, 'delivery', tenant, endpoint, next_attempt_at, next_attempt_at - horizon
      FROM new_rows WHERE status = 'scheduled' ORDER BY id;
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert AFTER INSERT ON duehook.deliveries
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.delivery_after_insert();

-- Closed: the row goes. Scheduled: look when it is due. Leased: look when the lease ends, so that a dead worker's
-- claims come up again without anybody sweeping. What changed neither state nor time keeps the look it has. Only
-- by key, never by a join: the plan is kept from the first call on, and must not be one that reads the table.
CREATE FUNCTION duehook.delivery_after_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    horizon interval := duehook.horizon();
    closed  bigint[] := ARRAY(SELECT id FROM new_rows WHERE status IN ('delivered', 'dead', 'cancelled'));
    opened  bigint[] := ARRAY(SELECT id FROM new_rows WHERE status = 'scheduled' AND round > 1 AND step = 0);
BEGIN
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
           CASE status WHEN 'leased' THEN lease_until ELSE next_attempt_at END,
           CASE status WHEN 'leased' THEN lease_until ELSE next_attempt_at - horizon END
      FROM (SELECT id, tenant, endpoint, status, next_attempt_at, lease_until FROM new_rows
             WHERE status IN ('scheduled', 'leased')
            EXCEPT SELECT id, tenant, endpoint, status, next_attempt_at, lease_until FROM old_rows) moved
     ORDER BY id
    ON CONFLICT (ref) DO UPDATE
       SET due_at = excluded.due_at, look_at = excluded.look_at, publications = 0, taken = NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER after_update AFTER UPDATE ON duehook.deliveries
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.delivery_after_update();

CREATE TRIGGER after_delete AFTER DELETE ON duehook.deliveries
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.close_deleted('id');
