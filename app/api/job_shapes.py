"""How long work is answered."""

from typing import Any

from pydantic import BaseModel, Field

from app.api.answers import Json, write
from app.api.fields import Time
from app.domain.states import JobStatus
from app.ledger.jobs import Job


class JobResult(BaseModel):
    """What it has done by now."""

    reopened: int = Field(0, description="Deliveries that begin a new round.")
    made: int = Field(0, description="Deliveries that the endpoint had never had.")
    skipped: dict[str, int] = Field({}, description="What was passed over, by reason.")
    erased: dict[str, int] | None = Field(None, description="Of an erasure, alone: what went, by kind.")
    error: str | None = Field(None, description="Why it failed, in one sentence; left out otherwise.")


class JobView(BaseModel):
    """Long work. It goes on by itself; poll it, or subscribe to `job.completed`, which tells of every end."""

    id: str
    kind: str = Field(description="redrive, replay, erase_event or erase_tenant.")
    status: JobStatus
    done: int = Field(description="Looked at: dead letters that match, events of the window, or rows that went.")
    total: int | None = Field(description="Of how many; null until they are counted.")
    result: JobResult | None = Field(description="Null before the first step.")
    created_at: Time
    updated_at: Time


class Jobs(BaseModel):
    """A page of jobs, newest first."""

    data: list[JobView]
    next_cursor: str | None


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
