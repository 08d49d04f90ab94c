"""Roles of the database that may write SQL for a tenant: what row-level security goes by, and who is a producer."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import errors, sql
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from app.ledger.logins import ROLES

PRODUCER = "duehook_producer"


@dataclass(frozen=True, slots=True)
class Role:
    """A role of the cluster; `unbound` when row-level security keeps it to no tenant, `producer` when it has rights."""

    name: str
    unbound: bool
    producer: bool


@dataclass(frozen=True, slots=True)
class SqlGrant:
    """A row of `duehook.sql_grants`; it counts only while its role exists and is a producer."""

    role: str
    tenant: str
    exists: bool
    producer: bool


_LOCK = text("/* grants.lock */ LOCK TABLE duehook.sql_grants IN SHARE ROW EXCLUSIVE MODE")
# Whoever has the rights of the tables' owner, as superusers do, is exempt from their policies; whoever has those of the
# service's own programs has policies that let all tenants through. Names are compared as text: as a name, one of more
# than 63 bytes would be cut, and then be another's.
_ROLE = text(f"""/* grants.role */
    SELECT r.rolname AS name,
           r.rolbypassrls OR pg_has_role(r.oid, t.relowner, 'usage') OR EXISTS (
               SELECT FROM pg_roles s
                WHERE s.rolname = ANY (CAST(:programs AS text[])) AND pg_has_role(r.oid, s.oid, 'usage')) AS unbound,
           pg_has_role(r.oid, '{PRODUCER}', 'usage') AS producer
      FROM pg_roles r, pg_class t WHERE r.rolname = CAST(:name AS text) AND t.oid = 'duehook.events'::regclass""")
_VERSION = text("/* grants.server_version */ SELECT current_setting('server_version_num')::int")
_INSERT = text("""/* grants.insert */
    INSERT INTO duehook.sql_grants (role, tenant) VALUES (:role, :tenant) ON CONFLICT DO NOTHING""")
_DELETE = text("""/* grants.delete */
    DELETE FROM duehook.sql_grants WHERE role = CAST(:role AS text) AND tenant = :tenant""")
_ALL = text(f"""/* grants.all */
    SELECT g.role, g.tenant, r.oid IS NOT NULL AS exists,
           coalesce(pg_has_role(r.oid, '{PRODUCER}', 'usage'), false) AS producer
      FROM duehook.sql_grants g LEFT JOIN pg_roles r ON r.rolname = g.role ORDER BY g.role, g.tenant""")


def lock(connection: Connection) -> None:
    """Let nobody else grant meanwhile: PostgreSQL 15 refuses the second of two who make one role a member at once."""
    connection.execute(_LOCK)


def role(connection: Connection, name: str) -> Role | None:
    """The role of this name; None when the cluster has none."""
    found = connection.execute(_ROLE, {"name": name, "programs": list(ROLES.values())}).one_or_none()
    return None if found is None else Role(**found._mapping)


def admit(connection: Connection, name: str) -> bool:
    """Make a role a producer, with the rights in effect at once; False when this user may not."""
    # Before 16 whether members inherit is their own attribute, and nothing that a grant can say.
    inherits = sql.SQL(" WITH INHERIT TRUE" if connection.execute(_VERSION).scalar_one() >= 160000 else "")
    statement = sql.SQL("/* grants.admit */ GRANT {} TO {}{}")
    grant = statement.format(sql.Identifier(PRODUCER), sql.Identifier(name), inherits).as_string()
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(grant.replace("%", "%%"))
    except DBAPIError as error:
        if isinstance(error.orig, errors.InsufficientPrivilege):
            return False
        raise
    return True


def insert(connection: Connection, role: str, tenant: str) -> None:
    """Grant a tenant to a role; a repeat changes nothing."""
    connection.execute(_INSERT, {"role": role, "tenant": tenant})


def delete(connection: Connection, role: str, tenant: str) -> bool:
    """Take it away, from a role that is gone too; whether there was anything to take."""
    return connection.execute(_DELETE, {"role": role, "tenant": tenant}).rowcount == 1


def every(connection: Connection) -> Sequence[SqlGrant]:
    """All grants by role and tenant."""
    return [SqlGrant(**row._mapping) for row in connection.execute(_ALL)]
