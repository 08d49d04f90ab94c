"""Long work as a command sees it: watched until it has ended."""

import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from app.cli.printing import fail, rfc3339, show_json
from app.domain.states import OPEN_JOB, JobStatus
from app.ledger import jobs
from app.ledger.database import in_transaction
from app.ledger.jobs import Job

LOOK = 0.2  # seconds between looks at how far it has come
UNBEGUN = 10.0  # seconds until it says that nobody has begun


def see_through(engine: Engine, job: Job, verb: str, sentence: Callable[[Job], str], *, json: bool) -> None:
    """Watch a job until it has ended and show that; ends the command with a failure when the job does.

    At a terminal with a bar; behind a pipe in silence, for its end is the answer.
    """
    try:
        ended = _watch(engine, job, verb)
    except KeyboardInterrupt:
        fail(f"{job.id} goes on by itself, as `GET /v1/jobs/{job.id}` shows; `POST` to its /cancel ends it.")
    if json:
        show_json(_document(ended))
    else:
        print(sentence(ended))
    if ended.status is not JobStatus.COMPLETED:
        fail(f"{ended.id} {_why(ended)}.")


def _watch(engine: Engine, job: Job, verb: str) -> Job:
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
        row = bar.add_task(f"{verb} {job.id}", total=None)
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


def _why(job: Job) -> str:
    error = (job.result or {}).get("error")
    return f"failed: {error}" if error else f"was {job.status}"
