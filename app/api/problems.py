"""What can go wrong, as RFC 9457 problems: a stable type, one sentence, and for fields where each one is wrong."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of problem. The type is a reference to a page of the API itself that explains it."""

    name: str
    status: int
    title: str
    meaning: str

    @property
    def type(self) -> str:
        return f"/problems/{self.name}"


NOT_HTTP = Kind("not-http", 400, "Not HTTP", "The request can't be read as HTTP; the connection is closed.")
NOT_JSON = Kind("not-json", 400, "Not JSON", "The body is not one JSON text in UTF-8.")
NO_KEY = Kind("no-key", 401, "No valid key", "Send a valid API key as `Authorization: Bearer <key>`.")
WRONG_SCOPE = Kind("wrong-scope", 403, "Not with this key", "The key is valid, but not for this.")
NOT_FOUND = Kind("not-found", 404, "Not found", "There is nothing of that name, or it is another tenant's.")
WRONG_METHOD = Kind("wrong-method", 405, "Wrong method", "The path exists for the methods that `Allow` names.")
CONFLICT = Kind("conflict", 409, "The state says no", "The request is right, but the state of things is not.")
TOO_LARGE = Kind("too-large", 413, "Too large", "The body, or the data in it, is larger than it may be.")
NOT_DECLARED = Kind("not-declared", 415, "Not declared as JSON", "Send `Content-Type: application/json`, uncompressed.")
INVALID = Kind("invalid", 422, "Not valid", "It is JSON, but some of it is not right; `errors` names what and why.")
TOO_MANY = Kind("too-many", 429, "Too many", "A limit of the tenant is reached; `Retry-After` says for how long.")
BROKEN = Kind("broken", 500, "Our fault", "The service has a fault, which it has logged.")
UNAVAILABLE = Kind("unavailable", 503, "Not available", "The database can't answer; `Retry-After` says for how long.")

BODY = (NOT_JSON, TOO_LARGE, NOT_DECLARED)  # of every route that takes a body
KINDS = {kind.name: kind for kind in vars().copy().values() if isinstance(kind, Kind)}


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where a request is wrong (a JSON pointer into the body, or `/` and a query parameter or header) and why."""

    pointer: str
    detail: str


class ProblemError(Exception):
    """Ends a request with a problem; the one exception that handlers raise for what a client did."""

    def __init__(
        self, kind: Kind, detail: str, flaws: Sequence[Flaw] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.flaws, self.headers = kind, detail, flaws, headers


_SENTENCES = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "model_type": "has to be an object",
    "model_attributes_type": "has to be an object",
}


def sentence(error: Mapping[str, Any]) -> str:
    """What one of pydantic's errors says, as the end of a sentence."""
    words = _SENTENCES.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    return words[0].lower() + words[1:]


def invalid(*flaws: Flaw) -> ProblemError:
    """The problem of fields that are wrong."""
    first = flaws[0]
    more = f" (and {len(flaws) - 1} more)" if len(flaws) > 1 else ""
    return ProblemError(INVALID, f"{first.pointer or 'the body'}: {first.detail}{more}", flaws)


def conflict(why: str, *flaws: Flaw) -> ProblemError:
    """The problem of a state that says no."""
    return ProblemError(CONFLICT, why, flaws)


def not_found(noun: str) -> ProblemError:
    """The problem of a thing that is not there, or not this tenant's: nobody can tell which."""
    return ProblemError(NOT_FOUND, f"there is no such {noun}")


def respond(problem: ProblemError) -> Response:
    """The response that a problem is."""
    kind = problem.kind
    content: dict[str, object] = {
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
    }
    if problem.flaws:
        content["errors"] = [{"pointer": flaw.pointer, "detail": flaw.detail} for flaw in problem.flaws]
    return Response(json.dumps(content, separators=(",", ":")), kind.status, problem.headers, media_type=MEDIA_TYPE)
