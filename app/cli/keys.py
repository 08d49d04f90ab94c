"""`duehook keys create|list|revoke|reencrypt|grant-sql|list-sql`."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli import reencrypt, sql_grants
from app.cli.finding import find_service
from app.cli.options import Json, check_tenant
from app.cli.printing import fail, fields, rfc3339, show_json, show_table, wrong_use
from app.domain.auditing import Action
from app.domain.states import KeyScope
from app.local.user import command_actor

if TYPE_CHECKING:
    from app.core.keys import ApiKey

app = typer.Typer(
    help="API keys, grants to programs that write SQL, and the rotation of the keys that secrets are sealed under.",
    no_args_is_help=True,
)
app.command(epilog=reencrypt.EPILOG)(reencrypt.reencrypt)
app.command("grant-sql", epilog=sql_grants.EPILOG)(sql_grants.grant_sql)
app.command("list-sql", epilog=sql_grants.EPILOG_LIST)(sql_grants.list_sql)


@app.command(epilog="Example: duehook keys create acme --operator")
def create(
    tenant: Annotated[str, typer.Argument(help="Whose key it is; '*' is all tenants.")],
    operator: Annotated[bool, typer.Option("--operator", help="May do everything, not only produce.")] = False,
    json: Json = False,
) -> None:
    """Make a key. It is shown this once and stored as a hash."""
    from app.cli.ledger import ledger_of
    from app.core import keys

    if tenant == keys.EVERY_TENANT and not operator:
        wrong_use("a key for all tenants is an operator's: add --operator.")
    if tenant != keys.EVERY_TENANT:
        check_tenant(tenant)
    with ledger_of(find_service()) as engine, engine.begin() as connection:
        made, key = keys.create(connection, tenant, KeyScope.OPERATOR if operator else KeyScope.PRODUCER)
        keys.note(connection, command_actor(), Action.KEY_CREATED, made)
    shown = {"id": keys.public_id(made), "tenant": made.tenant, "scope": made.scope, "key": key}
    if json:
        show_json(shown)
    else:
        print(*fields(shown), sep="\n")


@app.command("list", epilog="Example: duehook keys list --json")
def list_(json: Json = False) -> None:
    """Show all keys, the newest first, without the keys themselves."""
    from app.cli.ledger import ledger_of
    from app.core import keys

    with ledger_of(find_service()) as engine, engine.begin() as connection:
        found = [_shown(each) for each in keys.newest(connection)]
    if json:
        show_json(found)
    else:
        show_table(("id", "tenant", "scope", "created", "revoked"), [tuple(each.values()) for each in found])


@app.command(epilog="Example: duehook keys revoke key_66f1c20b3a00001")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `duehook keys list` shows it.")], json: Json = False
) -> None:
    """Make a key open nothing any more, within seconds everywhere."""
    from app.cli.ledger import ledger_of
    from app.core import keys

    with ledger_of(find_service()) as engine, engine.begin() as connection:
        revoked = keys.revoke(connection, key_id)
        if revoked is not None:
            keys.note(connection, command_actor(), Action.KEY_REVOKED, revoked)
    if revoked is None:
        fail(f"there is no key {key_id!r}.")
    if json:
        show_json(_shown(revoked))
    else:
        print(f"{keys.public_id(revoked)} of tenant {revoked.tenant} is revoked.")


def _shown(key: "ApiKey") -> dict[str, str | None]:
    from app.core.keys import public_id

    return {
        "id": public_id(key),
        "tenant": key.tenant,
        "scope": key.scope,
        "created_at": rfc3339(key.created_at),
        "revoked_at": None if key.revoked_at is None else rfc3339(key.revoked_at),
    }
