"""`duehook keys grant-sql|list-sql`: which roles of the database write for which tenants."""

from typing import TYPE_CHECKING, Annotated, NoReturn, assert_never

import typer

from app.cli.finding import find_service
from app.cli.options import Json, check_tenant
from app.cli.printing import fail, show_json, show_table, wrong_use
from app.local.user import command_actor

if TYPE_CHECKING:
    from app.core.grants import Refusal, SqlGrant

EPILOG = "Example: duehook keys grant-sql bookings acme"
EPILOG_LIST = "Example: duehook keys list-sql --json"


def grant_sql(
    role: Annotated[str, typer.Argument(help="A role of the database that exists, as it is spelled there.")],
    tenant: Annotated[str, typer.Argument(help="Whose reservations and events it may write and read.")],
    revoke: Annotated[bool, typer.Option("--revoke", help="Take it away again.")] = False,
    json: Json = False,
) -> None:
    """Let a role of the database write SQL for a tenant, and for no other.

    Safe to repeat. docs/sql-contract.md tells what the role may do then.
    """
    from app.cli.ledger import ledger_of
    from app.core import grants

    check_tenant(tenant)
    actor = command_actor()
    with ledger_of(find_service()) as engine, engine.begin() as connection:
        if revoke:
            said = "may no longer write SQL" if grants.revoke(connection, role, tenant, actor) else "had no grant"
        elif refusal := grants.grant(connection, role, tenant, actor):
            _refuse(refusal, role, engine.url.username or "this user")
        else:
            said = "may write SQL"
    if json:
        show_json({"role": role, "tenant": tenant, "granted": not revoke})
    else:
        print(f"{role} {said} for tenant {tenant}.")


def list_sql(json: Json = False) -> None:
    """Show which roles write SQL for which tenants, and what keeps a grant from counting."""
    from app.cli.ledger import ledger_of
    from app.core import grants

    with ledger_of(find_service()) as engine, engine.begin() as connection:
        found = [
            {"role": each.role, "tenant": each.tenant, "problem": _problem(each)} for each in grants.every(connection)
        ]
    if json:
        show_json(found)
    else:
        show_table(("role", "tenant", "problem"), [tuple(each.values()) for each in found])


def _problem(grant: "SqlGrant") -> str | None:
    from app.core.grants import PRODUCER

    if not grant.exists:
        return "the role is gone"
    return None if grant.producer else f"the role has not the rights of {PRODUCER}"


def _refuse(refusal: "Refusal", role: str, user: str) -> NoReturn:
    from app.core.grants import PRODUCER, Refusal

    name = _quoted(role)
    match refusal:
        case Refusal.NO_ROLE:
            fail(f"the database has no role {role!r}; make it first: CREATE ROLE {name} LOGIN PASSWORD '…';")
        case Refusal.ALL_PRODUCERS:
            wrong_use(f"{PRODUCER} is what all producers are members of; grant the tenant to a role of its own.")
        case Refusal.UNBOUND:
            fail(
                f"{role!r} has the rights of the ledger's owner or of duehook's own programs, or bypasses row-level"
                " security, so no grant keeps it to a tenant; make a role of its own for the program."
            )
        case Refusal.NOT_ALLOWED:
            fail(
                f"{user!r} may not make members of {PRODUCER}; as a superuser run GRANT {PRODUCER} TO {name}; and"
                f" repeat this, or run GRANT {PRODUCER} TO {_quoted(user)} WITH ADMIN OPTION; once."
            )
        case Refusal.NOT_INHERITED:
            fail(f"{role!r} does not inherit the rights of its roles; run ALTER ROLE {name} INHERIT; and repeat this.")
        case _:
            assert_never(refusal)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
