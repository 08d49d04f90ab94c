"""What `duehook events erase` and `duehook tenants erase` do, and what they show meanwhile."""

from sqlalchemy import Engine

from app.cli.printing import fail
from app.cli.watching import see_through
from app.core import erasures
from app.domain.identity import public_id
from app.ledger.database import in_transaction
from app.ledger.jobs import Job
from app.local.user import command_actor


def erase_event(engine: Engine, tenant: str, event: int, *, json: bool) -> None:
    """Make the job and watch it; ends the command with a failure when the job does."""
    job = in_transaction(engine, lambda connection: erasures.start_event(connection, tenant, event, command_actor()))
    if job is None:
        fail(f"there is no event {public_id('evt', event)!r} of the tenant {tenant!r}.")
    see_through(engine, job, "erase", _sentence, json=json)


def erase_tenant(engine: Engine, tenant: str, *, json: bool) -> None:
    """The same of all that a tenant has; watches the one that runs already, if one does."""
    job = in_transaction(engine, lambda connection: erasures.start_tenant(connection, tenant, command_actor()))
    if job is None:
        fail("the erasure of this tenant has ended this very moment; ask again for another one.")
    see_through(engine, job, "erase", _sentence, json=json)


def _sentence(job: Job) -> str:
    erased = (job.result or {}).get("erased", {})
    return f"{job.id}: erased {', '.join(f'{number} {what}' for what, number in erased.items()) or 'nothing'}."
