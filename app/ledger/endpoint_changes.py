"""What an owner changes about an endpoint, under the lock of its row."""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from app.ledger.endpoints import COLUMNS, Endpoint, endpoint_of

_LOCK = text(f"""/* endpoints.lock */
    SELECT {COLUMNS} FROM duehook.endpoints
     WHERE tenant = :tenant AND seq = :seq AND deleted_at IS NULL FOR UPDATE""")


def lock(connection: Connection, tenant: str, seq: int) -> Endpoint | None:
    """One endpoint as it is behind its lock; None when the tenant has none of that id, or deleted it.

    A statement of its own: what depends on it must read a snapshot that is newer than the lock.
    """
    row = connection.execute(_LOCK, {"tenant": tenant, "seq": seq}).one_or_none()
    return None if row is None else endpoint_of(row)


_UPDATE = text(f"""/* endpoints.update */
    UPDATE duehook.endpoints
       SET url = :url, description = :description, event_types = CAST(:event_types AS text[]), headers = :headers,
           signing = :signing, rate_per_second = :rate_per_second, max_in_flight = :max_in_flight,
           retry_schedule = CAST(:retry_schedule AS double precision[]),
           revision = revision + CASE WHEN CAST(:sent_differently AS boolean) THEN 1 ELSE 0 END,
           updated_at = duehook.now()
     WHERE seq = :seq RETURNING {COLUMNS}""")


def update(connection: Connection, endpoint: Endpoint, *, sent_differently: bool) -> Endpoint:
    """Write a locked endpoint's settings; a new revision when they change what is sent, where or how often."""
    parameters = {
        "seq": endpoint.seq,
        "url": endpoint.url,
        "description": endpoint.description,
        "event_types": list(endpoint.event_types),
        "headers": endpoint.headers,
        "signing": endpoint.signing,
        "rate_per_second": endpoint.rate_per_second,
        "max_in_flight": endpoint.max_in_flight,
        "retry_schedule": None if endpoint.retry_schedule is None else list(endpoint.retry_schedule),
        "sent_differently": sent_differently,
    }
    return endpoint_of(connection.execute(_UPDATE, parameters).one())


_ENABLE = text(f"""/* endpoints.enable */
    UPDATE duehook.endpoints
       SET revision = revision + CASE status WHEN 'enabled' THEN 0 ELSE 1 END,
           status = 'enabled', disabled_reason = NULL, disabled_at = NULL, flagged = false, updated_at = duehook.now()
     WHERE seq = :seq RETURNING {COLUMNS}""")

# The event of it in the same statement, to every endpoint but this one; its key names the revision that was disabled.
_DISABLE = text(f"""/* endpoints.disable */
    WITH disabled AS (
        UPDATE duehook.endpoints
           SET status = 'disabled', disabled_reason = :reason, disabled_at = duehook.now(), revision = revision + 1,
               updated_at = duehook.now()
         WHERE seq = :seq AND status = 'enabled' AND revision = coalesce(CAST(:revision AS integer), revision)
        RETURNING {COLUMNS}),
    told AS (
        INSERT INTO duehook.events (tenant, origin, type, key, data, not_to)
        SELECT tenant, 'service', 'endpoint.disabled', 'endpoint.disabled:' || id || '\\:v' || revision,
               json_build_object('id', id, 'disabled_reason', disabled_reason,
                                 'disabled_at', duehook.rfc3339(disabled_at)), seq
          FROM disabled)
    SELECT {COLUMNS} FROM disabled""")


def enable(connection: Connection, seq: int) -> Endpoint:
    """Enable a locked endpoint and clear its flag; an enabled one keeps its revision."""
    return endpoint_of(connection.execute(_ENABLE, {"seq": seq}).one())


def disable(connection: Connection, seq: int, reason: str, *, revision: int | None = None) -> Endpoint | None:
    """Disable an endpoint and tell the tenant's others by an event; None when it is disabled already.

    With a `revision`, None as well when it has another by now: what the old address said is not about the new one.
    """
    row = connection.execute(_DISABLE, {"seq": seq, "reason": reason, "revision": revision}).one_or_none()
    return None if row is None else endpoint_of(row)


_DELETE = text("""/* endpoints.delete */
    UPDATE duehook.endpoints SET deleted_at = duehook.now(), revision = revision + 1, updated_at = duehook.now()
     WHERE seq = :seq""")


def delete(connection: Connection, seq: int) -> None:
    """Delete a locked endpoint: nothing fans out to it any more; the row stays for its deliveries to refer to."""
    connection.execute(_DELETE, {"seq": seq})


_OPEN = text("""/* deliveries.open_of_endpoint */
    SELECT id FROM (SELECT id, status FROM duehook.deliveries WHERE endpoint = :endpoint ORDER BY id DESC LIMIT :most) n
     WHERE status IN ('scheduled', 'leased')""")


def open_deliveries(connection: Connection, endpoint: int, *, most: int) -> Sequence[int]:
    """The open ones among the newest `most` deliveries of an endpoint."""
    return connection.execute(_OPEN, {"endpoint": endpoint, "most": most}).scalars().all()


_FLAG = text("""/* endpoints.flag */
    UPDATE duehook.endpoints SET flagged = true, updated_at = duehook.now()
     WHERE seq = :seq AND revision = :revision AND NOT flagged""")


def flag(connection: Connection, seq: int, revision: int) -> bool:
    """Mark an endpoint whose receiver rejects our credentials, for its owner to see; whether that is news."""
    return connection.execute(_FLAG, {"seq": seq, "revision": revision}).rowcount == 1
