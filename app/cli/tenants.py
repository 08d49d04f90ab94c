"""`duehook tenants erase`."""

import sys
from typing import Annotated

import typer

from app.cli.finding import find_service
from app.cli.options import Json, check_tenant
from app.cli.printing import fail, wrong_use

app = typer.Typer(help="Tenants: erase all that one has.", no_args_is_help=True)


@app.callback(epilog="Example: duehook tenants erase acme --yes")
def _tenants() -> None: ...


@app.command(epilog="Example: duehook tenants erase acme --yes")
def erase(
    tenant: Annotated[str, typer.Argument(help="Its name.")],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Erase everything of a tenant but its audit log. There is no way back.

    At once its keys are revoked and nothing is made for it any more; nothing is
    sent for it from the first steps on. It goes on by itself; Ctrl-C only stops
    the watching. The name may be used again afterwards.
    """
    from app.cli.erasing import erase_tenant
    from app.cli.ledger import ledger_of

    check_tenant(tenant)
    if not yes:
        _ask(tenant)
    with ledger_of(find_service()) as engine:
        erase_tenant(engine, tenant, json=json)


def _ask(tenant: str) -> None:
    if not sys.stdin.isatty():
        wrong_use("nobody is there to be asked: add --yes to erase all of it.")
    if input(f"Erase everything of {tenant}, for good? Type its name: ") != tenant:
        fail("nothing was erased.")
