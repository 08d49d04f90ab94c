-- The answers to requests that their senders gave a key, written in the transaction of their effect: whoever is killed
-- before it commits leaves neither, and nothing that would block the next try.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE duehook.kept_answers (
    request    bytea       NOT NULL PRIMARY KEY CHECK (octet_length(request) = 32),
    tenant     text        COLLATE "C" NOT NULL CHECK (duehook.is_tenant(tenant)),
    body       bytea       NOT NULL CHECK (octet_length(body) = 32),
    status     smallint    NOT NULL CHECK (status BETWEEN 200 AND 299),
    answer     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT duehook.now()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX kept_answers_oldest ON duehook.kept_answers (created_at);
ALTER TABLE duehook.kept_answers ALTER COLUMN answer SET STORAGE EXTERNAL;
COMMENT ON COLUMN duehook.kept_answers.request IS 'SHA-256 of tenant, method, key and path, with NUL between them';
COMMENT ON COLUMN duehook.kept_answers.body IS 'SHA-256 of the bytes of the body: another body is another request';
COMMENT ON COLUMN duehook.kept_answers.answer IS 'the JSON text, deflated (zlib); a secret in it is null';

-- The number of an advisory lock. Every login of the database may take one: with a number that it could compute, a
-- producer's role could make another tenant wait for ever.
ALTER TABLE duehook.service ADD lock_salt bytea NOT NULL DEFAULT uuid_send(gen_random_uuid());
CREATE FUNCTION duehook.lock_of(name bytea) RETURNS bigint
LANGUAGE sql STABLE
RETURN ('x' || encode(substr(sha256((SELECT lock_salt FROM duehook.service) || name), 1, 8), 'hex'))::bit(64)::bigint;

-- Whether the caller is the first of this request, until its transaction ends, and the answer that is kept for it.
-- Neither: the first is still running. The look must be of after the lock, with a snapshot of its own (VOLATILE): one
-- that was taken before would miss what the first committed while it let go of the lock.
CREATE FUNCTION duehook.begin_once(of_request bytea, kept_for interval)
RETURNS TABLE (first boolean, body bytea, status smallint, answer bytea)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
BEGIN
    first := pg_try_advisory_xact_lock(duehook.lock_of(substr(of_request, 1, 8)));
    SELECT k.body, k.status, k.answer INTO body, status, answer FROM duehook.kept_answers k
     WHERE k.request = of_request AND k.created_at > (SELECT duehook.now()) - kept_for;
    RETURN NEXT;
END $$;
REVOKE ALL ON FUNCTION duehook.begin_once, duehook.lock_of FROM PUBLIC;
