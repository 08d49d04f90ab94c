-- Two adapters notice due work, relay and scan; a window with fair shares for when there is more than can be done.
SET LOCAL search_path = pg_catalog, pg_temp;

ALTER TABLE duehook.service
    ADD scan_share   smallint NOT NULL DEFAULT 0 CHECK (scan_share BETWEEN 0 AND 100),
    ADD broker_epoch text;
COMMENT ON COLUMN duehook.service.scan_share IS 'per cent of the work, by bucket of the id, that the scan adapter notices; the queue notices the rest';
COMMENT ON COLUMN duehook.service.broker_epoch IS 'which life of the broker the published wake-ups are in; another one means that they are lost';

-- Which hundredth of the work an id belongs to. By hash: numbers drawn together (an event and its deliveries) must
-- not land in a pattern.
CREATE FUNCTION duehook.bucket(ref bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (hashint8(ref) & 2147483647) % 100;

-- A take changes no indexed column, so it stays a heap-only update; until taken_until the row is somebody's.
ALTER TABLE duehook.outbox ADD taken_until timestamptz;
COMMENT ON COLUMN duehook.outbox.taken_until IS 'until when the take holds; meaningless without taken';

-- The fair window: due rows by tenant and endpoint, 0 where there is none.
UPDATE duehook.outbox SET endpoint = 0 WHERE endpoint IS NULL;
ALTER TABLE duehook.outbox ALTER endpoint SET DEFAULT 0, ALTER endpoint SET NOT NULL;
CREATE INDEX outbox_fair ON duehook.outbox (kind, tenant, endpoint, look_at);

-- The tenants and endpoints that have something of a kind to be looked at, from (after_tenant, after_endpoint) on:
-- one index look-up for each, however many rows they have.
CREATE FUNCTION duehook.crowds(of_kind text, after_tenant text, after_endpoint bigint, most integer)
RETURNS TABLE (tenant text, endpoint bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    at     timestamptz := duehook.now();
    looked timestamptz;
BEGIN
    tenant := after_tenant;
    endpoint := after_endpoint;
    WHILE most > 0 LOOP
        SELECT o.tenant, o.endpoint, o.look_at INTO tenant, endpoint, looked FROM duehook.outbox o
         WHERE o.kind = of_kind AND (o.tenant, o.endpoint) > (crowds.tenant, crowds.endpoint)
         ORDER BY o.tenant, o.endpoint, o.look_at LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF looked <= at THEN
            most := most - 1;
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION duehook.bucket, duehook.crowds FROM PUBLIC;
