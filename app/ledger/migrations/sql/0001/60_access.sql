-- Who may do what: keys of the API, and programs that write SQL.
CREATE TABLE duehook.api_keys (
    seq        bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    tenant     text        COLLATE "C" NOT NULL CHECK (tenant = '*' OR duehook.is_tenant(tenant)),
    scope      text        COLLATE "C" NOT NULL CHECK (scope IN ('producer', 'operator')),
    hash       bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    created_at timestamptz NOT NULL DEFAULT duehook.now(),
    revoked_at timestamptz,
    CHECK (tenant <> '*' OR scope = 'operator')
);

CREATE TABLE duehook.sql_grants (
    role   name NOT NULL,
    tenant text COLLATE "C" NOT NULL CHECK (duehook.is_tenant(tenant)),
    PRIMARY KEY (role, tenant)
);

-- The tenants that whoever asks may write for: its own grants and those of the roles it belongs to.
CREATE VIEW duehook.own_tenants WITH (security_barrier) AS
    SELECT DISTINCT g.tenant FROM duehook.sql_grants g JOIN pg_catalog.pg_roles r ON r.rolname = g.role
     WHERE pg_has_role(r.oid, 'member');

-- Roles belong to the cluster: another database of it may have made this one, or be making it now, and an owner of
-- this database alone can't make roles.
DO $$
BEGIN
    IF to_regrole('duehook_producer') IS NULL THEN
        CREATE ROLE duehook_producer NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

REVOKE ALL ON ALL TABLES IN SCHEMA duehook FROM PUBLIC;
-- Everybody may execute a new function. That would be enough to hang a trigger function, which runs with the rights
-- of the ledger's owner, on a table of one's own, and so write deliveries and service events for any tenant.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA duehook FROM PUBLIC;
GRANT EXECUTE ON FUNCTION duehook.now, duehook.next_id, duehook.rfc3339, duehook.event_head TO duehook_producer;
GRANT USAGE ON SCHEMA duehook TO duehook_producer;
GRANT USAGE ON SEQUENCE duehook.ids TO duehook_producer;
GRANT SELECT ON duehook.reservations, duehook.events, duehook.own_tenants TO duehook_producer;
GRANT INSERT (tenant, id, resource, expires_at, exclusive, data) ON duehook.reservations TO duehook_producer;
GRANT UPDATE (status) ON duehook.reservations TO duehook_producer;
GRANT INSERT (tenant, type, key, data, due_at) ON duehook.events TO duehook_producer;

ALTER TABLE duehook.reservations ENABLE ROW LEVEL SECURITY;
ALTER TABLE duehook.events ENABLE ROW LEVEL SECURITY;
CREATE POLICY granted ON duehook.reservations TO duehook_producer
    USING (tenant = ANY (ARRAY(SELECT tenant FROM duehook.own_tenants)));
CREATE POLICY granted ON duehook.events TO duehook_producer
    USING (tenant = ANY (ARRAY(SELECT tenant FROM duehook.own_tenants)));
