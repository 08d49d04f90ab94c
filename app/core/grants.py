"""Which roles of the database write SQL for which tenants."""

from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import Connection

from app.domain.auditing import Action
from app.ledger import audit, grants
from app.ledger.grants import PRODUCER, SqlGrant

__all__ = ["PRODUCER", "Refusal", "SqlGrant", "every", "grant", "revoke"]


class Refusal(StrEnum):
    """Why a role can't be granted a tenant."""

    NO_ROLE = "no_role"
    ALL_PRODUCERS = "all_producers"
    UNBOUND = "unbound"
    NOT_ALLOWED = "not_allowed"
    NOT_INHERITED = "not_inherited"


def grant(connection: Connection, role: str, tenant: str, actor: str) -> Refusal | None:
    """Let a role write for a tenant from the commit on; a repeat changes nothing. None when it is done.

    Granting makes the role a member of `duehook_producer`. One that is a member already needs no right to grant roles,
    so that an owner of the ledger without it can go on where somebody else has made the role.
    """
    if role == PRODUCER:
        return Refusal.ALL_PRODUCERS
    grants.lock(connection)
    found = grants.role(connection, role)
    if found is None:
        return Refusal.NO_ROLE
    if found.unbound:
        return Refusal.UNBOUND
    if not found.producer:
        if not grants.admit(connection, role):
            return Refusal.NOT_ALLOWED
        joined = grants.role(connection, role)
        if joined is None or not joined.producer:
            return Refusal.NOT_INHERITED
    grants.insert(connection, role, tenant)
    audit.write(connection, actor, tenant, Action.SQL_GRANTED, role)
    return None


def revoke(connection: Connection, role: str, tenant: str, actor: str) -> bool:
    """Take it away, from the next statement of the role on; whether there was anything to take.

    It stays a member of `duehook_producer`: roles belong to the cluster, where another ledger may have granted it
    something, and a member without a tenant reads and writes nothing.
    """
    taken = grants.delete(connection, role, tenant)
    if taken:
        audit.write(connection, actor, tenant, Action.SQL_REVOKED, role)
    return taken


def every(connection: Connection) -> Sequence[SqlGrant]:
    """All grants by role and tenant."""
    return grants.every(connection)
