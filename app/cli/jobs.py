"""`duehook jobs list|show|cancel`."""

from itertools import islice
from typing import Annotated

import typer

from app.cli.options import Json
from app.cli.reaching import Limit, Tenant, service_of
from app.cli.things import show_thing, show_things

app = typer.Typer(help="Jobs: long work, which goes on by itself.", no_args_is_help=True)
JobId = Annotated[str, typer.Argument(metavar="ID", help="Of the job, job_…")]


@app.command("list", epilog="Example: duehook jobs list --json")
def list_(limit: Limit = 50, tenant: Tenant = None, json: Json = False) -> None:
    """Show jobs, newest first."""
    with service_of(tenant) as service:
        found = [*islice(service.jobs.list(page_size=limit), limit)]
    show_things(found, ("id", "kind", "status", "done", "total", "created_at"), json=json)


@app.command(epilog="Example: duehook jobs show job_66f1c20b3a00001")
def show(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """Show one, and how far it has come."""
    with service_of(tenant) as service:
        found = service.jobs.get(job_id)
    show_thing(found, json=json)


@app.command(epilog="Example: duehook jobs cancel job_66f1c20b3a00001")
def cancel(job_id: JobId, tenant: Tenant = None, json: Json = False) -> None:
    """End it where it is: what it has done stays done."""
    with service_of(tenant) as service:
        cancelled = service.jobs.cancel(job_id)
    show_thing(cancelled, json=json)
