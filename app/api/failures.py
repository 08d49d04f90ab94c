"""Every exception that ends a request, and the problem that it is to the client."""

from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import problems
from app.api.problems import Flaw, ProblemError, invalid, respond
from app.domain.faults import kinds, places
from app.ledger.database import is_lost, sqlstate
from app.ledger.sealing import WrongKeyError

log = structlog.get_logger("duehook.api")
# Waited too long, for a lock or for the statement's end, or beaten by others in every repeat.
BUSY = ("55P03", "57014", "40P01", "40001")
# What the ledger's guards refuse although the API had nothing against it; their sentences are written for clients.
GUARDS = {
    "DH001": problems.CONFLICT,
    "DH002": problems.CONFLICT,
    "DH004": problems.INVALID,
    "DH005": problems.INVALID,
    "DH007": problems.CONFLICT,
}


def install(app: FastAPI) -> None:
    """Have every failure answered as a problem, unknown routes and wrong methods too."""
    as_problem: dict[type[Exception], Callable[[Request, Any], ProblemError]] = {
        ProblemError: lambda _, problem: problem,
        HTTPException: _of_routing,
        RequestValidationError: _of_query,
        DBAPIError: _of_database,
        PoolTimeoutError: lambda *_: _unavailable("all connections to the database are busy"),
        WrongKeyError: lambda *_: _unavailable("this process has not the key that it is sealed under"),
        ClientDisconnect: lambda *_: ProblemError(problems.NOT_JSON, "the body ended early"),
    }
    for exception, judge in as_problem.items():
        app.add_exception_handler(exception, _handler(judge))
    app.add_middleware(LastResort)


def _handler(judge: Callable[[Request, Any], ProblemError]) -> Callable[[Request, Exception], Any]:
    async def handle(request: Request, error: Exception) -> Response:
        return respond(judge(request, error))

    return handle


def _of_routing(request: Request, error: HTTPException) -> ProblemError:
    """404 and 405 are all that the router raises."""
    if error.status_code == 405:
        allowed = _allowed(request)
        return ProblemError(problems.WRONG_METHOD, f"this path is for {allowed}", headers={"Allow": allowed})
    return ProblemError(problems.NOT_FOUND, "there is no such path")


def _allowed(request: Request) -> str:
    """The methods of every route of this path: each has a route of its own, and the router names only one.

    A path of a fixed name is no thing's of that id: only what goes by the first route's pattern counts.
    """
    fitting = [
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    methods = {method for route in fitting if route.path == fitting[0].path for method in route.methods or ()}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def _of_query(_: Request, error: RequestValidationError) -> ProblemError:
    """Bodies are read by `bodies`; here only query parameters are wrong."""
    return invalid(*(Flaw(f"/{each['loc'][-1]}", problems.sentence(each)) for each in error.errors()))


def _of_database(request: Request, error: DBAPIError) -> ProblemError:
    state = sqlstate(error)
    if is_lost(error):
        return _unavailable("the database does not answer just now")
    if state in BUSY:
        return _unavailable("the database is busy with this very thing; nothing was changed")
    if state in GUARDS and isinstance(error.orig, psycopg.Error):
        return ProblemError(GUARDS[state], error.orig.diag.message_primary or "")
    return _of_fault(request.scope, error)


def _unavailable(detail: str) -> ProblemError:
    return ProblemError(problems.UNAVAILABLE, detail, headers={"Retry-After": "2"})


def _of_fault(scope: Scope, error: Exception) -> ProblemError:
    log.error("request_failed", method=scope["method"], path=_path(scope), error=kinds(error), where=places(error))
    return ProblemError(problems.BROKEN, "the service has a fault, which it has logged")


def _path(scope: Scope) -> str:
    """The route's own path: a request's may hold what nobody should read in a log."""
    return str(getattr(scope.get("route"), "path", ""))


class LastResort:
    """Answers what nobody expected. The framework's own way raises it again, into the server's log with its words."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Any) -> None:
            nonlocal begun
            begun = True
            try:
                await send(message)
            except RuntimeError:  # of uvloop: the client hung up this very moment
                log.info("client_gone", path=_path(scope))

        try:
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001  the last place where a request's failure can become an answer
            response = respond(_of_fault(scope, error))
            if not begun:
                await response(scope, receive, send)
