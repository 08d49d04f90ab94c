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
