-- Who changed what, through the API, the command line or the pages; written in the transaction of the change, so that
-- neither exists without the other. What producers write is the ledger itself and not repeated here.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE duehook.audit_log (
    seq     bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    at      timestamptz NOT NULL DEFAULT duehook.now(),
    tenant  text        COLLATE "C" NOT NULL CHECK (tenant = '*' OR duehook.is_tenant(tenant)),
    actor   text        NOT NULL,
    action  text        COLLATE "C" NOT NULL,
    subject text        COLLATE "C",
    details json        NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_newest ON duehook.audit_log (tenant, seq);
COMMENT ON COLUMN duehook.audit_log.tenant IS 'whose things; * where the change is about all of them';
COMMENT ON COLUMN duehook.audit_log.actor IS 'the id of an API key, or cli: and the user of the operating system';
COMMENT ON COLUMN duehook.audit_log.details IS 'never a secret, a payload, a URL or anything else that a tenant wrote: so entries outlive the tenant';

-- For statements, so that one which would change nothing is refused too. The name of the setting is a door for the one
-- function below, not a lock: whoever owns the table can drop the guard; nobody else may write to it at all. (Set within
-- the function: an owner that is no superuser can't attach it to one.)
CREATE FUNCTION duehook.audit_refused() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('duehook.pruning', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit log is only ever added to; entries leave it by age, through duehook.prune_audit_log'
        USING ERRCODE = 'DH006';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON duehook.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.audit_refused();

-- Looks at the oldest `most` entries, however many there are. Ids are in the order of time.
CREATE FUNCTION duehook.prune_audit_log(kept interval, most integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    pruned integer;
BEGIN
    IF kept IS NULL OR kept <= interval '0' THEN
        RAISE EXCEPTION 'entries of the audit log are kept for a time above zero' USING ERRCODE = 'DH004';
    END IF;
    PERFORM set_config('duehook.pruning', 'on', true);
    DELETE FROM duehook.audit_log
     WHERE seq = ANY (ARRAY(SELECT seq FROM (SELECT seq, at FROM duehook.audit_log ORDER BY seq LIMIT most) oldest
                             WHERE at < duehook.now() - kept));
    GET DIAGNOSTICS pruned = ROW_COUNT;
    PERFORM set_config('duehook.pruning', '', true);
    RETURN pruned;
END $$;
REVOKE ALL ON FUNCTION duehook.audit_refused, duehook.prune_audit_log FROM PUBLIC;
