"""`Idempotency-Key`: a POST that is sent again is answered as it was the first time, and has no second effect."""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import assert_never

from sqlalchemy import Connection
from starlette.responses import Response

from app.api.answers import Answer
from app.api.auth import Call
from app.api.problems import CONFLICT, Flaw, ProblemError, invalid
from app.ledger import idempotency
from app.ledger.idempotency import Begun, Kept, Request

HEADER, REPLAYED = "Idempotency-Key", "Idempotency-Replayed"
Work = Callable[[Connection], Response | ProblemError]
_VISIBLE = re.compile(r"[!-~]{1,255}")


def named(call: Call) -> Request | None:
    """The request by the key that its sender gave it; None without one, and unless it is a POST."""
    keys = call.request.headers.getlist(HEADER)
    if not keys or call.request.method != "POST":
        return None
    if len(keys) > 1 or not _VISIBLE.fullmatch(keys[0]):
        raise invalid(Flaw(f"/{HEADER}", "a key is 1 to 255 visible ASCII characters, in one header"))
    # The path last: it is the only one that may hold a NUL.
    name = "\0".join((call.tenant, "POST", keys[0], call.request.scope["path"]))
    return Request(sha256(name.encode()).digest(), call.tenant, sha256(call.request.state.body).digest())


def once(request: Request, work: Work) -> Work:
    """`work` with its answer kept, or the answer that was kept of it; a problem is never kept."""

    def first_or_replayed(connection: Connection) -> Response | ProblemError:
        begun = idempotency.begin(connection, request)
        match begun:
            case Kept():
                return Response(begun.text, begun.status, {REPLAYED: "true"}, media_type="application/json")
            case Begun.ANOTHER:
                raise invalid(Flaw(f"/{HEADER}", "this key was used with another body; use a new one"))
            case Begun.RUNNING:
                raise _running()
            case Begun.FIRST:
                return _first(connection, request, work)
        assert_never(begun)

    return first_or_replayed


def _first(connection: Connection, request: Request, work: Work) -> Response | ProblemError:
    answered = work(connection)
    if isinstance(answered, Answer) and not idempotency.keep(connection, request, answered.kept):
        raise _running()  # and with it goes what `work` did
    return answered


def _running() -> ProblemError:
    why = "the first request with this key is still being answered; send it again in a moment"
    return ProblemError(CONFLICT, why, headers={"Retry-After": "1"})
