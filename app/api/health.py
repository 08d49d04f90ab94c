"""Is the process alive, and can it do its work? Both without a key."""

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from app import broker
from app.api.answers import answer
from app.api.fields import example
from app.ledger import service
from app.ledger.database import UNDONE
from app.runtime import Runtime
from app.settings import Settings

BROKER_SECONDS = 1.0
router = APIRouter(tags=["health"])


class Live(BaseModel):
    """The process answers."""

    model_config = example(status="ok")

    status: Literal["ok"] = Field(description="Always.")


class Ready(BaseModel):
    """Each dependency by name. Without the broker the API is ready: it writes to the database alone."""

    model_config = example(status="ready", database="ok", broker="ok")

    status: Literal["ready", "not ready"] = Field(description="Whether requests can be served.")
    database: Literal["ok", "unreachable", "unfit"] = Field(description="unfit: it has not this version's schema.")
    broker: Literal["ok", "unreachable", "not set"] = Field(description="Asked by a PING.")


@router.get("/healthz", response_model=Live)
async def live() -> Response:
    """Whether the process answers; it asks nobody else."""
    return answer({"status": "ok"})


@router.get("/readyz", response_model=Ready, responses={503: {"model": Ready, "description": "Not ready."}})
def ready(request: Request) -> Response:
    """Whether requests can be served: the database answers and has the schema."""
    runtime: Runtime = request.app.state.runtime
    database = _database(runtime)
    is_ready = database == "ok"
    return answer(
        {"status": "ready" if is_ready else "not ready", "database": database, "broker": _broker(runtime.settings)},
        200 if is_ready else 503,
    )


def _database(runtime: Runtime) -> str:
    try:
        with runtime.engine.begin() as connection:
            service.check_schema(connection)
    except service.UnfitError:
        return "unfit"
    except UNDONE:
        return "unreachable"
    return "ok"


def _broker(settings: Settings) -> str:
    if settings.broker_url is None:
        return "not set"
    return "ok" if broker.answers(settings.broker_url.get_secret_value(), BROKER_SECONDS) else "unreachable"
