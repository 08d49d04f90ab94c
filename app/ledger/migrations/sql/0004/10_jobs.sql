-- Long work in steps: each is one transaction that changes its rows and the job's place together, so that whoever is
-- killed between two of them has lost nothing and counted nothing twice. An open job has an outbox row, as everything
-- open has, that says when its next step is due.
SET LOCAL search_path = pg_catalog, pg_temp;

ALTER TABLE duehook.outbox
    DROP CONSTRAINT outbox_kind_check,
    ADD CONSTRAINT outbox_kind_check CHECK (kind IN ('reservation', 'event', 'delivery', 'endpoint', 'job'));
COMMENT ON COLUMN duehook.outbox.ref IS 'reservations.seq, events.seq, deliveries.id, endpoints.seq or jobs.seq, by kind';
INSERT INTO duehook.audit_marks (kind) VALUES ('job');

CREATE TABLE duehook.jobs (
    seq          bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    id           text        COLLATE "C" NOT NULL GENERATED ALWAYS AS ('job_' || to_hex(seq)) STORED,
    tenant       text        COLLATE "C" NOT NULL CHECK (duehook.is_tenant(tenant)),
    kind         text        COLLATE "C" NOT NULL,
    status       text        COLLATE "C" NOT NULL DEFAULT 'queued'
                 CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    parameters   json        NOT NULL,
    place        json,
    done         bigint      NOT NULL DEFAULT 0 CHECK (done >= 0),
    total        bigint      CHECK (total >= done),
    result       json,
    failures     smallint    NOT NULL DEFAULT 0,
    next_step_at timestamptz NOT NULL DEFAULT duehook.now(),
    created_at   timestamptz NOT NULL DEFAULT duehook.now(),
    updated_at   timestamptz NOT NULL DEFAULT duehook.now()
) WITH (fillfactor = 70);
CREATE INDEX jobs_newest ON duehook.jobs (tenant, seq);
CREATE INDEX jobs_open ON duehook.jobs (seq) WHERE status IN ('queued', 'running');
COMMENT ON COLUMN duehook.jobs.kind IS 'no closed set: one that a version does not know ends as failed and says so';
COMMENT ON COLUMN duehook.jobs.place IS 'where the next step goes on; written with what the step before it changed';
COMMENT ON COLUMN duehook.jobs.total IS 'null until it is counted';
COMMENT ON COLUMN duehook.jobs.failures IS 'tries of the next step, in a row, that raised';

CREATE FUNCTION duehook.job_refused() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'job % is % and % done: it can''t become % and % done, nor another job',
        OLD.id, OLD.status, OLD.done, NEW.status, NEW.done USING ERRCODE = 'DH001';
END $$;
CREATE TRIGGER legal AFTER UPDATE ON duehook.jobs
    FOR EACH ROW WHEN (
        (NEW.seq, NEW.tenant, NEW.kind, NEW.parameters::text, NEW.created_at)
            IS DISTINCT FROM (OLD.seq, OLD.tenant, OLD.kind, OLD.parameters::text, OLD.created_at)
        OR NEW.done < OLD.done
        OR NEW.status = 'queued' AND OLD.status <> 'queued'
        OR OLD.status IN ('completed', 'failed', 'cancelled')
           AND (NEW.status, NEW.done, NEW.total, NEW.result::text)
               IS DISTINCT FROM (OLD.status, OLD.done, OLD.total, OLD.result::text)
    )
    EXECUTE FUNCTION duehook.job_refused();

-- What subscribers are told of its end, and what the API answers: the same members in the same order.
CREATE FUNCTION duehook.job_json(job duehook.jobs) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN ('{"id":"' || job.id || '","kind":' || to_json(job.kind) || ',"status":"' || job.status
        || '","done":' || job.done || ',"total":' || coalesce(job.total::text, 'null')
        || ',"result":' || coalesce(job.result::text, 'null')
        || ',"created_at":"' || duehook.rfc3339(job.created_at)
        || '","updated_at":"' || duehook.rfc3339(job.updated_at) || '"}')::json;
END $$;

-- Open: look when its next step is due. Ended: the row goes, and subscribers are told, however it ended.
CREATE FUNCTION duehook.job_after_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    IF NEW.status IN ('queued', 'running') THEN
        INSERT INTO duehook.outbox AS o (ref, kind, tenant, due_at, look_at)
        VALUES (NEW.seq, 'job', NEW.tenant, NEW.next_step_at, NEW.next_step_at)
        ON CONFLICT (ref) DO UPDATE
           SET due_at = excluded.due_at, look_at = excluded.look_at, publications = 0, taken = NULL;
    ELSIF TG_OP = 'INSERT' OR OLD.status <> NEW.status THEN
        DELETE FROM duehook.outbox WHERE ref = NEW.seq;
        INSERT INTO duehook.events (tenant, origin, type, key, data)
        VALUES (NEW.tenant, 'service', 'job.completed', 'job.completed:' || NEW.id, duehook.job_json(NEW));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert AFTER INSERT ON duehook.jobs
    FOR EACH ROW EXECUTE FUNCTION duehook.job_after_change();
CREATE TRIGGER after_update AFTER UPDATE ON duehook.jobs
    FOR EACH ROW EXECUTE FUNCTION duehook.job_after_change();
CREATE TRIGGER after_delete AFTER DELETE ON duehook.jobs
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.close_deleted('seq');

-- The seq of a tenant's first event made at or after a time; null when there is none. Found by halving: seq and
-- created_at are of the same clock, a moment apart, and only seq has an index.
CREATE FUNCTION duehook.first_event_since(of_tenant text, since timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    low   bigint := 0;
    high  bigint := 9223372036854775807;
    first bigint;
    at    bigint;
    made  timestamptz;
BEGIN
    WHILE low < high LOOP
        SELECT e.seq, e.created_at INTO at, made FROM duehook.events e
         WHERE e.tenant = of_tenant AND e.seq >= low + (high - low) / 2 ORDER BY e.seq LIMIT 1;
        IF FOUND AND made < since THEN
            low := at + 1;
        ELSE
            first := coalesce(at, first);
            high := low + (high - low) / 2;
        END IF;
    END LOOP;
    RETURN first;
END $$;
REVOKE ALL ON FUNCTION duehook.job_refused, duehook.job_json, duehook.job_after_change, duehook.first_event_since
    FROM PUBLIC;
