"""A tenant that the evaluation has for itself, and that nothing is left of afterwards."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from app.core import erasures, keys
from app.domain.auditing import Action
from app.domain.states import OPEN_JOB, JobStatus, KeyScope
from app.ledger import jobs, service
from app.ledger.database import connect_engine, in_transaction
from app.ledger.jobs import Job
from app.local.errors import LocalServiceError
from app.local.user import command_actor

LOOK_SECONDS = 0.2
ERASED_WITHIN = 120.0  # seconds, beside the longest that something may be in the air


@contextmanager
def a_tenant(database_url: str, tell: Callable[[str], None], *, lease: float, erase: bool) -> Iterator[tuple[str, str]]:
    """Yields its name and an operator's key; `erase` takes all of it away in the end, whatever has happened.

    Raises LocalServiceError when the ledger can't be used. Only its lines of the audit log stay, as everybody's do.
    """
    engine = connect_engine(database_url, application_name="duehook eval", pool_size=1)
    try:
        name = f"eval-{secrets.token_hex(6)}"
        with _sentences(), engine.begin() as connection:
            service.check_schema(connection)
        try:
            with _sentences():
                key = _a_key(engine, name)
            yield name, key
        finally:
            if erase:
                tell(f"Erasing the tenant {name}.")
                with _sentences():
                    _erase(engine, name, tell, ERASED_WITHIN + lease)
    finally:
        engine.dispose()


def _a_key(engine: Engine, tenant: str) -> str:
    with engine.begin() as connection:
        made, key = keys.create(connection, tenant, KeyScope.OPERATOR)
        keys.note(connection, command_actor(), Action.KEY_CREATED, made)
    return key


def _erase(engine: Engine, tenant: str, tell: Callable[[str], None], patience: float) -> None:
    job = in_transaction(engine, lambda connection: erasures.start_tenant(connection, tenant, command_actor()))
    until = time.monotonic() + patience
    while job is not None and job.status in OPEN_JOB:
        if time.monotonic() > until:
            tell(f"{job.id}, which erases {tenant}, has not ended after {patience:g} s; it goes on by itself.")
            return
        time.sleep(LOOK_SECONDS)
        job = _again(engine, job)
    if job is not None and job.status is not JobStatus.COMPLETED:
        raise LocalServiceError(
            f"The tenant {tenant} was not erased ({job.id} is {job.status}):"
            f" run `duehook tenants erase {tenant} --yes`."
        )


def _again(engine: Engine, job: Job) -> Job | None:
    """The database may be away for a moment; the job is not lost by that."""
    with suppress(DBAPIError):
        return in_transaction(engine, lambda connection: jobs.find(connection, job.tenant, job.seq))
    return job


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except service.UnfitError as unfit:
        raise LocalServiceError(f"{unfit}.") from None
    except DBAPIError as error:
        first = str(error.orig).strip().splitlines()[0]
        raise LocalServiceError(f"The database can't be used: {first}.") from None
