"""What `duehook dead redrive` does, and what it shows meanwhile."""

from sqlalchemy import Connection, Engine

from app.cli.printing import fail, rfc3339, show_json
from app.cli.watching import see_through
from app.core import redrives
from app.core.reservations import Refused
from app.domain.auditing import Action
from app.domain.identity import public_id
from app.ledger import audit, endpoints
from app.ledger.by_hand import Delivery
from app.ledger.database import in_transaction
from app.ledger.dead_letters import Filter
from app.ledger.endpoints import Endpoint
from app.ledger.jobs import Job
from app.local.user import command_actor


def redrive_one(engine: Engine, tenant: str, delivery: int, *, json: bool) -> None:
    """Try one again, and say so, or what it waits for."""
    name = public_id("dlv", delivery)

    def work(connection: Connection) -> tuple[Delivery, Endpoint | None] | Refused | None:
        done = redrives.redrive(connection, tenant, delivery)
        if not isinstance(done, Delivery):
            return done
        audit.write(connection, command_actor(), tenant, Action.DELIVERY_REDRIVEN, name)
        return done, endpoints.find(connection, tenant, done.endpoint)

    redriven = in_transaction(engine, work)
    if redriven is None:
        fail(f"there is no dead letter {name!r} of the tenant {tenant!r}.")
    if isinstance(redriven, Refused):
        fail(f"{redriven.why}.")
    done, endpoint = redriven
    if json:
        show_json({"id": name, "status": done.status, "next_attempt_at": rfc3339(done.next_attempt_at)})
    elif endpoint is not None and endpoint.status == "disabled":
        print(f"{name} begins a new round, and waits until its endpoint {endpoint.id} is enabled again.")
    else:
        print(f"{name} is tried again now, in a new round.")


def count(engine: Engine, tenant: str, wanted: Filter, *, json: bool) -> None:
    """Say how many match."""
    matching, more = in_transaction(engine, lambda connection: redrives.matching(connection, tenant, wanted))
    if json:
        show_json({"matching": matching, "more": more})
    else:
        print(f"{matching}{' or more' if more else ''} would be tried again.")


def redrive_all(engine: Engine, tenant: str, wanted: Filter, rate: float | None, *, json: bool) -> None:
    """Make the job and watch it until it has ended; ends the command with a failure when the job does."""

    def start(connection: Connection) -> Job:
        job = redrives.start(connection, tenant, wanted, rate)
        endpoint = None if wanted.endpoint is None else public_id("end", wanted.endpoint)
        told = {"filter": {"reason": wanted.reason, "endpoint_id": endpoint}, "rate_per_second": rate}
        audit.write(connection, command_actor(), tenant, Action.REDRIVE_ASKED, job.id, **told)
        return job

    see_through(engine, in_transaction(engine, start), "redrive", _sentence, json=json)


def _sentence(job: Job) -> str:
    result = job.result or {}
    skipped = ", ".join(f"{number} {reason}" for reason, number in result.get("skipped", {}).items())
    passed = f"; passed over: {skipped}" if skipped else ""
    return f"{job.id}: {result.get('reopened', 0)} of {job.done} re-opened{passed}."
