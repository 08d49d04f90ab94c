-- An erased event: its bytes are gone, its identity, its digest and its history stay. It is cancelled by that too, so
-- whatever passes over cancelled events passes over it.
SET LOCAL search_path = pg_catalog, pg_temp;

-- How the three columns go together is for the two guards below: a constraint would mean reading the whole table now.
ALTER TABLE duehook.events
    ALTER data DROP NOT NULL,
    ADD erased_at timestamptz,
    ADD digest    bytea;
COMMENT ON COLUMN duehook.events.digest IS 'of an erased event: SHA-256 of the body that its receivers got';

CREATE FUNCTION duehook.event_digest(head text, data json) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ BEGIN RETURN sha256(convert_to(head || data::text || '}', 'UTF8')); END $$;

-- An event begins with its data.
CREATE FUNCTION duehook.event_begins_erased() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.data IS NULL THEN
        RAISE EXCEPTION 'an event has data; where there is nothing to say, it is the JSON text null'
            USING ERRCODE = '23502', COLUMN = 'data';
    END IF;
    RAISE EXCEPTION 'an event can''t begin as erased; leave erased_at and digest out' USING ERRCODE = 'DH003';
END $$;
CREATE TRIGGER begins_whole BEFORE INSERT ON duehook.events
    FOR EACH ROW WHEN (NEW.erased_at IS NOT NULL OR NEW.digest IS NOT NULL OR NEW.data IS NULL)
    EXECUTE FUNCTION duehook.event_begins_erased();

CREATE OR REPLACE FUNCTION duehook.event_refused() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'event % can''t be rewritten: it is fanned out once, cancelled once and erased once, nothing else',
        OLD.id USING ERRCODE = 'DH003';
END $$;
-- As it was, but for the one way out: within duehook.erase_event, from whole to erased. There is no way back: an event
-- without data has no digest (null) that the new row could have.
DROP TRIGGER immutable ON duehook.events;
CREATE TRIGGER immutable AFTER UPDATE ON duehook.events
    FOR EACH ROW WHEN (
        (NEW.seq, NEW.tenant, NEW.origin, NEW.type, NEW.key, NEW.head, NEW.request, NEW.only_to, NEW.not_to, NEW.due_at,
         NEW.created_at)
            IS DISTINCT FROM
        (OLD.seq, OLD.tenant, OLD.origin, OLD.type, OLD.key, OLD.head, OLD.request, OLD.only_to, OLD.not_to, OLD.due_at,
         OLD.created_at)
        OR OLD.fanned_out_at IS NOT NULL AND NEW.fanned_out_at IS DISTINCT FROM OLD.fanned_out_at
        OR OLD.cancelled_at IS NOT NULL AND NEW.cancelled_at IS DISTINCT FROM OLD.cancelled_at
        OR NEW.cancelled_at IS NOT NULL AND OLD.fanned_out_at IS NULL AND NEW.fanned_out_at IS NOT NULL
        OR (NEW.data::text, NEW.erased_at, NEW.digest) IS DISTINCT FROM (OLD.data::text, OLD.erased_at, OLD.digest)
           AND (current_setting('duehook.erasing', true) = 'on' AND NEW.erased_at IS NOT NULL AND NEW.data IS NULL
                AND NEW.cancelled_at IS NOT NULL AND NEW.digest = duehook.event_digest(OLD.head, OLD.data)) IS NOT TRUE
    )
    EXECUTE FUNCTION duehook.event_refused();

-- Takes the bytes of an event away; whether they were there still. An event is what its deliveries send: whoever
-- erases it has locked it and cancelled them before.
CREATE FUNCTION duehook.erase_event(of bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    erased boolean;
BEGIN
    IF EXISTS (SELECT FROM duehook.deliveries
                WHERE event = of AND (status = 'scheduled' OR status = 'leased' AND NOT cancel_requested)) THEN
        RAISE EXCEPTION 'event % has deliveries that are not finished: cancel it first', 'evt_' || to_hex(of)
            USING ERRCODE = 'DH003';
    END IF;
    PERFORM set_config('duehook.erasing', 'on', true);
    UPDATE duehook.events
       SET data = NULL, digest = duehook.event_digest(head, data), erased_at = duehook.now(),
           cancelled_at = coalesce(cancelled_at, duehook.now())
     WHERE seq = of AND erased_at IS NULL;
    erased := FOUND;
    PERFORM set_config('duehook.erasing', '', true);
    RETURN erased;
END $$;

-- There is nothing left to be sent again.
CREATE FUNCTION duehook.delivery_erased() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    IF EXISTS (SELECT FROM duehook.events WHERE seq = NEW.event AND erased_at IS NOT NULL) THEN
        RAISE EXCEPTION 'delivery % can''t be re-opened: its event was erased', NEW.id USING ERRCODE = 'DH001';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER erased AFTER UPDATE ON duehook.deliveries
    FOR EACH ROW WHEN (NEW.round > OLD.round) EXECUTE FUNCTION duehook.delivery_erased();
REVOKE ALL ON FUNCTION duehook.event_digest, duehook.event_begins_erased, duehook.erase_event, duehook.delivery_erased
    FROM PUBLIC;
