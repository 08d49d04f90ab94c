"""The OpenAPI document as a judge: every answer that a test's client gets is held against it."""

import json
import re
from copy import deepcopy
from typing import Any

import httpx
from jsonschema_rs import Draft202012Validator

from app.api.app import create_app
from app.runtime import Runtime
from app.settings import load

# Nothing of it connects: the document is made from the code alone.
NOTHING: Any = None
DOCUMENT: dict[str, Any] = create_app(Runtime(load(), NOTHING, NOTHING)).openapi()
OPERATIONS: dict[tuple[str, str], dict[str, Any]] = {
    (method.upper(), path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
PROBLEM = "application/problem+json"
DEEPEST = 8  # levels of an answer that are described; what lies deeper is a producer's `data`
# A path with a fixed name in it goes before one with an id in the same place, as in the router.
_TEMPLATES = sorted(
    ((path, re.compile(re.sub(r"\\{[a-z_]+\\}", "[^/]+", re.escape(path)))) for path in DOCUMENT["paths"]),
    key=lambda each: each[0].count("{"),
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def _closed() -> dict[str, Any]:
    """The models, with no room for a member that nobody documented."""
    schemas: dict[str, Any] = deepcopy(DOCUMENT["components"]["schemas"])
    for schema in schemas.values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return schemas


_COMPONENTS = {"components": {"schemas": _closed()}}
_validators: dict[str, Draft202012Validator] = {}


def flaws(schema: dict[str, Any], value: Any) -> list[str]:
    """What of a value is not as the schema, which may refer to the document's models, has it."""
    key = json.dumps(schema, sort_keys=True)
    if key not in _validators:
        _validators[key] = Draft202012Validator({**schema, **_COMPONENTS}, validate_formats=True)
    return [f"{'/'.join(map(str, each.instance_path))}: {each.message}" for each in _validators[key].iter_errors(value)]


def check(response: httpx.Response) -> None:
    """Fails unless the document tells of such an answer: its status, media type, headers and body."""
    method = "GET" if response.request.method == "HEAD" else response.request.method
    path = route_of(response.request.url.raw_path.partition(b"?")[0].decode())
    if path in ("/docs", "/openapi.json"):
        return
    operation = OPERATIONS.get((method, path))
    where = f"{method} {path} answered {response.status_code}"
    if operation is None:  # told of by the router, of every path
        assert response.status_code in (404, 405), where
        told: dict[str, Any] = {"content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    else:
        assert str(response.status_code) in operation["responses"], f"{where}, which nobody documented"
        told = operation["responses"][str(response.status_code)]
    for name, header in told.get("headers", {}).items():
        assert not header.get("required") or name in response.headers, f"{where} without {name}"
    _check_body(response, told.get("content"), where)


def _check_body(response: httpx.Response, content: dict[str, Any] | None, where: str) -> None:
    body = response.read()
    if content is None:
        assert not body, f"{where} with a body"
        return
    media_type = response.headers["content-type"]
    assert media_type in content, f"{where} as {media_type}"
    if body and response.request.method != "HEAD":
        found = flaws(content[media_type]["schema"], readable(body))
        assert not found, f"{where} with {found}"


def route_of(path: str) -> str:
    """The document's path that a request's path is for; itself when it is for none."""
    path = path.replace("%2f", "/").replace("%2F", "/")  # the server decodes before it looks for a route
    return next((template for template, pattern in _TEMPLATES if pattern.fullmatch(path)), path)


def readable(body: bytes) -> Any:
    """An answer as a validator can read it: `data` may hold what no Unicode text, computer number or stack does."""
    text = _SURROGATE.sub(r"\\u0041", body.decode())
    value = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 18 else 0, parse_float=_float)
    return _cut(value, DEEPEST)


def _float(digits: str) -> float:
    value = float(digits)
    return value if abs(value) < 2**63 else 0.0


def _cut(value: Any, levels: int) -> Any:
    if levels == 0:
        return None
    if isinstance(value, dict):
        return {name: _cut(each, levels - 1) for name, each in value.items()}
    return [_cut(each, levels - 1) for each in value] if isinstance(value, list) else value
