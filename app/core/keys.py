"""API keys: made once, shown once, kept as hashes."""

import hashlib
import re
import secrets
from collections.abc import Sequence

from sqlalchemy import Connection

from app.domain import identity
from app.domain.auditing import Action
from app.domain.states import KeyScope
from app.ledger import audit, keys
from app.ledger.keys import ApiKey

__all__ = ["EVERY_TENANT", "ApiKey", "create", "find", "looks_right", "newest", "note", "public_id", "revoke"]

EVERY_TENANT = "*"
_SHAPE = re.compile(r"dhk_[0-9a-f]{48}")


def create(connection: Connection, tenant: str, scope: KeyScope) -> tuple[ApiKey, str]:
    """A new key and its text, which is not kept and can't be shown again.

    The hash needs no salt and no stretching: 192 random bits can't be guessed from it.
    """
    secret = f"dhk_{secrets.token_hex(24)}"
    return keys.insert(connection, tenant, scope, _digest(secret)), secret


def looks_right(secret: str) -> bool:
    """Whether it is worth looking up."""
    return _SHAPE.fullmatch(secret) is not None


def find(connection: Connection, secret: str) -> ApiKey | None:
    """The key of this text; None when it is unknown or revoked."""
    return keys.find(connection, _digest(secret))


def newest(connection: Connection) -> Sequence[ApiKey]:
    """All keys, revoked ones too, newest first."""
    return keys.newest(connection)


def revoke(connection: Connection, key_id: str) -> ApiKey | None:
    """Revoke a key by its public id; a repeat changes nothing. None when there is none of that id.

    Processes that used it in the last seconds honour it until they look it up again (`app.api.auth`).
    """
    seq = identity.number("key", key_id)
    return None if seq is None else keys.revoke(connection, seq)


def note(connection: Connection, actor: str, action: Action, key: ApiKey) -> None:
    """Have the audit log tell what was done to a key."""
    audit.write(connection, actor, key.tenant, action, public_id(key), scope=key.scope)


def public_id(key: ApiKey) -> str:
    """How a key is named in public."""
    return identity.public_id("key", key.seq)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
