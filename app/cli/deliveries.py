"""`duehook deliveries list|show|retry`."""

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import Json
from app.cli.reaching import Limit, Tenant, service_of
from app.cli.things import show_attempts, show_thing, show_things

if TYPE_CHECKING:
    from app.client import Delivery

app = typer.Typer(help="Deliveries: events on their way to endpoints.", no_args_is_help=True)
DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="Of the delivery, dlv_…")]


@app.command("list", epilog="Example: duehook deliveries list --event evt_66f1c20b3a00001")
def list_(
    status: Annotated[str | None, typer.Option(help="Only those of this status.")] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="ID", help="Only those to this endpoint.")] = None,
    event: Annotated[str | None, typer.Option(metavar="ID", help="Only those of this event.")] = None,
    limit: Limit = 50,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show deliveries, newest first, without their attempts."""
    with service_of(tenant) as service:
        matching = service.deliveries.list(status=status, endpoint_id=endpoint, event_id=event, page_size=limit)
        found = [*islice(matching, limit)]
    columns = ("id", "status", "attempt", "reason", "next_attempt_at", "endpoint_id", "event_id")
    show_things(found, columns, json=json, without=["attempts"])


@app.command(epilog="Example: duehook deliveries show dlv_66f1c20b3a00001 --json")
def show(delivery_id: DeliveryId, tenant: Tenant = None, json: Json = False) -> None:
    """Show one with its attempts, in the order they were made."""
    with service_of(tenant) as service:
        found = service.deliveries.get(delivery_id)
    _show(found, json=json)


@app.command(epilog="Example: duehook deliveries retry dlv_66f1c20b3a00001")
def retry(delivery_id: DeliveryId, tenant: Tenant = None, json: Json = False) -> None:
    """Try it now, a finished one in a new round."""
    with service_of(tenant) as service:
        retried = service.deliveries.retry(delivery_id)
    _show(retried, json=json)


def _show(delivery: "Delivery", *, json: bool) -> None:
    show_thing(delivery, json=json, without=["attempts"])
    if not json:
        show_attempts(asdict(each) for each in delivery.attempts)
