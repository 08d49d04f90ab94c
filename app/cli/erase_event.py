"""`duehook events erase`: the data of one event, for good."""

from typing import Annotated

import typer

from app.cli.finding import find_service
from app.cli.options import Json, check_tenant
from app.cli.printing import wrong_use
from app.domain.identity import number

EPILOG = "Example: duehook events erase evt_66f1c20b3a00001 --tenant acme"


def erase(
    event_id: Annotated[str, typer.Argument(metavar="ID", help="Of the event, evt_…")],
    tenant: Annotated[str, typer.Option(help="Whose.")] = "default",
    json: Json = False,
) -> None:
    """Erase an event's data and what receivers answered to it; identity, digest and history stay.

    What waits is cancelled; what is in the air ends, and the erasure waits for
    that. It goes on by itself; Ctrl-C only stops the watching.
    """
    from app.cli.erasing import erase_event
    from app.cli.ledger import ledger_of

    check_tenant(tenant)
    key = number("evt", event_id)
    if key is None:
        wrong_use(f"{event_id!r} is not the id of an event: use one like evt_66f1c20b3a00001.")
    with ledger_of(find_service()) as engine:
        erase_event(engine, tenant, key, json=json)
