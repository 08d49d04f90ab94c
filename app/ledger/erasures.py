"""Erasures: what goes of an event, and of a tenant; each call a bounded number of rows."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from app.domain.states import JobKind
from app.ledger import jobs
from app.ledger.jobs import Job

_ERASE_EVENT = text("/* erasures.event */ SELECT duehook.erase_event(:seq)")


def event(connection: Connection, seq: int) -> bool:
    """Take the bytes of a locked event away whose deliveries were cancelled before; whether they were there still."""
    return bool(connection.execute(_ERASE_EVENT, {"seq": seq}).scalar_one())


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery of an event on its way out: who got it, and whether it is in the air."""

    id: int
    event: int
    endpoint: int
    in_flight: bool


# By event and endpoint, which has an index, and then locked in the order of all others.
_NEXT = text("""/* erasures.next_deliveries */
    WITH few AS MATERIALIZED (
        SELECT id FROM duehook.deliveries
         WHERE event = ANY (CAST(:events AS bigint[])) AND (event, endpoint) > (:event, :endpoint)
         ORDER BY event, endpoint LIMIT :most)
    SELECT id, event, endpoint, status = 'leased' AS in_flight FROM duehook.deliveries
     WHERE id = ANY (ARRAY(SELECT id FROM few)) ORDER BY id FOR UPDATE""")


def next_deliveries(
    connection: Connection, events: Sequence[int], *, after: tuple[int, int], most: int
) -> Sequence[Sent]:
    """Lock the next `most` deliveries of these events after one's event and endpoint; in that order."""
    parameters = {"events": list(events), "event": after[0], "endpoint": after[1], "most": most}
    found = [Sent(**row._mapping) for row in connection.execute(_NEXT, parameters)]
    return sorted(found, key=lambda each: (each.event, each.endpoint))


# What a receiver said may be what it was sent.
_SILENCE = text("""/* erasures.silence */
    UPDATE duehook.attempts SET excerpt = NULL, location = NULL
     WHERE delivery = ANY (CAST(:deliveries AS bigint[])) AND (excerpt IS NOT NULL OR location IS NOT NULL)""")


def silence(connection: Connection, deliveries: Collection[int]) -> int:
    """Forget what receivers said in the attempts of these deliveries; returns in how many."""
    return connection.execute(_SILENCE, {"deliveries": list(deliveries)}).rowcount


_COUNT = text("/* erasures.count_deliveries */ SELECT count(*) FROM duehook.deliveries WHERE event = :event")


def count_deliveries(connection: Connection, event: int) -> int:
    """How many deliveries an event has."""
    return int(connection.execute(_COUNT, {"event": event}).scalar_one())


# One at a time for each tenant, by an index; the job's own trigger closes the tenant, in this transaction.
_START = text(f"""/* erasures.start */
    INSERT INTO duehook.jobs (tenant, kind, parameters)
    VALUES (:tenant, '{JobKind.ERASE_TENANT}', CAST(:parameters AS json))
    ON CONFLICT (tenant) WHERE kind = '{JobKind.ERASE_TENANT}' AND status IN ('queued', 'running') DO NOTHING
    RETURNING seq""")
_RUNNING = text(f"""/* erasures.running */
    SELECT seq FROM duehook.jobs
     WHERE tenant = :tenant AND kind = '{JobKind.ERASE_TENANT}' AND status IN ('queued', 'running')""")


def start(connection: Connection, tenant: str, parameters: jobs.Members) -> tuple[Job, bool] | None:
    """The job that erases a tenant, and whether it is a new one; None when one has ended this very moment."""
    asked = {"tenant": tenant, "parameters": json.dumps(parameters)}
    made = connection.execute(_START, asked).scalar_one_or_none()
    seq = made or connection.execute(_RUNNING, {"tenant": tenant}).scalar_one_or_none()
    job = None if seq is None else jobs.find(connection, tenant, seq)
    return None if job is None else (job, made is not None)


_REVOKE = text("""/* erasures.revoke_keys */
    UPDATE duehook.api_keys SET revoked_at = duehook.now() WHERE tenant = :tenant AND revoked_at IS NULL""")
_GRANTS = text("/* erasures.grants */ DELETE FROM duehook.sql_grants WHERE tenant = :tenant")


def shut_out(connection: Connection, tenant: str) -> tuple[int, int]:
    """Revoke the tenant's keys and take its SQL grants back; returns how many of each."""
    return (
        connection.execute(_REVOKE, {"tenant": tenant}).rowcount,
        connection.execute(_GRANTS, {"tenant": tenant}).rowcount,
    )


# The tables that hold what is a tenant's own, with what is chosen of them. A row that nobody can make any more, or that
# nothing refers to, goes at once; the rest has functions of its own below.
_ROWS = {
    "reservations": text("""/* erasures.reservations */
        WITH few AS MATERIALIZED (
            SELECT seq FROM duehook.reservations WHERE tenant = :tenant ORDER BY seq LIMIT :most FOR UPDATE)
        DELETE FROM duehook.reservations WHERE seq = ANY (ARRAY(SELECT seq FROM few))"""),
    "jobs": text("""/* erasures.jobs */
        WITH few AS MATERIALIZED (
            SELECT seq FROM duehook.jobs
             WHERE tenant = :tenant AND kind <> 'erase_tenant' ORDER BY seq LIMIT :most FOR UPDATE)
        DELETE FROM duehook.jobs WHERE seq = ANY (ARRAY(SELECT seq FROM few))"""),
    "answers": text("""/* erasures.answers */
        DELETE FROM duehook.kept_answers WHERE request = ANY (ARRAY(
            SELECT request FROM duehook.kept_answers
             WHERE tenant = :tenant ORDER BY request LIMIT :most FOR UPDATE))"""),
    "grants": text("""/* erasures.late_grants */
        DELETE FROM duehook.sql_grants WHERE (role, tenant) IN (
            SELECT role, tenant FROM duehook.sql_grants WHERE tenant = :tenant ORDER BY role LIMIT :most)"""),
    "keys": text("""/* erasures.keys */
        DELETE FROM duehook.api_keys WHERE seq = ANY (ARRAY(
            SELECT seq FROM duehook.api_keys WHERE tenant = :tenant ORDER BY seq LIMIT :most))"""),
}


def rows(connection: Connection, what: str, tenant: str, *, most: int) -> int:
    """Delete up to `most` reservations, kept answers, grants, keys, or jobs but erasures; returns how many."""
    return connection.execute(_ROWS[what], {"tenant": tenant, "most": most}).rowcount


_LIVE = text("""/* erasures.live_endpoints */
    SELECT seq FROM duehook.endpoints
     WHERE tenant = :tenant AND deleted_at IS NULL ORDER BY seq LIMIT :most FOR UPDATE""")
_CLOSE = text("""/* erasures.close_endpoints */
    UPDATE duehook.endpoints SET deleted_at = duehook.now(), revision = revision + 1, updated_at = duehook.now()
     WHERE seq = ANY (CAST(:seqs AS bigint[]))""")


def close_endpoints(connection: Connection, tenant: str, *, most: int) -> Sequence[int]:
    """Delete up to `most` endpoints as their owner would: nothing fans out to them, a claim that meets one cancels."""
    seqs = connection.execute(_LIVE, {"tenant": tenant, "most": most}).scalars().all()
    connection.execute(_CLOSE, {"seqs": list(seqs)})
    return seqs


_EVENTS = text("""/* erasures.next_events */
    SELECT seq FROM duehook.events WHERE tenant = :tenant AND seq >= :first ORDER BY seq LIMIT :most FOR UPDATE""")
_ATTEMPTS = text("/* erasures.attempts */ DELETE FROM duehook.attempts WHERE delivery = ANY (CAST(:ids AS bigint[]))")
_SEATS = text("/* erasures.seats */ DELETE FROM duehook.seats WHERE delivery = ANY (CAST(:ids AS bigint[]))")
# Their dead letters and their rows of the outbox go with them.
_DELIVERIES = text("/* erasures.deliveries */ DELETE FROM duehook.deliveries WHERE id = ANY (CAST(:ids AS bigint[]))")
_DELETE_EVENTS = text("""/* erasures.events */
    DELETE FROM duehook.events e
     WHERE seq = ANY (CAST(:seqs AS bigint[]))
       AND NOT EXISTS (SELECT FROM duehook.deliveries d WHERE d.event = e.seq OFFSET 0)""")


def next_events(connection: Connection, tenant: str, *, first: int, most: int) -> Sequence[int]:
    """Lock the next `most` events of a tenant, from `first` on."""
    return connection.execute(_EVENTS, {"tenant": tenant, "first": first, "most": most}).scalars().all()


def deliveries(connection: Connection, ids: Collection[int]) -> tuple[int, int]:
    """Delete locked deliveries that are not in the air, with their attempts; returns how many of each."""
    parameters = {"ids": list(ids)}
    attempts = connection.execute(_ATTEMPTS, parameters).rowcount
    connection.execute(_SEATS, parameters)
    return connection.execute(_DELIVERIES, parameters).rowcount, attempts


def events(connection: Connection, seqs: Collection[int]) -> int:
    """Delete those of these locked events that have no delivery any more; returns how many."""
    return connection.execute(_DELETE_EVENTS, {"seqs": list(seqs)}).rowcount


_DELETED = text("""/* erasures.deleted_endpoints */
    SELECT seq FROM duehook.endpoints
     WHERE tenant = :tenant AND deleted_at IS NOT NULL ORDER BY seq LIMIT :most FOR UPDATE""")
_ENDPOINT_ROWS = text("""/* erasures.endpoint_rows */
    DELETE FROM duehook.outbox WHERE ref = ANY (CAST(:seqs AS bigint[])) AND kind = 'endpoint'""")
# Their secrets, paces and subscriptions go with them.
_ENDPOINTS = text("/* erasures.endpoints */ DELETE FROM duehook.endpoints WHERE seq = ANY (CAST(:seqs AS bigint[]))")


def endpoints(connection: Connection, tenant: str, *, most: int) -> int:
    """Delete up to `most` closed endpoints that no delivery is left of, secrets and headers too; returns how many."""
    seqs = connection.execute(_DELETED, {"tenant": tenant, "most": most}).scalars().all()
    connection.execute(_ENDPOINT_ROWS, {"seqs": list(seqs)})
    return connection.execute(_ENDPOINTS, {"seqs": list(seqs)}).rowcount


# Every transaction holds a lock on a number of its own from its first statement on, before it has one that snapshots
# know: one that reads by an old snapshot may not see that the tenant is closed. Prepared ones have the other alone.
_FENCE = text("""/* erasures.fence */
    SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) AS number,
           ARRAY(SELECT virtualtransaction FROM pg_locks JOIN pg_stat_activity a USING (pid)
                  WHERE locktype = 'virtualxid' AND virtualxid = virtualtransaction AND pid <> pg_backend_pid()
                    AND a.datname = current_database() AND a.usesysid IS NOT NULL) AS open""")
# Whoever began before the fence has ended, and what he made is seen here; whoever began later was refused.
_REST = text("""/* erasures.rest */
    SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) < :number
        OR EXISTS (
            SELECT FROM pg_locks WHERE virtualxid = ANY (CAST(:open AS text[])) AND virtualxid = virtualtransaction)
        OR EXISTS (SELECT FROM duehook.endpoints WHERE tenant = :tenant AND deleted_at IS NULL ORDER BY seq OFFSET 0)
        OR EXISTS (SELECT FROM duehook.reservations WHERE tenant = :tenant ORDER BY seq OFFSET 0)
        OR EXISTS (
            SELECT FROM duehook.jobs WHERE tenant = :tenant AND kind <> 'erase_tenant' ORDER BY seq OFFSET 0)
        OR EXISTS (SELECT FROM duehook.kept_answers WHERE tenant = :tenant ORDER BY request OFFSET 0)
        OR EXISTS (SELECT FROM duehook.events WHERE tenant = :tenant ORDER BY seq OFFSET 0)""")


@dataclass(frozen=True, slots=True)
class Fence:
    """A mark in the order of transactions: the `number` of one, and all that were `open` then."""

    number: int
    open: Sequence[str]


def fence(connection: Connection) -> Fence:
    """Of this moment; made after the tenant was closed, whoever begins later knows that it is."""
    return Fence(**connection.execute(_FENCE).one()._mapping)


def anything_left(connection: Connection, tenant: str, *, fence: Fence) -> bool:
    """Whether there is anything that goes before the endpoints' rows, or somebody who may be about to make some."""
    return bool(
        connection.execute(_REST, {"tenant": tenant, "number": fence.number, "open": list(fence.open)}).scalar_one()
    )
