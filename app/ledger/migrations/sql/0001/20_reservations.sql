-- Capacity held until expires_at. The reservation clock: expires_at never changes, and the database's clock,
-- read after the row lock, decides between confirm and expire.
CREATE TABLE duehook.reservations (
    seq        bigint      NOT NULL DEFAULT duehook.next_id() UNIQUE,
    tenant     text        COLLATE "C" NOT NULL,
    id         text        COLLATE "C" NOT NULL DEFAULT ('rsv_' || to_hex(duehook.next_id())),
    resource   text        NOT NULL,
    status     text        COLLATE "C" NOT NULL DEFAULT 'held',
    version    integer     NOT NULL DEFAULT 1,
    expires_at timestamptz NOT NULL,
    exclusive  boolean     NOT NULL DEFAULT false,
    data       json,
    request    text,
    created_at timestamptz NOT NULL DEFAULT duehook.now(),
    updated_at timestamptz NOT NULL DEFAULT duehook.now(),
    PRIMARY KEY (tenant, id),
    CHECK (status IN ('held', 'confirmed', 'released', 'expired'))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX reservations_newest ON duehook.reservations (tenant, seq);
CREATE UNIQUE INDEX reservations_exclusive ON duehook.reservations (tenant, resource)
    WHERE exclusive AND status IN ('held', 'confirmed');
COMMENT ON COLUMN duehook.reservations.request IS 'what the API was asked, so that a repeat is told from another request';

CREATE FUNCTION duehook.reservation_before_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT duehook.is_tenant(NEW.tenant) THEN
        RAISE EXCEPTION 'tenant % is not a name of letters, digits, _ and -', quote_literal(NEW.tenant)
            USING ERRCODE = 'DH004';
    ELSIF length(NEW.id) > 68 OR NEW.id !~ '^rsv_[0-9A-Za-z]+$' THEN
        RAISE EXCEPTION 'reservation id % is not rsv_ and 1 to 64 letters and digits', quote_literal(NEW.id)
            USING ERRCODE = 'DH004';
    ELSIF length(NEW.resource) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'a resource has 1 to 255 characters' USING ERRCODE = 'DH004';
    ELSIF NOT NEW.expires_at BETWEEN '1970-01-01Z' AND '9999-01-01Z' THEN
        RAISE EXCEPTION 'expires_at % is not a time between 1970 and 9999', NEW.expires_at USING ERRCODE = 'DH004';
    ELSIF octet_length(NEW.data::text) > (SELECT max_event_bytes FROM duehook.service) THEN
        RAISE EXCEPTION 'data has % bytes, more than DUEHOOK_MAX_EVENT_BYTES', octet_length(NEW.data::text)
            USING ERRCODE = 'DH004';
    ELSIF NEW.status <> 'held' OR NEW.version <> 1 THEN
        RAISE EXCEPTION 'a reservation begins as held, version 1; leave status and version out'
            USING ERRCODE = 'DH001';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER before_insert BEFORE INSERT ON duehook.reservations
    FOR EACH ROW EXECUTE FUNCTION duehook.reservation_before_insert();

-- An overdue holder has lost the resource, whether or not a worker has come round. Looked for first, because an
-- update of nothing runs the triggers of an update too. Fires after before_insert: triggers go by name.
CREATE FUNCTION duehook.reservation_expire_holder() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    holder bigint := (SELECT seq FROM duehook.reservations
                       WHERE tenant = NEW.tenant AND resource = NEW.resource AND exclusive AND status = 'held'
                         AND expires_at <= duehook.now());
BEGIN
    IF holder IS NOT NULL THEN
        UPDATE duehook.reservations SET status = 'expired' WHERE seq = holder AND status = 'held';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER before_insert_exclusive BEFORE INSERT ON duehook.reservations
    FOR EACH ROW WHEN (NEW.exclusive) EXECUTE FUNCTION duehook.reservation_expire_holder();

-- Runs after the row lock: whoever queued behind another transition sees its result, and the clock as it is now.
-- A WHERE with a time in it would be checked again only if the row changed: a confirm that waited behind a
-- rollback past expires_at would slip through.
CREATE FUNCTION duehook.reservation_before_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    at timestamptz := duehook.now();
BEGIN
    IF (NEW.seq, NEW.tenant, NEW.id, NEW.resource, NEW.expires_at, NEW.exclusive, NEW.created_at)
       IS DISTINCT FROM
       (OLD.seq, OLD.tenant, OLD.id, OLD.resource, OLD.expires_at, OLD.exclusive, OLD.created_at)
       OR NEW.data::text IS DISTINCT FROM OLD.data::text OR NEW.request IS DISTINCT FROM OLD.request THEN
        RAISE EXCEPTION 'reservation % can''t be rewritten: only its status changes', OLD.id
            USING ERRCODE = 'DH003';
    ELSIF NEW.status = OLD.status THEN
        RETURN OLD; -- already so: an ordinary result, no new version and no event
    ELSIF NEW.status = 'expired' AND OLD.status = 'held' AND at < OLD.expires_at THEN
        RETURN NULL; -- early: passed over, so that a batch never fails for it
    ELSIF NEW.status = 'confirmed' AND OLD.status = 'held' AND at >= OLD.expires_at THEN
        RAISE EXCEPTION 'reservation % expired at %', OLD.id, duehook.rfc3339(OLD.expires_at)
            USING ERRCODE = 'DH002', HINT = 'a late confirm loses even if the expiry has not been recorded yet';
    ELSIF NOT (OLD.status = 'held' AND NEW.status IN ('confirmed', 'released', 'expired')
               OR OLD.status = 'confirmed' AND NEW.status = 'released') THEN
        RAISE EXCEPTION 'reservation % is %, it can''t become %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'DH001';
    END IF;
    NEW.version := OLD.version + 1;
    NEW.updated_at := at;
    RETURN NEW;
END $$;
CREATE TRIGGER before_update BEFORE UPDATE ON duehook.reservations
    FOR EACH ROW EXECUTE FUNCTION duehook.reservation_before_update();

CREATE FUNCTION duehook.reservation_after_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    horizon interval := duehook.horizon();
BEGIN
    INSERT INTO duehook.outbox (ref, kind, tenant, due_at, look_at)
    SELECT seq, 'reservation', tenant, expires_at, expires_at - horizon FROM new_rows ORDER BY seq;
    RETURN NULL;
END $$;
CREATE TRIGGER after_insert AFTER INSERT ON duehook.reservations
    REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.reservation_after_insert();

-- What subscribers are told of a transition, and what the API answers: the same members in the same order.
CREATE FUNCTION duehook.reservation_json(
    id text, resource text, status text, version integer, expires_at timestamptz, exclusive boolean, data json,
    created_at timestamptz, updated_at timestamptz
) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN ('{"id":"' || id || '","resource":' || to_json(resource) || ',"status":"' || status
        || '","version":' || version || ',"expires_at":"' || duehook.rfc3339(expires_at)
        || '","overdue":false,"exclusive":' || exclusive || ',"data":' || coalesce(data::text, 'null')
        || ',"created_at":"' || duehook.rfc3339(created_at)
        || '","updated_at":"' || duehook.rfc3339(updated_at) || '"}')::json;
END $$;

-- The plan of old x new is kept from the first call on: made for one row it would be a nested loop, and ten
-- thousand rows would take minutes. So a hash join is the only one offered.
CREATE FUNCTION duehook.reservation_after_update() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_nestloop = off SET enable_mergejoin = off SET enable_hashjoin = on
AS $$
BEGIN
    DELETE FROM duehook.outbox WHERE ref = ANY (ARRAY(SELECT seq FROM new_rows WHERE status <> 'held'));
    INSERT INTO duehook.events (tenant, origin, type, key, data)
    SELECT n.tenant, 'service', 'reservation.' || n.status,
           'reservation.' || n.status || ':' || n.id || ':v' || n.version,
           duehook.reservation_json(n.id, n.resource, n.status, n.version, n.expires_at, n.exclusive, n.data,
                                    n.created_at, n.updated_at)
      FROM new_rows n JOIN old_rows o USING (seq)
     WHERE n.status <> o.status
     ORDER BY n.tenant, n.id;
    RETURN NULL;
END $$;
CREATE TRIGGER after_update AFTER UPDATE ON duehook.reservations
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.reservation_after_update();

CREATE TRIGGER after_delete AFTER DELETE ON duehook.reservations
    REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION duehook.close_deleted('seq');
