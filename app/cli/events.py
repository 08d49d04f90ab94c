"""`duehook events post|list|show|cancel|erase`."""

import sys
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from app.cli import erase_event
from app.cli.options import Json
from app.cli.printing import wrong_use
from app.cli.reaching import Limit, Tenant, service_of
from app.cli.things import show_thing, show_things

app = typer.Typer(help="Events: what has happened, for the endpoints that want to know.", no_args_is_help=True)
app.command(epilog=erase_event.EPILOG)(erase_event.erase)
EventId = Annotated[str, typer.Argument(metavar="ID", help="Of the event, evt_…")]


@app.command(epilog="""Example: duehook events post order.placed '{"total": 12.50}' --key order-1001""")
def post(
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as order.placed.")],
    data: Annotated[str, typer.Argument(help="JSON, which arrives byte for byte; - reads it from standard input.")],
    key: Annotated[str | None, typer.Option(help="Its business identity, to make a repeat harmless.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help="When it is due, as 2030-01-31T12:00:00Z.")] = None,
    delay: Annotated[float | None, typer.Option(metavar="SECONDS", help="Due so much later, instead.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Post one, and show what was accepted."""
    text = _data(data)
    due = None if at is None else _time(at)
    with service_of(tenant) as service:
        posted = service.events.post(event_type, raw_data=text, key=key, deliver_at=due, delay_seconds=delay)
    show_thing(posted, json=json)


@app.command("list", epilog="Example: duehook events list --limit 10 --json")
def list_(
    key: Annotated[str | None, typer.Option(help="Only the one that was posted with this key.")] = None,
    limit: Limit = 50,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show events, newest first, the service's own too."""
    with service_of(tenant) as service:
        found = [*islice(service.events.list(key=key, page_size=limit), limit)]
    show_things(found, ("id", "type", "key", "created_at", "due_at", "deliveries"), json=json)


@app.command(epilog="Example: duehook events show evt_66f1c20b3a00001")
def show(event_id: EventId, tenant: Tenant = None, json: Json = False) -> None:
    """Show one with its data; `duehook deliveries list --event` shows where it went."""
    with service_of(tenant) as service:
        found = service.events.get(event_id)
    show_thing(found, json=json)


@app.command(epilog="Example: duehook events cancel evt_66f1c20b3a00001")
def cancel(event_id: EventId, tenant: Tenant = None, json: Json = False) -> None:
    """End every delivery of it that is neither finished nor in the air."""
    with service_of(tenant) as service:
        ended = service.events.cancel(event_id)
    show_thing(ended, json=json)


def _data(given: str) -> str:
    """The text that is to be posted; one that can't be ends the command."""
    from app.client.calls import why_not_json

    text, hint = (sys.stdin.read(), "") if given == "-" else (given, "; in a shell put it in single quotes")
    if why := why_not_json(text):
        wrong_use(f"data {why}{hint}.")
    return text


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        wrong_use(f"{text!r} is no time: write it with its zone, as 2030-01-31T12:00:00Z.")
    return at
