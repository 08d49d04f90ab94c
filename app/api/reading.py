"""Request bodies as they arrive: declared as JSON, and never more of them in memory than the route allows."""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from app.api import problems
from app.api.bodies import Body, parse
from app.api.problems import ProblemError
from app.settings import Settings

BATCH_BYTES = 16 * 1024 * 1024
REST_BYTES = 64 * 1024  # for all members of an object but `data`
Limit: TypeAlias = Callable[[Settings], int]


def _small(_: Settings) -> int:
    return REST_BYTES


def _with_data(settings: Settings) -> int:
    return settings.max_event_bytes + REST_BYTES


def _batch(settings: Settings) -> int:
    return max(BATCH_BYTES, _with_data(settings))


def _reader(one: Limit, many: Limit, *, required: bool = True) -> Callable[[Request], Awaitable[bytes]]:
    """Reads a body of at most `one`, or `many` when it is a list."""

    async def read(request: Request) -> bytes:
        settings: Settings = request.app.state.runtime.settings
        declared = int(request.headers.get("content-length", "0"))  # the server lets only digits through
        if required or declared or "transfer-encoding" in request.headers:
            _check_declared(request)
        if declared > many(settings):
            raise _too_large(many(settings))
        body = await _gather(request, one(settings), many(settings))
        request.state.body = body  # by whose bytes `idempotency` tells a repeat
        return body

    return read


async def _gather(request: Request, one: int, many: int) -> bytes:
    """The whole body; a problem as soon as it is more than it may be, however much is still to come."""
    body = bytearray()
    most, begun = one, False
    async for chunk in request.stream():
        body += chunk
        if not begun and (start := body.lstrip(b" \t\r\n")[:1]):
            most, begun = many if start == b"[" else one, True
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _check_declared(request: Request) -> None:
    media_type, *parameters = request.headers.get("content-type", "").lower().replace(" ", "").split(";")
    charsets = {each.removeprefix("charset=").strip('"') for each in parameters if each.startswith("charset=")}
    if media_type != "application/json" or not charsets <= {"utf-8"}:
        raise ProblemError(problems.NOT_DECLARED, "a body is sent as Content-Type: application/json, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError(problems.NOT_DECLARED, "a body is sent as it is, without a Content-Encoding")


def _too_large(limit: int) -> ProblemError:
    return ProblemError(problems.TOO_LARGE, f"the body is larger than {limit} bytes")


Small = Annotated[bytes, Depends(_reader(_small, _small))]
SmallOrNone = Annotated[bytes, Depends(_reader(_small, _small, required=False))]
WithData = Annotated[bytes, Depends(_reader(_with_data, _with_data))]
OneOrMany = Annotated[bytes, Depends(_reader(_with_data, _batch))]


async def _nothing(body: SmallOrNone) -> None:
    if body.strip():
        parse(Body, body)


Nothing = Annotated[None, Depends(_nothing)]
