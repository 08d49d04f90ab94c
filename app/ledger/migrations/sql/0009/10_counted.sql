-- What processes have counted, for whoever serves the metrics of their host. Each says so every few seconds in its row;
-- what one has counted that ended stays in the sum of its host, or sums would fall.
SET LOCAL search_path = pg_catalog, pg_temp;

ALTER TABLE duehook.processes
    ADD COLUMN counted jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN gauges jsonb NOT NULL DEFAULT '{}';
-- Numbers of a size that can be added up: what one program writes that was broken into, all others read and sum.
ALTER TABLE duehook.processes
    ADD CONSTRAINT processes_counted_check CHECK (jsonb_typeof(counted) = 'object' AND NOT
        counted @? '$.* ? (@.type() <> "number" || @ > 1e100 || @ < -1e100)'),
    ADD CONSTRAINT processes_gauges_check CHECK (jsonb_typeof(gauges) = 'object' AND NOT
        gauges @? '$.* ? (@.type() <> "number" || @ > 1e100 || @ < -1e100)');
COMMENT ON COLUMN duehook.processes.counted IS 'what it has counted since its start, by sample';
COMMENT ON COLUMN duehook.processes.gauges IS 'how its gauges stand, by sample';

CREATE TABLE duehook.counted (
    host text PRIMARY KEY,
    counted jsonb NOT NULL
);
COMMENT ON TABLE duehook.counted IS 'what processes of a host had counted that have ended';

CREATE FUNCTION duehook.keep_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ BEGIN
    INSERT INTO duehook.counted AS c (host, counted)
    SELECT host, jsonb_object_agg(sample, total ORDER BY sample)
      FROM (SELECT host, sample, sum(value::double precision) AS total
              FROM gone, jsonb_each_text(counted) AS e(sample, value) GROUP BY host, sample) AS totals
     GROUP BY host ORDER BY host
    ON CONFLICT (host) DO UPDATE SET counted = (
        SELECT jsonb_object_agg(sample, total)
          FROM (SELECT sample, sum(value::double precision) AS total
                  FROM (SELECT * FROM jsonb_each_text(c.counted)
                        UNION ALL SELECT * FROM jsonb_each_text(EXCLUDED.counted)) AS e(sample, value)
                 GROUP BY sample) AS totals);
    -- A host that nobody is left on serves nothing: containers have a new name after each update.
    DELETE FROM duehook.counted c
     WHERE host IN (SELECT host FROM gone)
       AND NOT EXISTS (SELECT FROM duehook.processes p WHERE p.host = c.host);
    RETURN NULL;
END $$;
CREATE TRIGGER keep_counted AFTER DELETE ON duehook.processes REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.keep_counted();
REVOKE ALL ON FUNCTION duehook.keep_counted FROM PUBLIC;

-- Every process tells, the API too from now on; it alone reads.
GRANT DELETE, INSERT (id, role, host, pid, version, clock_offset, unready), UPDATE (seen_at, clock_offset, unready)
    ON duehook.processes TO duehook_api;
GRANT INSERT (counted, gauges), UPDATE (counted, gauges) ON duehook.processes
    TO duehook_api, duehook_relay, duehook_worker;
GRANT SELECT ON duehook.counted TO duehook_api;
