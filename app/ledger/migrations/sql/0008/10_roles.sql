-- What each program of the service may do, worked out from the statements that it runs. Whoever breaks into one of them
-- gets that and no more: the relay, which talks to the broker, reads neither payloads nor secrets; a worker, which talks
-- to receivers, sees no key of the API and rewrites no event; the API can't make up what a receiver has answered. The
-- owner of the tables migrates and runs the commands, and triggers act in its name.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Roles belong to the cluster: another database of it may have made these, or be making them now.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['duehook_api', 'duehook_relay', 'duehook_worker'] LOOP
        BEGIN
            IF to_regrole(role) IS NULL THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            END IF;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION '% may not create roles: as a superuser run CREATE ROLE duehook_api; '
                    'CREATE ROLE duehook_relay; CREATE ROLE duehook_worker; and migrate again', current_user
                    USING ERRCODE = '42501';
        END;
    END LOOP;
END $$;

-- Three things that only an owner can do, or that nobody needs the whole right for; the functions say how far it goes.
ALTER FUNCTION duehook.make_attempt_days SECURITY DEFINER;
ALTER FUNCTION duehook.prune_audit_log SECURITY DEFINER;
-- A worker erases what it was asked to: the job says so, which workers can't make.
CREATE OR REPLACE FUNCTION duehook.erase_event(of bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
AS $$
DECLARE
    erased boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM duehook.jobs j JOIN duehook.events e ON e.tenant = j.tenant
                    WHERE e.seq = of AND j.kind = 'erase_event' AND j.status IN ('queued', 'running')
                      AND j.parameters ->> 'event' = of::text) THEN
        RAISE EXCEPTION 'nobody has asked for event % to be erased', 'evt_' || to_hex(of) USING ERRCODE = 'DH003';
    END IF;
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

GRANT USAGE ON SCHEMA duehook TO duehook_api, duehook_relay, duehook_worker;
GRANT SELECT ON duehook.schema_version TO duehook_api, duehook_relay, duehook_worker;

-- Every process tells the ledger the settings that triggers work by. `erasing` is the jobs' own, `scan_share` the
-- commands', `lock_salt` a secret of those who lock by it.
GRANT SELECT (single, horizon, max_event_bytes, key_fingerprint, scan_share, broker_epoch, max_age, erasing)
    ON duehook.service TO duehook_api, duehook_relay, duehook_worker;
GRANT UPDATE (horizon, max_event_bytes, key_fingerprint, max_age)
    ON duehook.service TO duehook_api, duehook_relay, duehook_worker;
GRANT EXECUTE ON FUNCTION duehook.now, duehook.horizon, duehook.max_age
    TO duehook_api, duehook_relay, duehook_worker;

-- The relay: when somebody must look, and that he has been told.
GRANT UPDATE (broker_epoch) ON duehook.service TO duehook_relay;
GRANT SELECT, UPDATE (look_at, publications, taken, taken_until) ON duehook.outbox TO duehook_relay;
GRANT SELECT, DELETE, INSERT (id, role, host, pid, version, clock_offset, unready),
      UPDATE (seen_at, clock_offset, unready) ON duehook.processes TO duehook_relay, duehook_worker;
GRANT EXECUTE ON FUNCTION duehook.bucket, duehook.crowds TO duehook_relay, duehook_worker;

-- The API: what tenants ask for.
GRANT SELECT (lock_salt) ON duehook.service TO duehook_api;
GRANT USAGE ON SEQUENCE duehook.ids TO duehook_api, duehook_worker;
GRANT EXECUTE ON FUNCTION duehook.next_id, duehook.rfc3339, duehook.event_head, duehook.event_digest,
      duehook.is_tenant, duehook.patterns TO duehook_api, duehook_worker;
GRANT EXECUTE ON FUNCTION duehook.accept_events, duehook.begin_once, duehook.lock_of, duehook.first_event_since
    TO duehook_api;
GRANT SELECT, INSERT (tenant, id, resource, expires_at, exclusive, data, request), UPDATE (status)
    ON duehook.reservations TO duehook_api;
GRANT SELECT, INSERT (seq, tenant, origin, type, key, data, request, only_to, not_to, due_at), UPDATE (cancelled_at)
    ON duehook.events TO duehook_api;
GRANT SELECT, UPDATE (status, step, round, abandoned, parked, cancel_requested, next_attempt_at, age_from, token,
                      claimed_at, lease_until, reason, updated_at, delivered_at) ON duehook.deliveries TO duehook_api;
GRANT SELECT ON duehook.attempts, duehook.dead_letters, duehook.subscriptions, duehook.processes, duehook.repairs
    TO duehook_api;
GRANT SELECT,
      INSERT (tenant, url, description, event_types, headers, signing, rate_per_second, max_in_flight, retry_schedule),
      UPDATE (url, description, event_types, headers, signing, status, disabled_reason, disabled_at, flagged,
              rate_per_second, max_in_flight, retry_schedule, revision, updated_at, deleted_at)
    ON duehook.endpoints TO duehook_api;
GRANT SELECT, DELETE, INSERT (endpoint, sealed), UPDATE (expires_at) ON duehook.secrets TO duehook_api;
GRANT SELECT, UPDATE (closed_until, closed_at, closed_why, trips, troubles, failures, failing_since)
    ON duehook.paces TO duehook_api;
GRANT SELECT, INSERT (delivery, endpoint, token), UPDATE (token) ON duehook.seats TO duehook_api;
GRANT SELECT, UPDATE (due_at, look_at, publications, taken) ON duehook.outbox TO duehook_api;
GRANT SELECT, INSERT (tenant, kind, parameters), UPDATE (status, total, result, updated_at)
    ON duehook.jobs TO duehook_api;
GRANT SELECT, INSERT (request, tenant, body, status, answer), UPDATE (body, status, answer, created_at)
    ON duehook.kept_answers TO duehook_api;
GRANT SELECT, INSERT (tenant, actor, action, subject, details) ON duehook.audit_log TO duehook_api;
GRANT SELECT, UPDATE (revoked_at) ON duehook.api_keys TO duehook_api; -- no INSERT: only the owner makes keys
GRANT SELECT, DELETE ON duehook.sql_grants TO duehook_api;            -- the same

-- The workers and the scan: what is due, and what came of it.
GRANT EXECUTE ON FUNCTION duehook.erase_event, duehook.make_attempt_days, duehook.prune_audit_log,
      duehook.first_event_since TO duehook_worker;
GRANT SELECT, DELETE, UPDATE (status) ON duehook.reservations TO duehook_worker;
GRANT SELECT, DELETE, INSERT (tenant, origin, type, key, data, not_to), UPDATE (fanned_out_at, cancelled_at)
    ON duehook.events TO duehook_worker;
GRANT SELECT, DELETE, INSERT (event, endpoint, tenant, next_attempt_at, age_from),
      UPDATE (status, attempt, step, round, abandoned, parked, cancel_requested, next_attempt_at, age_from, token,
              claimed_at, lease_until, reason, updated_at, delivered_at) ON duehook.deliveries TO duehook_worker;
GRANT SELECT, DELETE, UPDATE (excerpt, location),
      INSERT (delivery, number, outcome, status_code, started_at, ended_at, address, key_ids, error, excerpt, location,
              retry_after) ON duehook.attempts TO duehook_worker;
GRANT SELECT ON duehook.dead_letters, duehook.subscriptions, duehook.secrets TO duehook_worker;
GRANT SELECT, DELETE, UPDATE (status, disabled_reason, disabled_at, flagged, revision, updated_at, deleted_at)
    ON duehook.endpoints TO duehook_worker;
GRANT SELECT, UPDATE (slot_at, closed_until, closed_at, closed_why, trips, troubles, failures, failing_since)
    ON duehook.paces TO duehook_worker;
GRANT SELECT, DELETE, INSERT (delivery, endpoint, token), UPDATE (token) ON duehook.seats TO duehook_worker;
GRANT SELECT, DELETE, INSERT (ref, kind, tenant, endpoint, due_at, look_at),
      UPDATE (kind, tenant, endpoint, due_at, look_at, publications, taken, taken_until)
    ON duehook.outbox TO duehook_worker;
GRANT SELECT, DELETE, UPDATE (status, place, done, total, result, failures, next_step_at, updated_at)
    ON duehook.jobs TO duehook_worker;
-- Who deletes old answers locks them first, and a lock needs the right to update some column.
GRANT SELECT (request, tenant, created_at), DELETE, UPDATE (created_at) ON duehook.kept_answers TO duehook_worker;
GRANT INSERT (tenant, actor, action, subject, details) ON duehook.audit_log TO duehook_worker;
GRANT SELECT, UPDATE (mark, walked_at) ON duehook.audit_marks TO duehook_worker;
GRANT SELECT, INSERT (kind, number, last_at), UPDATE (number, last_at) ON duehook.repairs TO duehook_worker;
GRANT SELECT (error, digest, seen), INSERT (lane, reason, task, error, body, size, digest), UPDATE (seen, last_at, error)
    ON duehook.poison_messages TO duehook_worker;
GRANT SELECT (seq, tenant), DELETE ON duehook.api_keys TO duehook_worker;
GRANT SELECT, DELETE ON duehook.sql_grants TO duehook_worker;
