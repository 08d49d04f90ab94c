-- A subscriber: where to send, what it wants, how to sign. Deleted ones stay as rows, so that deliveries need no
-- foreign key: its row lock on every fan-out would queue all producers of a tenant behind one endpoint.
CREATE TABLE duehook.endpoints (
    seq             bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    id              text        COLLATE "C" NOT NULL GENERATED ALWAYS AS ('end_' || to_hex(seq)) STORED,
    tenant          text        COLLATE "C" NOT NULL CHECK (duehook.is_tenant(tenant)),
    url             text        NOT NULL,
    description     text,
    event_types     text[]      COLLATE "C" NOT NULL CHECK (cardinality(event_types) > 0),
    headers         bytea,
    signing         text        COLLATE "C" NOT NULL DEFAULT 'hmac' CHECK (signing IN ('hmac', 'ed25519')),
    status          text        COLLATE "C" NOT NULL DEFAULT 'enabled' CHECK (status IN ('enabled', 'disabled')),
    disabled_reason text,
    disabled_at     timestamptz,
    flagged         boolean     NOT NULL DEFAULT false,
    rate_per_second double precision CHECK (rate_per_second > 0),
    max_in_flight   integer     CHECK (max_in_flight > 0),
    retry_schedule  double precision[],
    revision        integer     NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT duehook.now(),
    updated_at      timestamptz NOT NULL DEFAULT duehook.now(),
    deleted_at      timestamptz,
    CHECK ((status = 'disabled') = (disabled_at IS NOT NULL))
);
CREATE INDEX endpoints_live ON duehook.endpoints (tenant, seq) WHERE deleted_at IS NULL;
COMMENT ON COLUMN duehook.endpoints.headers IS 'the endpoint''s own headers, encrypted JSON';
COMMENT ON COLUMN duehook.endpoints.revision IS 'changes with everything that changes what is sent or where; an outcome of an older one says nothing about the endpoint';

CREATE TABLE duehook.secrets (
    seq        bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    endpoint   bigint      NOT NULL REFERENCES duehook.endpoints ON DELETE CASCADE,
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT duehook.now(),
    expires_at timestamptz
);
CREATE INDEX secrets_endpoint ON duehook.secrets (endpoint);
COMMENT ON COLUMN duehook.secrets.sealed IS 'the signing secret, encrypted with the first of DUEHOOK_SECRETS_KEY';
COMMENT ON COLUMN duehook.secrets.expires_at IS 'null for the current secret; a rotated one signs beside it until then';

-- Who wants what, one row for each pattern of each endpoint that is not deleted: a fan-out finds its endpoints by key,
-- however many others the tenant has.
CREATE TABLE duehook.subscriptions (
    tenant   text   COLLATE "C" NOT NULL,
    pattern  text   COLLATE "C" NOT NULL,
    endpoint bigint NOT NULL,
    PRIMARY KEY (tenant, pattern, endpoint)
);
CREATE INDEX subscriptions_endpoint ON duehook.subscriptions (endpoint);

CREATE FUNCTION duehook.endpoint_subscribes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    DELETE FROM duehook.subscriptions WHERE endpoint = OLD.seq;
    IF TG_OP <> 'DELETE' AND NEW.deleted_at IS NULL THEN
        INSERT INTO duehook.subscriptions (tenant, pattern, endpoint)
        SELECT DISTINCT NEW.tenant, pattern, NEW.seq FROM unnest(NEW.event_types) AS pattern ORDER BY pattern;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert AFTER INSERT OR DELETE ON duehook.endpoints
    FOR EACH ROW EXECUTE FUNCTION duehook.endpoint_subscribes();
CREATE TRIGGER after_update AFTER UPDATE ON duehook.endpoints
    FOR EACH ROW WHEN ((NEW.seq, NEW.tenant, NEW.event_types, NEW.deleted_at)
                       IS DISTINCT FROM (OLD.seq, OLD.tenant, OLD.event_types, OLD.deleted_at))
    EXECUTE FUNCTION duehook.endpoint_subscribes();

-- The patterns that match a type: itself, each prefix with .*, and *.
CREATE FUNCTION duehook.patterns(type text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parts  text[] := string_to_array(type, '.');
    prefix text   := '';
    found  text[] := ARRAY[type, '*'];
BEGIN
    FOR n IN 1 .. cardinality(parts) - 1 LOOP
        prefix := prefix || parts[n] || '.';
        found := found || (prefix || '*');
    END LOOP;
    RETURN found;
END $$;
