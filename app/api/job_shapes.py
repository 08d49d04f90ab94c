"""How long work is answered."""

from typing import Any

from pydantic import BaseModel, Field

from app.api.answers import Json, write
from app.api.fields import CreatedAt, NextCursor, UpdatedAt, example
from app.domain.states import JobKind, JobStatus
from app.ledger.jobs import Job

JOB = {
    "id": "job_2a",
    "kind": "redrive",
    "status": "running",
    "done": 400,
    "total": 1200,
    "result": {"reopened": 390, "made": 0, "skipped": {"event_cancelled": 10}},
    "created_at": "2030-01-31T12:00:00.000000Z",
    "updated_at": "2030-01-31T12:00:08.000000Z",
}


def queued(kind: JobKind) -> dict[str, Any]:
    """An example of the answer to whoever has asked for such a job."""
    begun = {"status": "queued", "done": 0, "total": None, "result": None}
    return {**JOB, "kind": kind.value, **begun, "updated_at": JOB["created_at"]}


class JobResult(BaseModel):
    """What it has done by now."""

    reopened: int = Field(0, description="Deliveries that begin a new round.")
    made: int = Field(0, description="Deliveries that the endpoint had never had.")
    skipped: dict[str, int] = Field({}, description="What was passed over, by reason.")
    erased: dict[str, int] | None = Field(None, description="Of an erasure, alone: what went, by kind.")
    error: str | None = Field(None, description="Why it failed, in one sentence; left out otherwise.")


class JobView(BaseModel):
    """Long work. It goes on by itself; poll it, or subscribe to `job.completed`, which tells of every end."""

    model_config = example(**JOB)

    id: str = Field(description="job_ and digits.")
    kind: str = Field(description="redrive, replay, erase_event or erase_tenant.")
    status: JobStatus = Field(description="queued, then running, until it is completed, failed or cancelled.")
    done: int = Field(description="Looked at: dead letters that match, events of the window, or rows that went.")
    total: int | None = Field(description="Of how many; null until they are counted.")
    result: JobResult | None = Field(description="Null before the first step.")
    created_at: CreatedAt
    updated_at: UpdatedAt


class Jobs(BaseModel):
    """A page of jobs, newest first."""

    model_config = example(data=[JOB], next_cursor=None)

    data: list[JobView] = Field(description="The jobs of this page.")
    next_cursor: NextCursor


def view(job: Job) -> dict[str, Any]:
    """A job as it is answered; the event of its end has the same members in the same order."""
    return {
        "id": job.id,
        "kind": job.kind,
        "status": job.status,
        "done": job.done,
        "total": job.total,
        "result": job.result,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def show(job: Job) -> Json:
    """The text of it."""
    return Json(write(view(job)))
