-- When an endpoint may be sent to next. Each has a row from its beginning, for nobody must wait for somebody who makes
-- one; those without limit, hint or trouble never have theirs locked.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE duehook.paces (
    endpoint      bigint      NOT NULL PRIMARY KEY REFERENCES duehook.endpoints ON DELETE CASCADE,
    slot_at       timestamptz,
    closed_until  timestamptz,
    closed_at     timestamptz,
    closed_why    text        COLLATE "C" CHECK (closed_why IN ('retry_after', 'failing')),
    trips         smallint    NOT NULL DEFAULT 0,
    troubles      integer     NOT NULL DEFAULT 0,
    failures      integer     NOT NULL DEFAULT 0,
    failing_since timestamptz,
    CHECK (num_nonnulls(closed_until, closed_at, closed_why) IN (0, 3)),
    CHECK ((failures > 0) = (failing_since IS NOT NULL))
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0
);
COMMENT ON COLUMN duehook.paces.slot_at IS 'the last slot of its rate that was given away';
COMMENT ON COLUMN duehook.paces.closed_until IS 'nothing is sent until then, and then one that decides; null: it is open';
COMMENT ON COLUMN duehook.paces.closed_at IS 'what began before says nothing about whether it should be';
COMMENT ON COLUMN duehook.paces.trips IS 'times in a row that it was closed for failing';
COMMENT ON COLUMN duehook.paces.troubles IS 'outcomes in a row that a receiver in trouble has; what closes it';
COMMENT ON COLUMN duehook.paces.failures IS 'outcomes in a row that were no delivery; what disables the endpoint, after days';

CREATE FUNCTION duehook.endpoint_begins() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO duehook.paces (endpoint) VALUES (NEW.seq);
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert_pace AFTER INSERT ON duehook.endpoints
    FOR EACH ROW EXECUTE FUNCTION duehook.endpoint_begins();
REVOKE ALL ON FUNCTION duehook.endpoint_begins FROM PUBLIC;
INSERT INTO duehook.paces (endpoint) SELECT seq FROM duehook.endpoints ORDER BY seq;

-- Claims of endpoints whose owner limits what is in flight over the whole fleet. Each counts for as long as its
-- delivery is leased by its token; nobody has to take it away.
CREATE TABLE duehook.seats (
    delivery bigint NOT NULL PRIMARY KEY,
    endpoint bigint NOT NULL,
    token    uuid   NOT NULL
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX seats_endpoint ON duehook.seats (endpoint);
