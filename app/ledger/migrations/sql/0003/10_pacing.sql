-- The next slot of an endpoint that has a limit, a hint or trouble; the others have no row, or one that says nothing.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE duehook.paces (
    endpoint      bigint      NOT NULL PRIMARY KEY,
    slot_at       timestamptz,
    closed_until  timestamptz,
    closed_at     timestamptz,
    closed_why    text        COLLATE "C" CHECK (closed_why IN ('retry_after', 'failing')),
    trips         smallint    NOT NULL DEFAULT 0,
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
COMMENT ON COLUMN duehook.paces.closed_at IS 'what began before says nothing about it any more';
COMMENT ON COLUMN duehook.paces.trips IS 'times in a row that it was closed for failing';
COMMENT ON COLUMN duehook.paces.failures IS 'outcomes in a row that were no delivery';
