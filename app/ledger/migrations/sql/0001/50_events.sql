-- What happened, as immutable bytes: a receiver gets head || data || '}', whoever it is and however often.
CREATE FUNCTION duehook.event_head(seq bigint, type text, key text, created_at timestamptz) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN '{"id":"evt_' || to_hex(seq) || '","type":"' || type || '","key":' || coalesce(to_json(key)::text, 'null')
        || ',"timestamp":"' || duehook.rfc3339(created_at, 'MS') || '","data":';
END $$;

CREATE TABLE duehook.events (
    seq            bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    id             text        COLLATE "C" NOT NULL GENERATED ALWAYS AS ('evt_' || to_hex(seq)) STORED,
    tenant         text        COLLATE "C" NOT NULL,
    origin         text        COLLATE "C" NOT NULL DEFAULT 'producer' CHECK (origin IN ('producer', 'service')),
    type           text        COLLATE "C" NOT NULL,
    key            text        COLLATE "C",
    head           text        NOT NULL GENERATED ALWAYS AS (duehook.event_head(seq, type, key, created_at)) STORED,
    data           json        NOT NULL,
    request        text,
    only_to        bigint,
    not_to         bigint,
    due_at         timestamptz NOT NULL DEFAULT duehook.now(),
    created_at     timestamptz NOT NULL DEFAULT duehook.now(),
    fanned_out_at  timestamptz,
    cancelled_at   timestamptz
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX events_newest ON duehook.events (tenant, seq);
-- The service's keys are a space of their own: no producer can take the key of an expiry and so block it.
CREATE UNIQUE INDEX events_key ON duehook.events (tenant, origin, key) WHERE key IS NOT NULL;
COMMENT ON COLUMN duehook.events.request IS 'the due time as the API was asked for it, so that a repeat is told from another request';
COMMENT ON COLUMN duehook.events.only_to IS 'the one endpoint it is for, whatever its patterns (a ping)';
COMMENT ON COLUMN duehook.events.not_to IS 'the endpoint it is about and does not go to';

CREATE FUNCTION duehook.event_before_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    service duehook.service;
BEGIN
    SELECT * INTO service FROM duehook.service;
    IF NOT duehook.is_tenant(NEW.tenant) THEN
        RAISE EXCEPTION 'tenant % is not a name of letters, digits, _ and -', quote_literal(NEW.tenant)
            USING ERRCODE = 'DH004';
    ELSIF length(NEW.type) > 128 OR NEW.type !~ '^[A-Za-z0-9_]+([.][A-Za-z0-9_]+)*$' THEN
        RAISE EXCEPTION 'event type % is not words of letters, digits and _ joined by dots', quote_literal(NEW.type)
            USING ERRCODE = 'DH004';
    ELSIF NEW.origin = 'producer' AND NEW.type ~ '^(reservation[.]|endpoint[.]|job[.]|ping$)' THEN
        RAISE EXCEPTION 'event type % belongs to the service', quote_literal(NEW.type) USING ERRCODE = 'DH005';
    ELSIF length(NEW.key) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'a key has 1 to 255 characters' USING ERRCODE = 'DH004';
    ELSIF NEW.origin = 'producer' AND octet_length(NEW.data::text) > service.max_event_bytes THEN
        RAISE EXCEPTION 'data has % bytes, more than DUEHOOK_MAX_EVENT_BYTES (%)',
            octet_length(NEW.data::text), service.max_event_bytes USING ERRCODE = 'DH004';
    ELSIF NEW.due_at > NEW.created_at + interval '3653 days' THEN
        RAISE EXCEPTION 'due_at % is not within ten years', NEW.due_at USING ERRCODE = 'DH004';
    END IF;
    IF NEW.due_at < NEW.created_at THEN
        NEW.due_at := NEW.created_at; -- due in the past is due now
    END IF;
    NEW.fanned_out_at := CASE WHEN NEW.due_at <= NEW.created_at + service.horizon THEN NEW.created_at END;
    NEW.cancelled_at := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER before_insert BEFORE INSERT ON duehook.events
    FOR EACH ROW EXECUTE FUNCTION duehook.event_before_insert();

CREATE FUNCTION duehook.event_refused() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'event % can''t be rewritten: it is fanned out once and cancelled once, nothing else', OLD.id
        USING ERRCODE = 'DH003';
END $$;
CREATE TRIGGER immutable AFTER UPDATE ON duehook.events
    FOR EACH ROW WHEN (
        (NEW.seq, NEW.tenant, NEW.origin, NEW.type, NEW.key, NEW.head, NEW.data::text, NEW.request, NEW.only_to,
         NEW.not_to, NEW.due_at, NEW.created_at)
            IS DISTINCT FROM
        (OLD.seq, OLD.tenant, OLD.origin, OLD.type, OLD.key, OLD.head, OLD.data::text, OLD.request, OLD.only_to,
         OLD.not_to, OLD.due_at, OLD.created_at)
        OR OLD.fanned_out_at IS NOT NULL AND NEW.fanned_out_at IS DISTINCT FROM OLD.fanned_out_at
        OR OLD.cancelled_at IS NOT NULL AND NEW.cancelled_at IS DISTINCT FROM OLD.cancelled_at
        OR NEW.cancelled_at IS NOT NULL AND OLD.fanned_out_at IS NULL AND NEW.fanned_out_at IS NOT NULL
    )
    EXECUTE FUNCTION duehook.event_refused();

-- Fan-out: one delivery for each event and each endpoint that wants it at this moment, when the event is made or,
-- for one that waited for its time, when it is told to. The lateral join is a loop over the events with an index
-- look-up each, however large the batch and whatever the plan was first made for.
CREATE FUNCTION duehook.event_fan_out() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
AS $$
DECLARE
    horizon interval := duehook.horizon();
    waited  bigint[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
        SELECT seq, 'event', tenant, due_at, due_at - horizon
          FROM new_rows WHERE fanned_out_at IS NULL ORDER BY seq;
    ELSE
        waited := ARRAY(SELECT seq FROM old_rows WHERE fanned_out_at IS NULL AND cancelled_at IS NULL);
        DELETE FROM duehook.outbox WHERE ref = ANY (ARRAY(
            SELECT seq FROM new_rows WHERE fanned_out_at IS NOT NULL OR cancelled_at IS NOT NULL));
    END IF;
    INSERT INTO duehook.deliveries (event, endpoint, tenant, next_attempt_at, age_from)
    SELECT n.seq, e.seq, n.tenant, n.due_at, n.due_at
      FROM new_rows n
     CROSS JOIN LATERAL (SELECT duehook.patterns(n.type) AS patterns OFFSET 0) p
     CROSS JOIN LATERAL (
        SELECT DISTINCT endpoint AS seq FROM duehook.subscriptions
         WHERE n.only_to IS NULL AND tenant = n.tenant AND pattern = ANY (p.patterns)
           AND endpoint IS DISTINCT FROM n.not_to
         UNION ALL
        SELECT seq FROM duehook.endpoints
         WHERE seq = n.only_to AND tenant = n.tenant AND deleted_at IS NULL AND seq IS DISTINCT FROM n.not_to
         OFFSET 0) e
     WHERE n.fanned_out_at IS NOT NULL AND (TG_OP = 'INSERT' OR n.seq = ANY (waited))
     ORDER BY n.seq, e.seq;
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert AFTER INSERT ON duehook.events
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.event_fan_out();
CREATE TRIGGER after_update AFTER UPDATE ON duehook.events
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.event_fan_out();

-- An event is what its deliveries send: it goes after the last of them has ended, or not at all.
CREATE FUNCTION duehook.event_before_delete() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    IF EXISTS (SELECT FROM duehook.deliveries WHERE event = OLD.seq AND status IN ('scheduled', 'leased')) THEN
        RAISE EXCEPTION 'event % has deliveries that are not finished: cancel it first', OLD.id USING ERRCODE = 'DH003';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER before_delete BEFORE DELETE ON duehook.events
    FOR EACH ROW EXECUTE FUNCTION duehook.event_before_delete();

CREATE TRIGGER after_delete AFTER DELETE ON duehook.events
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.close_deleted('seq');
