"""The HTTP API, put together."""

from importlib.metadata import version
from typing import Annotated

from fastapi import FastAPI, Path
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, Response

from app.api import (
    audit,
    dead_letters,
    deliveries,
    endpoints,
    events,
    failures,
    health,
    jobs,
    metrics,
    replays,
    reservations,
    tenants,
)
from app.api.answers import answer
from app.api.auth import KeyRing
from app.api.connections import HeadLikeGet, Unread
from app.api.docs import page
from app.api.fields import example
from app.api.limits import Limits
from app.api.metrics import Reading, Timed
from app.api.openapi import describe, problem_answer
from app.api.problems import CONFLICT, KINDS, NOT_FOUND, not_found
from app.api.turns import Turns
from app.core.together import Together
from app.runtime import Runtime

ABOUT = """\
Holds capacity until its time, and delivers events to endpoints as signed webhooks.

Errors are RFC 9457 problems; a path that there is not is 404, a method that it has not 405.

Lists are newest first, `limit` rows a page; go on with `next_cursor` until it is null: a filtered page may be short, or
even empty, before that. Rows that arrive meanwhile neither repeat nor hide others. One that was written earlier and
committed later may turn up between rows that you have seen: a list is no feed to follow.

There is no order between deliveries: receivers go by `version`, `timestamp` or `key`.
"""
# It would tell exporters the words of exceptions, which may hold payloads; and it costs 0.25 ms of CPU a request, as
# much as all the rest of the framework.
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
THREADS = 16  # requests that are answered at once, each with a connection
CONNECTIONS = THREADS + 4  # these for what nobody waits in line for: keys, health


def create_app(runtime: Runtime) -> FastAPI:
    """The API of this runtime; it opens and closes nothing."""
    app = FastAPI(
        title="duehook",
        version=version("duehook"),
        description=ABOUT,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )
    app.state.runtime = runtime
    app.state.key_ring = KeyRing(runtime)
    app.state.limits = Limits(runtime.settings)
    app.state.together = Together(runtime.engine)
    app.state.turns = Turns(THREADS)
    app.state.reading = Reading(runtime)
    failures.install(app)
    app.add_middleware(HeadLikeGet)
    app.add_middleware(Unread)
    app.add_middleware(Timed)
    for routes in (
        reservations,
        events,
        endpoints,
        replays,
        deliveries,
        dead_letters,
        jobs,
        audit,
        tenants,
        health,
        metrics,
    ):
        app.router.routes.extend(routes.router.routes)  # one flat list, so that a 405 can name every method
    app.add_api_route(
        "/problems/{name}",
        explain,
        tags=["health"],
        response_model=Explained,
        responses={404: problem_answer(NOT_FOUND)},
    )
    app.add_api_route("/docs", lambda: HTMLResponse(page(describe(app))), include_in_schema=False)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


class Explained(BaseModel):
    """A type of problem."""

    model_config = example(type=CONFLICT.type, status=CONFLICT.status, title=CONFLICT.title, meaning=CONFLICT.meaning)

    type: str = Field(description="As problems have it.")
    status: int = Field(description="Of the answers that have it.")
    title: str = Field(description="The type in words.")
    meaning: str = Field(description="What to make of it.")


def explain(name: Annotated[str, Path(description="The last part of a problem's `type`.")]) -> Response:
    """What a type of problem means."""
    kind = KINDS.get(name)
    if kind is None:
        raise not_found("type of problem")
    return answer({"type": kind.type, "status": kind.status, "title": kind.title, "meaning": kind.meaning})
