"""`duehook audit list`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.finding import find_service
from app.cli.options import Json, check_tenant
from app.cli.printing import rfc3339, show_json, show_table, wrong_use
from app.domain.auditing import Action

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from app.ledger.audit import Entry

MOST_SHOWN = 500
app = typer.Typer(help="The audit log: who changed what.", no_args_is_help=True)


@app.callback(epilog="Example: duehook audit list --tenant acme --json")
def _audit() -> None: ...


@app.command("list", epilog="Example: duehook audit list --tenant acme --json")
def list_(
    tenant: Annotated[
        str | None, typer.Option(help="About whose things; '*' is what is about all. Left out: every entry.")
    ] = None,
    action: Annotated[str | None, typer.Option(help="Only this, e.g. endpoint.deleted.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="ID", help="Only about the thing of this id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_SHOWN, help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """Show the changes that were made, the last one first."""
    from app.cli.ledger import ledger_of

    if tenant not in (None, "*"):
        check_tenant(tenant)
    if action is not None and action not in list(Action):
        wrong_use(f"{action!r} is not an action: use {', '.join(Action)}.")
    with ledger_of(find_service()) as engine, engine.begin() as connection:
        found = _newest(connection, tenant, action, subject, limit)
    if json:
        show_json(found)
    else:
        columns = ("at", "tenant", "actor", "action", "subject", "details")
        show_table(columns, [(*(each[name] for name in columns[:-1]), _text(each["details"])) for each in found])


def _newest(
    connection: "Connection", tenant: str | None, action: str | None, subject: str | None, limit: int
) -> list[dict[str, Any]]:
    """Page after page: a filter's may be short, or empty, and yet go on."""
    from app.ledger import audit, listings

    found: list[dict[str, Any]] = []
    below: int | None = listings.NEWEST
    while below is not None and len(found) < limit:
        page = listings.audit(connection, tenant, action=action, subject=subject, limit=limit - len(found), below=below)
        entries = audit.load(connection, page.keys)
        found += [_shown(entries[seq]) for seq in page.keys if seq in entries]
        below = page.below
    return found


def _shown(entry: "Entry") -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": rfc3339(entry.at),
        "tenant": entry.tenant,
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "details": entry.details,
    }


def _text(details: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in details.items() if value is not None)
