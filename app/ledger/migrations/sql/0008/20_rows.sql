-- Which rows: a right to a table is too much where a program has business with some of them.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The tenants that are being erased: whose keys, grants, events and reservations a worker may delete. Wrapped, so that
-- it is asked once for each statement; a policy that is plainly true costs nothing at all.
CREATE FUNCTION duehook.erasing() RETURNS text[]
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (SELECT erasing FROM duehook.service);
REVOKE ALL ON FUNCTION duehook.erasing FROM PUBLIC;
GRANT EXECUTE ON FUNCTION duehook.erasing TO duehook_worker;

CREATE POLICY service_reads ON duehook.reservations FOR SELECT TO duehook_api, duehook_worker USING (true);
CREATE POLICY api_holds ON duehook.reservations FOR INSERT TO duehook_api WITH CHECK (true);
CREATE POLICY service_moves ON duehook.reservations FOR UPDATE TO duehook_api, duehook_worker USING (true);
CREATE POLICY worker_erases ON duehook.reservations FOR DELETE TO duehook_worker
    USING (tenant = ANY ((SELECT duehook.erasing())::text[]));

-- What the service tells of transitions and jobs, its triggers write in the owner's name; nobody else may tell it, nor
-- take the key that it will be told under: the transition would then fail for ever.
CREATE POLICY service_reads ON duehook.events FOR SELECT TO duehook_api, duehook_worker USING (true);
CREATE POLICY api_makes ON duehook.events FOR INSERT TO duehook_api
    WITH CHECK (origin = 'producer' OR type = 'ping' AND key IS NULL
                OR type = 'endpoint.disabled' AND starts_with(key, 'endpoint.disabled:'));
CREATE POLICY worker_tells ON duehook.events FOR INSERT TO duehook_worker
    WITH CHECK (origin = 'service' AND type = 'endpoint.disabled' AND starts_with(key, 'endpoint.disabled:'));
CREATE POLICY service_moves ON duehook.events FOR UPDATE TO duehook_api, duehook_worker USING (true);
CREATE POLICY worker_erases ON duehook.events FOR DELETE TO duehook_worker
    USING (tenant = ANY ((SELECT duehook.erasing())::text[]));

-- The API cancels and re-opens. What came of a delivery is for those who have sent it to say.
ALTER TABLE duehook.deliveries ENABLE ROW LEVEL SECURITY;
CREATE POLICY worker_delivers ON duehook.deliveries TO duehook_worker USING (true);
CREATE POLICY api_reads ON duehook.deliveries FOR SELECT TO duehook_api USING (true);
CREATE POLICY api_moves ON duehook.deliveries FOR UPDATE TO duehook_api
    USING (true) WITH CHECK (status IN ('scheduled', 'leased', 'cancelled'));

ALTER TABLE duehook.api_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY api_knows ON duehook.api_keys TO duehook_api USING (true);
CREATE POLICY worker_erases ON duehook.api_keys TO duehook_worker
    USING (tenant = ANY ((SELECT duehook.erasing())::text[]));
-- Whoever was locked out with a key must not come back with it, whatever program he has got into meanwhile.
CREATE FUNCTION duehook.key_stays_revoked() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'a revoked key stays revoked: create another' USING ERRCODE = 'DH001';
END $$;
CREATE TRIGGER key_stays_revoked BEFORE UPDATE ON duehook.api_keys
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at)
    EXECUTE FUNCTION duehook.key_stays_revoked();
REVOKE ALL ON FUNCTION duehook.key_stays_revoked FROM PUBLIC;
-- A grant that nobody has is no grant: the view of one's own tenants reads the table in its owner's name.
ALTER TABLE duehook.sql_grants ENABLE ROW LEVEL SECURITY;
CREATE POLICY api_knows ON duehook.sql_grants TO duehook_api USING (true);
CREATE POLICY worker_erases ON duehook.sql_grants TO duehook_worker
    USING (tenant = ANY ((SELECT duehook.erasing())::text[]));
