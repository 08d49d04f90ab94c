-- One row for every open thing: when must somebody look at it next?
-- Kept by the triggers of the things themselves, in the transaction that opens, moves or closes them. Only
-- triggers wait for a row of it, and they hold the thing's own lock by then; relay and reconciliation pass over
-- locked rows. So no order of locks has to be kept among its rows.
CREATE TABLE duehook.outbox (
    ref          bigint      NOT NULL PRIMARY KEY,
    kind         text        COLLATE "C" NOT NULL CHECK (kind IN ('reservation', 'event', 'delivery', 'endpoint')),
    tenant       text        COLLATE "C" NOT NULL,
    endpoint     bigint,
    due_at       timestamptz NOT NULL,
    look_at      timestamptz NOT NULL,
    publications smallint    NOT NULL DEFAULT 0,
    taken        uuid
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX outbox_look ON duehook.outbox (kind, look_at);
COMMENT ON COLUMN duehook.outbox.ref IS 'reservations.seq, events.seq, deliveries.id or endpoints.seq, by kind';
COMMENT ON COLUMN duehook.outbox.due_at IS 'when the work may be done: the ETA of its wake-up';
COMMENT ON COLUMN duehook.outbox.look_at IS 'when the relay must look: due less the horizon, the end of a publish lease, the end of a claim''s lease';
COMMENT ON COLUMN duehook.outbox.taken IS 'token of the relay that is publishing it; any other change of the row clears it';

-- What is deleted is closed: its row goes too. The argument names the column that the outbox refers to.
CREATE FUNCTION duehook.close_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    closed bigint[];
BEGIN
    IF TG_ARGV[0] = 'id' THEN closed := ARRAY(SELECT id::bigint FROM old_rows);
    ELSE closed := ARRAY(SELECT seq FROM old_rows);
    END IF;
    DELETE FROM duehook.outbox WHERE ref = ANY (closed);
    RETURN NULL;
END $$;

-- How far the audit has come in each table: it walks a bounded stretch at a time and begins anew at the end.
CREATE TABLE duehook.audit_marks (
    kind text   COLLATE "C" NOT NULL PRIMARY KEY,
    mark bigint NOT NULL DEFAULT 0
);
INSERT INTO duehook.audit_marks (kind) VALUES ('reservation'), ('event'), ('delivery'), ('outbox');
