"""What `duehook dead redrive` does, and what it shows meanwhile."""

import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from app.cli.printing import fail, rfc3339, show_json
from app.core import redrives
from app.core.reservations import Refused
from app.domain.identity import public_id
from app.domain.states import OPEN_JOB, JobStatus
from app.ledger import jobs
from app.ledger.database import in_transaction
from app.ledger.dead_letters import Filter
from app.ledger.jobs import Job

LOOK = 0.2  # seconds between looks at how far it has come
UNBEGUN = 10.0  # seconds until it says that nobody has begun


def redrive_one(engine: Engine, tenant: str, delivery: int, *, json: bool) -> None:
    """Try one again, and say so."""
    name = public_id("dlv", delivery)
    done = in_transaction(engine, lambda connection: redrives.redrive(connection, tenant, delivery))
    if done is None:
        fail(f"there is no dead letter {name!r} of the tenant {tenant!r}.")
    if isinstance(done, Refused):
        fail(f"{done.why}.")
    if json:
        show_json({"id": name, "status": done.status, "next_attempt_at": rfc3339(done.next_attempt_at)})
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
    job = in_transaction(engine, lambda connection: redrives.start(connection, tenant, wanted, rate))
    try:
        ended = _watch(engine, job)
    except KeyboardInterrupt:
        fail(f"{job.id} goes on by itself, as `GET /v1/jobs/{job.id}` shows; `POST` to its /cancel ends it.")
    if json:
        show_json(_document(ended))
    else:
        print(_sentence(ended))
    if ended.status is not JobStatus.COMPLETED:
        fail(f"{ended.id} {_why(ended)}.")


def _watch(engine: Engine, job: Job) -> Job:
    """At a terminal with a bar; behind a pipe in silence, for its end is the answer."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with bar:
        row = bar.add_task(f"redrive {job.id}", total=None)
        return _follow(engine, job, lambda now: bar.update(row, completed=now.done, total=now.total))


def _follow(engine: Engine, job: Job, show: Callable[[Job], None]) -> Job:
    tenant, seq, unbegun = job.tenant, job.seq, time.monotonic() + UNBEGUN
    while job.status in OPEN_JOB:
        time.sleep(LOOK)
        found = in_transaction(engine, lambda connection: jobs.find(connection, tenant, seq))
        if found is None:
            fail(f"{job.id} has been deleted.")
        job = found
        show(job)
        if job.status is JobStatus.QUEUED and time.monotonic() > unbegun:
            print("duehook: nobody has begun it; `duehook status` shows who is there.", file=sys.stderr)
            unbegun = float("inf")
    return job


def _document(job: Job) -> dict[str, Any]:
    """As the API shows it."""
    return {
        "id": job.id,
        "kind": job.kind,
        "status": job.status,
        "done": job.done,
        "total": job.total,
        "result": job.result,
        "created_at": rfc3339(job.created_at),
        "updated_at": rfc3339(job.updated_at),
    }


def _sentence(job: Job) -> str:
    result = job.result or {}
    skipped = ", ".join(f"{number} {reason}" for reason, number in result.get("skipped", {}).items())
    passed = f"; passed over: {skipped}" if skipped else ""
    return f"{job.id}: {result.get('reopened', 0)} of {job.done} re-opened{passed}."


def _why(job: Job) -> str:
    error = (job.result or {}).get("error")
    return f"failed: {error}" if error else f"was {job.status}"
