"""Logins for the service's own programs: each a member of the one role that has the program's rights."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

# Which role a program needs; beat and Flower talk to the broker alone.
ROLES = {"api": "duehook_api", "relay": "duehook_relay", "worker": "duehook_worker"}
_IS_THERE = "/* logins.is_there */ SELECT FROM pg_roles WHERE rolname = %s"


def login_of(program: str) -> str:
    """The name of a program's login."""
    return f"{ROLES[program]}_login"


def url_of(database_url: str, program: str, password: str) -> str:
    """The database's URL for a program, in place of its owner's."""
    url = urlsplit(database_url)
    hosts = url.netloc.rpartition("@")[2]
    return url._replace(netloc=f"{login_of(program)}:{quote(password, safe='')}@{hosts}").geturl()


def make_logins(database_url: str, passwords: Mapping[str, str]) -> None:
    """Have a login with this password for each program; a repeat sets the passwords anew.

    Logins belong to the cluster: two databases of it that do this with other passwords take them from each other.
    For who may create roles; raises psycopg's error otherwise.
    """
    with psycopg.connect(database_url.replace("postgresql+psycopg://", "postgresql://", 1)) as connection:
        # Two at once would fail on the same rows of the catalogue.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('duehook.logins'))")
        for program, password in passwords.items():
            name, role = sql.Identifier(login_of(program)), sql.Identifier(ROLES[program])
            is_there = connection.execute(_IS_THERE, [login_of(program)]).rowcount
            verb = sql.SQL("ALTER" if is_there else "CREATE")
            connection.execute(
                sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, name, _sealed(connection, program, password))
            )
            connection.execute(sql.SQL("GRANT {} TO {}").format(role, name))


def _sealed(connection: psycopg.Connection[tuple[Any, ...]], program: str, password: str) -> sql.Literal:
    """Hashed here: a server may log what it is sent."""
    hashed = connection.pgconn.encrypt_password(password.encode(), login_of(program).encode(), b"scram-sha-256")
    return sql.Literal(hashed.decode())
