"""What the OpenAPI document says beyond what FastAPI reads off the code: bodies, problems, examples.

Bodies are read by `bodies` and answers written by `answers`, so FastAPI sees neither: the models given here describe
them, and a test holds real bodies and answers against this document.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from app.api.idempotency import HEADER, REPLAYED
from app.api.problems import (
    BROKEN,
    CONFLICT,
    INVALID,
    MEDIA_TYPE,
    NO_KEY,
    NOT_FOUND,
    NOT_JSON,
    TOO_LARGE,
    TOO_MANY,
    UNAVAILABLE,
    WRONG_SCOPE,
    Kind,
)
from app.domain.states import KeyScope

Document = dict[str, Any]
_Model = tuple[type[BaseModel], Literal["validation", "serialization"]]
_FRAMEWORKS = {"HTTPValidationError", "ValidationError"}  # answers that ours take the place of
_REF = "#/components/schemas/{model}"
_bodies: list[type[BaseModel]] = []  # of the routes, as they are declared
TAGS = {
    "reservations": "Capacity held until a time: confirmed before it, released, or expired by the service.",
    "events": "What happened. Each goes to every endpoint that matches it, byte for byte as it was posted.",
    "endpoints": "Subscribers: a URL, the types of events it wants, its secrets and limits.",
    "deliveries": "Events on their way to endpoints, with every attempt.",
    "dead letters": "Deliveries that were given up; they stay until somebody redrives them.",
    "jobs": "Long work that was asked for: poll it, or subscribe to `job.completed`.",
    "audit": "Who changed what, and when; entries are only ever added.",
    "tenants": "Everything of a tenant at once.",
    "health": "Whether the service lives and is ready, and what its problems mean. No key.",
}
_KEYS = {
    KeyScope.PRODUCER: "Takes a producer's key, or an operator's.",
    KeyScope.OPERATOR: "Takes an operator's key.",
}
# What one of a kind says, for example, where it is not what the kind means.
_DETAILS = {
    NOT_JSON: "the body is not JSON at line 1, column 2",
    NO_KEY: "this key is unknown or revoked",
    WRONG_SCOPE: "a producer key can't do that, it takes an operator's",
    NOT_FOUND: "there is no such {noun}",
    CONFLICT: "the state of this {noun} does not allow it",
    TOO_LARGE: "/data has more than 1048576 bytes",
    INVALID: "/limit: input should be less than or equal to 500",
    UNAVAILABLE: "the database does not answer just now",
}
_NOUNS = {
    "reservations": "reservation",
    "events": "event",
    "endpoints": "endpoint",
    "deliveries": "delivery",
    "dead-letters": "dead letter",
    "jobs": "job",
    "tenants": "tenant",
    "problems": "type of problem",
}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "string"}}}
_CHALLENGE = {"WWW-Authenticate": {"description": "Bearer.", "required": True, "schema": {"type": "string"}}}
_HEADERS = {NO_KEY: _CHALLENGE, TOO_MANY: _RETRY_AFTER, UNAVAILABLE: _RETRY_AFTER}


class Where(BaseModel):
    """One thing that is wrong with a request."""

    pointer: str = Field(description="A JSON pointer into the body; for a query parameter or a header, / and its name.")
    detail: str = Field(description="What is wrong, as the end of a sentence about it.")


class Problem(BaseModel):
    """RFC 9457: what went wrong."""

    type: str = Field(description="Stable, and the path of a page that explains it.")
    title: str = Field(description="The type in words.")
    status: int = Field(description="Of the answer.")
    detail: str = Field(description="What went wrong this time, in one sentence.")
    errors: list[Where] = Field([], description="Where it went wrong; left out where no member is to blame.")


def takes(model: type[BaseModel], example: Mapping[str, Any], *, required: bool = True) -> Document:
    """The `openapi_extra` of a route with such a body."""
    return _takes(model, {"$ref": _REF.format(model=model.__name__)}, {"one": {"value": example}}, required)


def takes_one_or_many(model: type[BaseModel], example: Mapping[str, Any], most: int) -> Document:
    """The same, when it may be a list of such too."""
    one = {"$ref": _REF.format(model=model.__name__)}
    many = {"type": "array", "items": one, "minItems": 1, "maxItems": most}
    return _takes(model, {"anyOf": [one, many]}, {"one": {"value": example}, "list": {"value": [example]}}, True)


def _takes(model: type[BaseModel], schema: Document, examples: Document, required: bool) -> Document:
    _bodies.append(model)
    content = {"application/json": {"schema": schema, "examples": examples}}
    return {"requestBody": {"required": required, "content": content}}


def answers(
    *kinds: Kind,
    also: Mapping[int, tuple[type[BaseModel], str]] | None = None,
    shows: Mapping[int, Mapping[str, Any]] | None = None,
) -> dict[int | str, Document]:
    """The `responses` of a route with a key: these problems and those of every such route, and other successes.

    `shows` has examples of its successes, where those of their models are about something else.
    """
    every = {*kinds, NO_KEY, WRONG_SCOPE, INVALID, TOO_MANY, BROKEN, UNAVAILABLE}
    told: dict[int | str, Document] = {}
    for status, (model, why) in (also or {}).items():
        told[status] = {"model": model, "description": why}
    for status, shown in (shows or {}).items():
        told[status] = {"content": {"application/json": {"example": shown}}}
    for kind in sorted(every, key=lambda kind: kind.status):
        told[kind.status] = problem_answer(kind)
    return told


def problem_answer(kind: Kind) -> Document:
    """A problem as one of the `responses` of a route."""
    detail = _DETAILS.get(kind, kind.meaning)
    example: Document = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": detail}
    if kind is INVALID:
        pointer, _, why = detail.partition(": ")
        example["errors"] = [{"pointer": pointer, "detail": why}]
    schema = {"$ref": _REF.format(model="Problem")}
    told: Document = {"description": kind.meaning, "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}
    return told | ({"headers": _HEADERS[kind]} if kind in _HEADERS else {})


def describe(app: FastAPI) -> Document:
    """The whole document; made once, when it is first asked for."""
    if app.openapi_schema is None:
        routes = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
        for route in routes:  # what programs made from the document call it: `events_cancel`
            route.operation_id = f"{route.tags[0]}_{route.name}".replace(" ", "_")
        tags = [{"name": name, "description": about} for name, about in TAGS.items()]
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=tags
        )
        # Those of answers anew, too: the framework drops what is null from their examples.
        bodies: list[_Model] = [(Problem, "validation"), *((model, "validation") for model in _bodies)]
        answered: list[_Model] = [(model, "serialization") for route in routes for model in _answered(route)]
        _, given = models_json_schema([*bodies, *answered], ref_template=_REF)
        schemas: Document = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(given["$defs"])
        for name in _FRAMEWORKS:
            schemas.pop(name, None)
        _whole_examples(document, routes)
        for path, methods in document["paths"].items():
            if "post" in methods:
                _repeatable(methods["post"])
            for operation in methods.values():
                _name(operation)
                _name_things(operation["responses"], path)
                _show_answers(operation["responses"], schemas)
        app.openapi_schema = document
    return app.openapi_schema


def _whole_examples(document: Document, routes: Sequence[APIRoute]) -> None:
    """The framework drops what is null from those of routes, too."""
    for route in routes:
        for method in route.methods or ():
            told = document["paths"][route.path_format][method.lower()]["responses"]
            for status, response in route.responses.items():
                for media_type, content in response.get("content", {}).items():
                    told[str(status)]["content"][media_type]["example"] = content["example"]


def _name_things(responses: Document, path: str) -> None:
    """Whoever reads of one route's problems reads of its own things."""
    noun = next((_NOUNS[word] for word in path.split("/") if word in _NOUNS), "thing")
    for kind in (NOT_FOUND, CONFLICT):
        for content in responses.get(str(kind.status), {}).get("content", {}).values():
            content["example"] = {**content["example"], "detail": _DETAILS[kind].format(noun=noun)}


def _repeatable(operation: Document) -> None:
    """What `app.api.acting.perform` makes of every POST: it can be sent again under a key."""
    key = {
        "name": HEADER,
        "in": "header",
        "required": False,
        "description": "Your name for this request, good for 24 hours: sent again with the same body it is answered as"
        " the first time and has no second effect. With another body it is 422, while the first runs 409.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    }
    operation["parameters"] = [*operation.get("parameters", ()), key]
    answers = {str(CONFLICT.status): problem_answer(CONFLICT), **operation["responses"]}
    replayed = {
        "description": "`true`: this is the kept answer of the first time. A `secret` in it is null then.",
        "schema": {"type": "string", "enum": ["true"]},
    }
    for status, each in answers.items():
        if status < "3":
            each["headers"] = {REPLAYED: replayed}
    operation["responses"] = dict(sorted(answers.items()))


def _answered(route: APIRoute) -> Iterator[type[BaseModel]]:
    """The models of a route's answers but problems."""
    told = (route.response_model, *(response.get("model") for response in route.responses.values()))
    for model in filter(None, told):
        yield from get_args(model) or (model,)


def _name(operation: Document) -> None:
    """The first clause of what a handler says of itself is its summary; and who may call it."""
    about = operation["description"]
    operation["summary"] = re.split(r"[;:.](?:\s|$)", about, maxsplit=1)[0]
    for key in operation.get("security", ()):
        operation["description"] = f"{about}\n\n{_KEYS[KeyScope(*key['key'])]}"


def _show_answers(responses: Document, schemas: Document) -> None:
    """Each answer has the example of its model. What the framework would answer itself is none of ours."""
    for status, response in [*responses.items()]:
        response["description"] = response["description"].replace("Successful Response", "Done.")
        for content in response.get("content", {}).values():
            names = [each["$ref"].rpartition("/")[2] for each in _alternatives(content["schema"]) if "$ref" in each]
            if set(names) & _FRAMEWORKS:
                del responses[status]
            shown = {name: {"value": each} for name in names for each in schemas.get(name, {}).get("examples", ())}
            if shown and "example" not in content:
                content["examples"] = shown


def _alternatives(schema: Document) -> list[Document]:
    return [schema, *schema.get("anyOf", ())]
