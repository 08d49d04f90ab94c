-- Events and what came of them, in one statement: the fan-out is done by triggers when the insert has ended, so no part
-- of the insert itself could count it. A second statement would cost every single event a round trip.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Inserted in order of key, so that two batches with the same keys queue instead of deadlocking. What has a key that
-- exists is left out.
CREATE FUNCTION duehook.accept_events(
    of_tenant text, types text[], keys text[], datas text[], dues timestamptz[], delays double precision[],
    requests text[]
) RETURNS TABLE (place integer, seq bigint, id text, created_at timestamptz, due_at timestamptz, deliveries bigint)
-- Planned once: to plan the insert for the arrays of every call costs a tenth of a single event.
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    seqs bigint[] := ARRAY(SELECT duehook.next_id() FROM unnest(types));
BEGIN
    INSERT INTO duehook.events (seq, tenant, type, key, data, due_at, request)
    SELECT a.seq, of_tenant, a.type, a.key, a.data::json,
           coalesce(a.due_at, duehook.now() + make_interval(secs => coalesce(a.delay, 0))), a.request
      FROM unnest(seqs, types, keys, datas, dues, delays, requests) WITH ORDINALITY
           AS a(seq, type, key, data, due_at, delay, request, place)
     ORDER BY a.key, a.place
    ON CONFLICT (tenant, origin, key) WHERE key IS NOT NULL DO NOTHING;
    RETURN QUERY
    SELECT a.place::integer - 1, e.seq, e.id, e.created_at, e.due_at,
           (SELECT count(*) FROM duehook.deliveries d WHERE d.event = e.seq)
      FROM unnest(seqs) WITH ORDINALITY AS a(seq, place) JOIN duehook.events e ON e.seq = a.seq;
END $$;
REVOKE ALL ON FUNCTION duehook.accept_events FROM PUBLIC;
