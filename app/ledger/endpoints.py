"""Endpoints: where a tenant's events go, what for, and signed with what."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of `duehook.endpoints`; `headers` are sealed."""

    seq: int
    id: str
    tenant: str
    url: str = field(repr=False)
    description: str | None
    event_types: tuple[str, ...]
    headers: bytes | None
    signing: str
    status: str
    disabled_reason: str | None
    disabled_at: datetime | None
    flagged: bool
    rate_per_second: float | None
    max_in_flight: int | None
    retry_schedule: tuple[float, ...] | None
    revision: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A signing secret as it is stored; `expires_at` is None for the current one."""

    seq: int
    endpoint: int
    sealed: bytes
    expires_at: datetime | None


COLUMNS = """seq, id, tenant, url, description, event_types, headers, signing, status, disabled_reason, disabled_at,
    flagged, rate_per_second, max_in_flight, retry_schedule, revision, created_at"""

_INSERT = text(f"""/* endpoints.insert */
    INSERT INTO duehook.endpoints (tenant, url, description, event_types, headers, signing, rate_per_second,
                                   max_in_flight, retry_schedule)
    VALUES (:tenant, :url, :description, CAST(:event_types AS text[]), :headers, :signing, :rate_per_second,
            :max_in_flight, CAST(:retry_schedule AS double precision[]))
    RETURNING {COLUMNS}""")


def insert(
    connection: Connection,
    tenant: str,
    *,
    url: str,
    event_types: Sequence[str],
    description: str | None = None,
    headers: bytes | None = None,
    signing: str = "hmac",
    rate_per_second: float | None = None,
    max_in_flight: int | None = None,
    retry_schedule: Sequence[float] | None = None,
) -> Endpoint:
    """A new enabled endpoint; it has no secret yet."""
    parameters = {
        "tenant": tenant,
        "url": url,
        "description": description,
        "event_types": list(event_types),
        "headers": headers,
        "signing": signing,
        "rate_per_second": rate_per_second,
        "max_in_flight": max_in_flight,
        "retry_schedule": None if retry_schedule is None else list(retry_schedule),
    }
    return endpoint_of(connection.execute(_INSERT, parameters).one())


_LOAD = text(f"/* endpoints.load */ SELECT {COLUMNS} FROM duehook.endpoints WHERE seq = ANY (CAST(:seqs AS bigint[]))")
_FIND = text(f"""/* endpoints.find */
    SELECT {COLUMNS} FROM duehook.endpoints WHERE tenant = :tenant AND seq = :seq AND deleted_at IS NULL""")


def load(connection: Connection, seqs: Sequence[int]) -> list[Endpoint]:
    """Endpoints by seq, deleted ones too."""
    return [endpoint_of(row) for row in connection.execute(_LOAD, {"seqs": list(seqs)})]


def find(connection: Connection, tenant: str, seq: int) -> Endpoint | None:
    """One endpoint; None when the tenant has none of that id, or deleted it."""
    row = connection.execute(_FIND, {"tenant": tenant, "seq": seq}).one_or_none()
    return None if row is None else endpoint_of(row)


_LOCK_NUMBER = text("""/* endpoints.lock_number */
    SELECT pg_advisory_xact_lock(duehook.lock_of(convert_to('endpoints of ' || :tenant, 'UTF8')))""")
_COUNT = text("""/* endpoints.count */
    SELECT count(*) FROM (
        SELECT FROM duehook.endpoints WHERE tenant = :tenant AND deleted_at IS NULL LIMIT :most) AS counted""")


def lock_number(connection: Connection, tenant: str) -> None:
    """Make others who lock it wait until this transaction has ended: their count is then of after it."""
    connection.execute(_LOCK_NUMBER, {"tenant": tenant})


def count(connection: Connection, tenant: str, *, most: int) -> int:
    """How many endpoints the tenant has that are not deleted, counted up to `most`."""
    return int(connection.execute(_COUNT, {"tenant": tenant, "most": most}).scalar_one())


_ADD_SECRET = text("""/* endpoints.add_secret */
    INSERT INTO duehook.secrets (endpoint, sealed) VALUES (:endpoint, :sealed) RETURNING seq""")
_SECRETS = text("""/* endpoints.secrets */
    SELECT seq, endpoint, sealed, expires_at FROM duehook.secrets
     WHERE endpoint = ANY (CAST(:seqs AS bigint[])) AND (expires_at IS NULL OR expires_at > duehook.now())
     ORDER BY seq DESC""")


def add_secret(connection: Connection, endpoint: int, sealed: bytes) -> int:
    """Keep a sealed secret for an endpoint; returns its key number."""
    return int(connection.execute(_ADD_SECRET, {"endpoint": endpoint, "sealed": sealed}).scalar_one())


def secrets(connection: Connection, seqs: Sequence[int]) -> list[SealedSecret]:
    """The live secrets of these endpoints, newest first."""
    return [SealedSecret(**row._mapping) for row in connection.execute(_SECRETS, {"seqs": list(seqs)})]


_EXPIRE_SECRETS = text("""/* endpoints.expire_secrets */
    WITH ended AS (
        DELETE FROM duehook.secrets WHERE endpoint = :endpoint AND expires_at <= (SELECT duehook.now()))
    UPDATE duehook.secrets SET expires_at = least(expires_at, duehook.now() + :overlap)
     WHERE endpoint = :endpoint AND (expires_at IS NULL OR expires_at > (SELECT duehook.now()))
    RETURNING expires_at""")
_TOUCH = text("""/* endpoints.touch */
    UPDATE duehook.endpoints SET revision = revision + 1, updated_at = duehook.now() WHERE seq = :endpoint""")


def expire_secrets(connection: Connection, endpoint: int, overlap: timedelta) -> datetime | None:
    """Let the live secrets of a locked endpoint end after `overlap`; returns the latest end, None without any.

    Those that have ended are no use to anybody but a thief, and are deleted.
    """
    ends = connection.execute(_EXPIRE_SECRETS, {"endpoint": endpoint, "overlap": overlap}).scalars().all()
    return max(ends, default=None)


def touch(connection: Connection, endpoint: int) -> None:
    """A new revision: whoever keeps this endpoint's keys or address in memory reads them again."""
    connection.execute(_TOUCH, {"endpoint": endpoint})


def endpoint_of(row: Row[Any]) -> Endpoint:
    """The endpoint that a row of `COLUMNS` is."""
    fields = dict(row._mapping)
    schedule = fields["retry_schedule"]
    fields["event_types"] = tuple(fields["event_types"])
    fields["retry_schedule"] = None if schedule is None else tuple(schedule)
    return Endpoint(**fields)
