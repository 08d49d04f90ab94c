"""The documentation page: the OpenAPI document as plain HTML, with nothing fetched from anywhere else."""

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any, TypeAlias

from app.api.openapi import Document

Operation: TypeAlias = tuple[str, str, dict[str, Any]]  # its method, path and what the document says of it

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
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    tags = [(tag, [each for each in operations if each[2]["tags"][-1] == tag["name"]]) for tag in document["tags"]]
    models = [_model(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{_prose(info['description'])}"
        f'<p>For programs: <a href="/openapi.json">openapi.json</a>.</p>{"".join(_contents(*each) for each in tags)}'
        f"{''.join(_tag(*each) for each in tags)}<h2>Members</h2>{''.join(models)}</html>"
    )


def _contents(tag: dict[str, Any], operations: Sequence[Operation]) -> str:
    rows = [
        (
            f'<a href="#{operation["operationId"]}"><code>{method.upper()} {escape(path)}</code></a>',
            _words(operation["summary"]),
        )
        for method, path, operation in operations
    ]
    return f"<h4>{escape(tag['name'])}</h4>{_table(rows)}"


def _tag(tag: dict[str, Any], operations: Sequence[Operation]) -> str:
    shown = "".join(_operation(*each) for each in operations)
    return f"<h2>{escape(tag['name'].capitalize())}</h2>{_prose(tag['description'])}{shown}"


def _prose(text: str) -> str:
    """Paragraphs, with what stands in backticks as code."""
    return "".join(f"<p>{_words(each)}</p>" for each in text.split("\n\n"))


def _words(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    name = f"{method.upper()} {path}"
    parameters = [
        (f"<code>{escape(each['name'])}</code> ({each['in']})", _member(each["schema"]))
        for each in operation.get("parameters", [])
    ]
    answers = [(f"<code>{status}</code>", _answer(answer)) for status, answer in operation["responses"].items()]
    return (
        f'<section id="{operation["operationId"]}"><h3><code>{escape(name)}</code></h3>'
        f"{_prose(operation['description'])}{_table(parameters)}{_body(operation)}{_table(answers)}</section>"
    )


def _body(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    names = " or a list of ".join(dict.fromkeys(_models(content.get("schema", {}))))
    return (f"<p>Body: {names}</p>" if names else "") + "".join(map(_example, _examples(content)))


def _examples(content: dict[str, Any]) -> list[Any]:
    alone = [content["example"]] if "example" in content else []
    return [*alone, *(each["value"] for each in content.get("examples", {}).values())]


def _example(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"


def _answer(answer: dict[str, Any]) -> str:
    names = ", ".join(
        name for content in answer.get("content", {}).values() for name in _models(content.get("schema", {}))
    )
    headers = " ".join(f"<code>{escape(name)}</code>" for name in answer.get("headers", {}))
    shown = "".join(_example(each) for content in answer.get("content", {}).values() for each in _examples(content))
    example = f"<details><summary>example</summary>{shown}</details>" if shown else ""
    return f"{_words(answer['description'])} {names} {headers}{example}"


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
    head = f'<section id="{escape(name)}"><h3>{escape(name)}</h3>{_prose(schema.get("description", ""))}'
    return f"{head}{_table(members)}</section>"


def _member(schema: dict[str, Any]) -> str:
    parts = (schema, *schema.get("anyOf", ()))
    kinds = [part["type"] for part in parts if "type" in part]
    bounds = [f"{name} {part[name]}" for part in parts for name in BOUNDS if name in part]
    default = [f"default {json.dumps(schema['default'])}"] if "default" in schema else []
    known = " · ".join([*kinds, *bounds, *default])
    return f"{escape(known)} {' '.join(_models(schema))} {_words(schema.get('description', ''))}"


def _table(rows: list[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><td>{left}<td>{right}" for left, right in rows) + "</table>" if rows else ""
