-- A tenant that is being erased: nobody writes for it any more, until the job has ended.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Those that the index of the live ones leaves out.
CREATE INDEX endpoints_deleted ON duehook.endpoints (tenant, seq) WHERE deleted_at IS NOT NULL;
CREATE INDEX kept_answers_of_tenant ON duehook.kept_answers (tenant, request);
CREATE UNIQUE INDEX jobs_erasing ON duehook.jobs (tenant)
    WHERE kind = 'erase_tenant' AND status IN ('queued', 'running');

ALTER TABLE duehook.service ADD erasing text[] COLLATE "C" NOT NULL DEFAULT '{}';
COMMENT ON COLUMN duehook.service.erasing IS 'the tenants that have an open job of the kind erase_tenant; kept by the jobs themselves';

-- A statement's rows at once, after all is done. What the service itself makes (the event of a transition that had begun)
-- is let in: it goes to nobody, and the erasure finds it.
CREATE FUNCTION duehook.refuse_erasing() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    closed  text[] := (SELECT erasing FROM duehook.service);
    refused text;
BEGIN
    IF closed = '{}' THEN
        RETURN NULL;
    ELSIF TG_TABLE_NAME = 'events' THEN
        refused := (SELECT min(tenant) FROM new_rows WHERE tenant = ANY (closed) AND origin = 'producer');
    ELSIF TG_TABLE_NAME = 'jobs' THEN
        refused := (SELECT min(tenant) FROM new_rows WHERE tenant = ANY (closed) AND kind <> 'erase_tenant');
    ELSE
        refused := (SELECT min(tenant) FROM new_rows WHERE tenant = ANY (closed));
    END IF;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'the tenant % is being erased: nothing is made for it until that has ended', refused
            USING ERRCODE = 'DH007';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER not_erasing AFTER INSERT ON duehook.events
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION duehook.refuse_erasing();
CREATE TRIGGER not_erasing AFTER INSERT ON duehook.reservations
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION duehook.refuse_erasing();
CREATE TRIGGER not_erasing AFTER INSERT ON duehook.endpoints
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION duehook.refuse_erasing();
CREATE TRIGGER not_erasing AFTER INSERT ON duehook.jobs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION duehook.refuse_erasing();
CREATE TRIGGER not_erasing AFTER INSERT ON duehook.api_keys
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION duehook.refuse_erasing();
CREATE TRIGGER not_erasing AFTER INSERT ON duehook.sql_grants
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION duehook.refuse_erasing();

-- As it was, but for the erasure of a tenant: it closes the tenant and opens it again, and tells nobody of its end, for
-- there is nobody left to be told.
CREATE OR REPLACE FUNCTION duehook.job_after_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    IF NEW.status IN ('queued', 'running') THEN
        INSERT INTO duehook.outbox AS o (ref, kind, tenant, due_at, look_at)
        VALUES (NEW.seq, 'job', NEW.tenant, NEW.next_step_at, NEW.next_step_at)
        ON CONFLICT (ref) DO UPDATE
           SET due_at = excluded.due_at, look_at = excluded.look_at, publications = 0, taken = NULL;
        IF TG_OP = 'INSERT' AND NEW.kind = 'erase_tenant' THEN
            UPDATE duehook.service SET erasing = erasing || NEW.tenant;
        END IF;
    ELSIF TG_OP = 'INSERT' OR OLD.status <> NEW.status THEN
        DELETE FROM duehook.outbox WHERE ref = NEW.seq;
        IF NEW.kind = 'erase_tenant' THEN
            UPDATE duehook.service SET erasing = array_remove(erasing, NEW.tenant);
        ELSE
            INSERT INTO duehook.events (tenant, origin, type, key, data)
            VALUES (NEW.tenant, 'service', 'job.completed', 'job.completed:' || NEW.id, duehook.job_json(NEW));
        END IF;
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION duehook.refuse_erasing FROM PUBLIC;
