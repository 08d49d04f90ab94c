"""`duehook endpoints list|show|create|enable|disable|ping|delete`."""

from itertools import islice
from typing import Annotated

import typer

from app.cli.options import Json
from app.cli.printing import show_json
from app.cli.reaching import Limit, Tenant, service_of
from app.cli.things import show_thing, show_things

app = typer.Typer(help="Endpoints: where events go, and which.", no_args_is_help=True)
EndpointId = Annotated[str, typer.Argument(metavar="ID", help="Of the endpoint, end_…")]


@app.command("list", epilog="Example: duehook endpoints list --json")
def list_(limit: Limit = 50, tenant: Tenant = None, json: Json = False) -> None:
    """Show endpoints, newest first."""
    with service_of(tenant) as service:
        found = [*islice(service.endpoints.list(page_size=limit), limit)]
    columns = ("id", "status", "url", "event_types", "disabled_reason", "paced_until", "flagged")
    show_things(found, columns, json=json)


@app.command(epilog="Example: duehook endpoints show end_66f1c20b3a00001")
def show(endpoint_id: EndpointId, tenant: Tenant = None, json: Json = False) -> None:
    """Show one."""
    with service_of(tenant) as service:
        found = service.endpoints.get(endpoint_id)
    show_thing(found, json=json)


@app.command(epilog="Example: duehook endpoints create https://shop.example/hooks 'order.*' reservation.expired")
def create(
    url: Annotated[str, typer.Argument(help="Where its events go.")],
    event_types: Annotated[list[str], typer.Argument(metavar="PATTERN...", help="A type, a prefix and .*, or *.")],
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    signing: Annotated[str | None, typer.Option(metavar="hmac|ed25519", help="hmac when left out.")] = None,
    rate: Annotated[float | None, typer.Option(help="Deliveries a second at most.")] = None,
    max_in_flight: Annotated[int | None, typer.Option(help="Deliveries in the air at most.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Subscribe a URL, and show the endpoint with the secret that its receiver verifies with."""
    with service_of(tenant) as service:
        made = service.endpoints.create(
            url,
            event_types,
            description=description,
            signing=signing,
            rate_per_second=rate,
            max_in_flight=max_in_flight,
        )
    show_thing(made, json=json)


@app.command(epilog="Example: duehook endpoints enable end_66f1c20b3a00001")
def enable(endpoint_id: EndpointId, tenant: Tenant = None, json: Json = False) -> None:
    """Enable it; what has waited for it is sent, paced."""
    with service_of(tenant) as service:
        enabled = service.endpoints.enable(endpoint_id)
    show_thing(enabled, json=json)


@app.command(epilog="Example: duehook endpoints disable end_66f1c20b3a00001")
def disable(endpoint_id: EndpointId, tenant: Tenant = None, json: Json = False) -> None:
    """Disable it; what is due for it waits."""
    with service_of(tenant) as service:
        disabled = service.endpoints.disable(endpoint_id)
    show_thing(disabled, json=json)


@app.command(epilog="Example: duehook endpoints ping end_66f1c20b3a00001")
def ping(endpoint_id: EndpointId, tenant: Tenant = None, json: Json = False) -> None:
    """Send it an event of type `ping`; `duehook deliveries list --event` shows what came back."""
    with service_of(tenant) as service:
        sent = service.endpoints.ping(endpoint_id)
    show_thing(sent, json=json)


@app.command(epilog="Example: duehook endpoints delete end_66f1c20b3a00001")
def delete(endpoint_id: EndpointId, tenant: Tenant = None, json: Json = False) -> None:
    """Delete it; what waits for it is cancelled."""
    with service_of(tenant) as service:
        service.endpoints.delete(endpoint_id)
    if json:
        show_json({"id": endpoint_id, "deleted": True})
    else:
        print(f"{endpoint_id} is deleted; what waited for it is cancelled.")
