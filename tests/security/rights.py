"""What roles may do, read from PostgreSQL's own catalogue."""

from tests.plain import Connection, rows

PROGRAMS = ("duehook_api", "duehook_relay", "duehook_worker")
ROLES = (*PROGRAMS, "duehook_producer")
_TABLES = """
    SELECT g.grantee::regrole::text AS role, c.relname::text AS object, g.privilege_type AS right
      FROM pg_class c, aclexplode(c.relacl) g
     WHERE c.relnamespace = 'duehook'::regnamespace AND g.grantee <> c.relowner
     UNION ALL
    SELECT g.grantee::regrole::text, c.relname::text,
           g.privilege_type || ' (' || string_agg(a.attname, ' ' ORDER BY a.attnum) || ')'
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) g
     WHERE c.relnamespace = 'duehook'::regnamespace
     GROUP BY 1, 2, g.privilege_type
     UNION ALL
    SELECT g.grantee::regrole::text, 'schema', g.privilege_type
      FROM pg_namespace n, aclexplode(n.nspacl) g WHERE n.nspname = 'duehook' AND g.grantee <> n.nspowner
     ORDER BY 1, 2, 3"""
_FUNCTIONS = """
    SELECT DISTINCT g.grantee::regrole::text AS role, p.proname::text AS object
      FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) g
     WHERE p.pronamespace = 'duehook'::regnamespace AND g.grantee <> p.proowner ORDER BY 1, 2"""
_POLICIES = """
    SELECT unnest(roles)::text AS role, tablename || ' ' || cmd AS object,
           coalesce(qual, '') || CASE WHEN with_check IS NULL THEN '' ELSE ' -> ' || with_check END AS right
      FROM pg_policies WHERE schemaname = 'duehook' ORDER BY 1, 2"""


def tables(db: Connection) -> dict[str, dict[str, list[str]]]:
    """role -> table, sequence or schema -> its rights, those to columns with their names; `-` is everybody."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows(db, _TABLES):
        found.setdefault(row["role"], {}).setdefault(row["object"], []).append(row["right"])
    return found


def functions(db: Connection) -> dict[str, list[str]]:
    """role -> the functions that it may call; `-` is everybody."""
    found: dict[str, list[str]] = {}
    for row in rows(db, _FUNCTIONS):
        found.setdefault(row["role"], []).append(row["object"])
    return found


def policies(db: Connection) -> dict[str, dict[str, str]]:
    """role -> table and command -> which rows."""
    found: dict[str, dict[str, str]] = {}
    for row in rows(db, _POLICIES):
        found.setdefault(row["role"], {})[row["object"]] = row["right"]
    return found
