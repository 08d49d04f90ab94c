-- The clock, the ids and the few settings that the database itself has to know.

-- What is parsed now (defaults, checks, conditions of triggers, SQL functions) is bound now, for good: to PostgreSQL's
-- own functions and operators, whatever the search path of this database offers besides.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The one clock of the ledger. A function and not a setting, so that no client can move it; tests replace it.
-- Guards call it bare: it is volatile, so it is read after the row lock. Index conditions wrap it in a
-- sub-select, because a volatile condition would cost a sequential scan.
CREATE FUNCTION duehook.now() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN clock_timestamp();

-- Ids are unique over all tables and ordered by time: milliseconds since 1970, then 20 bits of a sequence that
-- goes round. Two ids meet only if a million are made within a millisecond. No session keeps numbers for later
-- (CACHE 1): one that was idle for a round would meet those drawn now. Never duehook.now(): a clock that tests
-- hold still must not make ids collide.
CREATE SEQUENCE duehook.ids AS bigint MINVALUE 0 MAXVALUE 1048575 START 0 CYCLE CACHE 1;

CREATE FUNCTION duehook.next_id() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
RETURN ((extract(epoch FROM clock_timestamp()) * 1000)::bigint << 20) | nextval('duehook.ids'::regclass);

-- RFC 3339 in UTC. Immutable in truth (the zone is fixed and the format has no locale), though to_char is not.
CREATE FUNCTION duehook.rfc3339(at timestamptz, fraction text DEFAULT 'US') RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$ BEGIN RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.' || fraction || '"Z"'); END $$;

-- What triggers need to know of the settings; every process brings it up to date when it starts.
CREATE TABLE duehook.service (
    single          boolean  PRIMARY KEY DEFAULT true CHECK (single),
    horizon         interval NOT NULL DEFAULT '10 seconds' CHECK (horizon >= interval '0'),
    max_event_bytes integer  NOT NULL DEFAULT 1048576 CHECK (max_event_bytes > 0),
    key_fingerprint text
);
INSERT INTO duehook.service DEFAULT VALUES;

CREATE FUNCTION duehook.horizon() RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (SELECT horizon FROM duehook.service);

-- Two rules for every pattern of the ledger. No bound like {0,63}: it costs 2 to 7 µs a look, + and a length 0.5.
-- And no backslash: in a session with standard_conforming_strings off, \. would become a dot that matches anything.
CREATE FUNCTION duehook.is_tenant(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN length(name) <= 64 AND name ~ '^[A-Za-z0-9][A-Za-z0-9_-]*$';
