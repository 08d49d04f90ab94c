"""API keys: kept as hashes only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from app.domain.states import KeyScope


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A row of `duehook.api_keys`; `tenant` is `*` for a key of all tenants."""

    seq: int
    tenant: str
    scope: KeyScope
    created_at: datetime
    revoked_at: datetime | None


_COLUMNS = "seq, tenant, scope, created_at, revoked_at"
_INSERT = text(f"""/* keys.insert */
    INSERT INTO duehook.api_keys (tenant, scope, hash) VALUES (:tenant, :scope, :hash) RETURNING {_COLUMNS}""")
_FIND = text(f"""/* keys.find */
    SELECT {_COLUMNS} FROM duehook.api_keys WHERE hash = :hash AND revoked_at IS NULL""")
_ALL = text(f"/* keys.newest */ SELECT {_COLUMNS} FROM duehook.api_keys ORDER BY seq DESC")
_REVOKE = text(f"""/* keys.revoke */
    UPDATE duehook.api_keys SET revoked_at = coalesce(revoked_at, duehook.now()) WHERE seq = :seq
    RETURNING {_COLUMNS}""")


def insert(connection: Connection, tenant: str, scope: KeyScope, digest: bytes) -> ApiKey:
    """Keep a key's hash."""
    return _key(connection.execute(_INSERT, {"tenant": tenant, "scope": scope, "hash": digest}).one())


def find(connection: Connection, digest: bytes) -> ApiKey | None:
    """The key with this hash; None when there is none or it was revoked."""
    row = connection.execute(_FIND, {"hash": digest}).one_or_none()
    return None if row is None else _key(row)


def newest(connection: Connection) -> Sequence[ApiKey]:
    """All keys, revoked ones too, newest first."""
    return [_key(row) for row in connection.execute(_ALL)]


def revoke(connection: Connection, seq: int) -> ApiKey | None:
    """Revoke one for good; a repeat keeps the first time. None when there is none."""
    row = connection.execute(_REVOKE, {"seq": seq}).one_or_none()
    return None if row is None else _key(row)


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(**{**row._mapping, "scope": KeyScope(row.scope)})
