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

-- The tenants that a role may write for, its own grants and those of the roles it belongs to.
CREATE FUNCTION duehook.granted_tenants(member name) RETURNS text[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT coalesce(array_agg(g.tenant), '{}') FROM duehook.sql_grants g JOIN pg_roles r ON r.rolname = g.role
     WHERE pg_has_role(member, r.oid, 'member');
END;

-- Roles belong to the cluster: another database of it may have made this one, or be making it now.
DO $$
BEGIN
    CREATE ROLE duehook_producer NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;

REVOKE ALL ON ALL TABLES IN SCHEMA duehook FROM PUBLIC;
GRANT USAGE ON SCHEMA duehook TO duehook_producer;
GRANT USAGE ON SEQUENCE duehook.ids TO duehook_producer;
GRANT SELECT ON duehook.reservations, duehook.events TO duehook_producer;
GRANT INSERT (tenant, id, resource, expires_at, exclusive, data) ON duehook.reservations TO duehook_producer;
GRANT UPDATE (status) ON duehook.reservations TO duehook_producer;
GRANT INSERT (tenant, type, key, data, due_at) ON duehook.events TO duehook_producer;

ALTER TABLE duehook.reservations ENABLE ROW LEVEL SECURITY;
ALTER TABLE duehook.events ENABLE ROW LEVEL SECURITY;
CREATE POLICY granted ON duehook.reservations TO duehook_producer
    USING (tenant = ANY ((SELECT duehook.granted_tenants(current_user))::text[]));
CREATE POLICY granted ON duehook.events TO duehook_producer
    USING (tenant = ANY ((SELECT duehook.granted_tenants(current_user))::text[]));
