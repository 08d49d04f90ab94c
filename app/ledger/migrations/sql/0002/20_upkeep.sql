-- What upkeep needs to know, and what it tells.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Since when an endpoint wants a pattern: a fan-out before that owes it nothing.
ALTER TABLE duehook.subscriptions ADD since timestamptz NOT NULL DEFAULT duehook.now();

INSERT INTO duehook.audit_marks (kind) VALUES ('fan_out');
-- The last time somebody walked: two beats, or a beat and a scan, need not walk twice as much.
ALTER TABLE duehook.audit_marks ADD walked_at timestamptz;

-- What the audit had to repair since the ledger was made; stays empty where nothing goes wrong.
CREATE TABLE duehook.repairs (
    kind    text        COLLATE "C" NOT NULL PRIMARY KEY,
    number  bigint      NOT NULL,
    last_at timestamptz NOT NULL
);

-- Broker messages that no worker could act on: nobody else keeps them.
CREATE TABLE duehook.poison_messages (
    seq     bigint      NOT NULL PRIMARY KEY DEFAULT duehook.next_id(),
    lane    text        COLLATE "C" NOT NULL,
    reason  text        COLLATE "C" NOT NULL CHECK (reason IN ('undecodable', 'unknown', 'malformed', 'raised')),
    task    text,
    error   text,
    body    bytea       NOT NULL,
    size    bigint      NOT NULL,
    digest  bytea       NOT NULL UNIQUE,
    seen    bigint      NOT NULL DEFAULT 1,
    first_at timestamptz NOT NULL DEFAULT duehook.now(),
    last_at  timestamptz NOT NULL DEFAULT duehook.now()
);
COMMENT ON COLUMN duehook.poison_messages.body IS 'as it came, redacted, at most 4 KiB of it';
COMMENT ON COLUMN duehook.poison_messages.digest IS 'SHA-256 of all of it: a message that comes again counts up instead of filling the table';

-- Who works on this ledger: each process says so every few seconds. One that is silent is dead, frozen or cut off.
CREATE TABLE duehook.processes (
    id           uuid        NOT NULL PRIMARY KEY,
    role         text        COLLATE "C" NOT NULL,
    host         text        NOT NULL,
    pid          integer     NOT NULL,
    version      text        NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT duehook.now(),
    seen_at      timestamptz NOT NULL DEFAULT duehook.now(),
    clock_offset interval    NOT NULL DEFAULT '0',
    unready      text
);
COMMENT ON COLUMN duehook.processes.clock_offset IS 'how far the ledger''s clock is ahead of its host''s';
COMMENT ON COLUMN duehook.processes.unready IS 'why it takes no work just now; null when it does';

-- What is open, by key: the audit and the shadow walk these instead of the history. Both are free for what changes
-- often: a reservation's update is no heap-only one anyway (reservations_exclusive), and few events ever wait.
CREATE INDEX reservations_held ON duehook.reservations (seq) WHERE status = 'held';
CREATE INDEX events_waiting ON duehook.events (seq) WHERE fanned_out_at IS NULL AND cancelled_at IS NULL;

-- As it was, but nobody can hold it up and it holds up nobody: no advisory lock, which any login could take; a day is
-- attached, which locks neither those who record nor those who read another day; whoever can't have a lock at once
-- leaves it to the next call, there are days left. When the last day is there, that look is all it does.
CREATE OR REPLACE FUNCTION duehook.make_attempt_days(ahead integer DEFAULT 7) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET lock_timeout = '200ms'
AS $$
DECLARE
    today date := (duehook.now())::date;
    day   date;
    name  text;
    made  integer := 0;
BEGIN
    IF to_regclass('duehook.attempts_' || to_char(today + ahead, 'YYYYMMDD')) IS NOT NULL THEN
        RETURN 0;
    END IF;
    LOCK TABLE duehook.attempts IN SHARE UPDATE EXCLUSIVE MODE;
    FOR n IN 0 .. ahead LOOP
        day := today + n;
        name := 'attempts_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('duehook.' || name) IS NOT NULL;
        CONTINUE WHEN EXISTS (SELECT FROM duehook.attempts_rest WHERE started_at >= day AND started_at < day + 1);
        EXECUTE format('CREATE TABLE duehook.%I (LIKE duehook.attempts INCLUDING ALL)', name);
        EXECUTE format('ALTER TABLE duehook.attempts ATTACH PARTITION duehook.%I FOR VALUES FROM (%L) TO (%L)',
                       name, day, day + 1);
        made := made + 1;
    END LOOP;
    RETURN made;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END $$;
SELECT duehook.make_attempt_days(); -- before there are attempts, which would keep their day out
