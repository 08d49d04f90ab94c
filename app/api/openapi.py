"""What the OpenAPI document says beyond what FastAPI reads off the code: bodies, problems, examples.

Bodies are read by `bodies` and answers written by `answers`, so FastAPI sees neither: the models given here describe
them, and a test holds real bodies and answers against this document.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from app.api.idempotency import HEADER, REPLAYED
from app.api.problems import BROKEN, CONFLICT, INVALID, MEDIA_TYPE, NO_KEY, TOO_MANY, UNAVAILABLE, WRONG_SCOPE, Kind

Document = dict[str, Any]
_REF = "#/components/schemas/{model}"
_bodies: list[type[BaseModel]] = []  # of the routes, as they are declared


class Where(BaseModel):
    """One thing that is wrong with a request."""

    pointer: str = Field(description="A JSON pointer into the body; for a query parameter or a header, / and its name.")
    detail: str


class Problem(BaseModel):
    """RFC 9457. `type` is stable, and the path of a page that explains it; `detail` is one sentence."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Where] | None = None


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


def answers(*kinds: Kind, also: Mapping[int, tuple[type[BaseModel], str]] | None = None) -> dict[int | str, Document]:
    """The `responses` of a route with a key: these problems and those of every such route, and other successes."""
    every = {*kinds, NO_KEY, WRONG_SCOPE, INVALID, TOO_MANY, BROKEN, UNAVAILABLE}
    told: dict[int | str, Document] = {}
    for status, (model, why) in (also or {}).items():
        told[status] = {"model": model, "description": why}
    for kind in sorted(every, key=lambda kind: kind.status):
        told[kind.status] = _problem(kind)
    return told


def _problem(kind: Kind) -> Document:
    example = {"type": kind.type, "title": kind.title, "status": kind.status, "detail": kind.meaning}
    if kind is INVALID:
        example |= {"detail": "/limit: …", "errors": [{"pointer": "/limit", "detail": "…"}]}
    schema = {"$ref": _REF.format(model="Problem")}
    return {"description": kind.meaning, "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}


def describe(app: FastAPI) -> Document:
    """The whole document; made once, when it is first asked for."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        models: list[type[BaseModel]] = [*_bodies, Problem]
        _, given = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
        for methods in document["paths"].values():
            if "post" in methods:
                _repeatable(methods["post"])
        document.setdefault("components", {}).setdefault("schemas", {}).update(given["$defs"])
        app.openapi_schema = document
    return app.openapi_schema


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
    answers = {str(CONFLICT.status): _problem(CONFLICT), **operation["responses"]}
    replayed = {
        "description": "`true`: this is the kept answer of the first time. A `secret` in it is null then.",
        "schema": {"type": "string", "enum": ["true"]},
    }
    for status, each in answers.items():
        if status < "3":
            each["headers"] = {REPLAYED: replayed}
    operation["responses"] = dict(sorted(answers.items()))
