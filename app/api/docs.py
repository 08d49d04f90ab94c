"""The documentation page: the OpenAPI document as plain HTML, with nothing fetched from anywhere else."""

import json
from html import escape
from typing import Any

from app.api.openapi import Document

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
code,pre{font:14px/1.45 ui-monospace,monospace;background:#f4f5f7;border-radius:4px}
code{padding:.1em .3em}pre{padding:.8em;overflow:auto}section{border-top:1px solid #d8dce2;margin-top:1.5rem}
table{border-collapse:collapse;width:100%}td{border-top:1px solid #eceef1;padding:.3em .6em .3em 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#dfe2e6}code,pre{background:#23262c}}
"""
BOUNDS = ("format", "enum", "minLength", "maxLength", "pattern", "minimum", "exclusiveMinimum", "maximum", "maxItems")


def page(document: Document) -> str:
    """The whole page."""
    info = document["info"]
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    models = [_model(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1><p>{escape(info['description'])}</p>"
        f'<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>{"".join(operations)}'
        f"<h2>Members</h2>{''.join(models)}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    name = f"{method.upper()} {path}"
    parameters = [
        (f"<code>{escape(each['name'])}</code> ({each['in']})", escape(each.get("description", "")))
        for each in operation.get("parameters", [])
    ]
    answers = [(f"<code>{status}</code>", _answer(answer)) for status, answer in operation["responses"].items()]
    return (
        f'<section id="{operation["operationId"]}"><h3><code>{escape(name)}</code></h3>'
        f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
        f"{_table(parameters)}{_body(operation)}{_table(answers)}</section>"
    )


def _body(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    examples = (json.dumps(each["value"], indent=2) for each in content.get("examples", {}).values())
    names = " or a list of ".join(dict.fromkeys(_models(content.get("schema", {}))))
    return (f"<p>Body: {names}</p>" if names else "") + "".join(f"<pre>{escape(each)}</pre>" for each in examples)


def _answer(answer: dict[str, Any]) -> str:
    names = ", ".join(
        name for content in answer.get("content", {}).values() for name in _models(content.get("schema", {}))
    )
    return f"{escape(answer['description'])} {names}"


def _models(schema: dict[str, Any]) -> list[str]:
    """Links to the models that a schema names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return [f'<a href="#{name}">{name}</a>']
    inner = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]
    return [name for each in inner for name in _models(each)]


def _model(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    members = [
        (f"<code>{escape(member)}</code>{'' if member in required else '?'}", _member(each))
        for member, each in schema.get("properties", {}).items()
    ]
    head = f'<section id="{escape(name)}"><h3>{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>'
    return f"{head}{_table(members)}</section>"


def _member(schema: dict[str, Any]) -> str:
    parts = (schema, *schema.get("anyOf", ()))
    kinds = [part["type"] for part in parts if "type" in part]
    bounds = [f"{name} {part[name]}" for part in parts for name in BOUNDS if name in part]
    default = [f"default {json.dumps(schema['default'])}"] if "default" in schema else []
    known = " · ".join([*kinds, *bounds, *default])
    return f"{escape(known)} {' '.join(_models(schema))} {escape(schema.get('description', ''))}"


def _table(rows: list[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><td>{left}<td>{right}" for left, right in rows) + "</table>" if rows else ""
