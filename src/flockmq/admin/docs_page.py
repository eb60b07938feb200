"""The OpenAPI description as one HTML page: no script, nothing loaded from elsewhere, made once at start.

All texts are escaped; backticks become code. The page's only style is inline, named by its hash in the content
security policy, which allows nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import Any, Final

_CODE: Final = re.compile(r"`([^`]+)`")
_STYLE: Final = """
:root{color-scheme:light dark;--line:color-mix(in srgb,currentColor 18%,transparent);
--soft:color-mix(in srgb,currentColor 6%,transparent)}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1.5rem}
h1{margin:0}h2{margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}h4{margin:1rem 0 .3rem}
code{font:13px ui-monospace,monospace;background:var(--soft);padding:.1em .3em;border-radius:3px}
details{border:1px solid var(--line);border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}
summary{cursor:pointer}summary small{opacity:.75;margin-left:.5rem}
.method{display:inline-block;min-width:4.2rem;font-weight:700;font-size:12px}
.GET{color:#1a73c7}.POST{color:#1c8a4c}.DELETE{color:#c2402f}
table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid var(--line);padding:.3rem .5rem;text-align:left;vertical-align:top}
.open{font-size:12px;opacity:.75}
"""


def page_headers() -> dict[str, str]:
    """Headers that let the page's own style through and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
    return {"Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"}


def render_page(openapi: dict[str, Any]) -> str:
    """The whole page."""
    info = openapi["info"]
    sections = [_tag(openapi, tag) for tag in openapi["tags"]]
    schemas = [_schema(name, schema) for name, schema in openapi["components"]["schemas"].items()]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
            f"<title>{_escape(info['title'])}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{_escape(info['title'])}</h1><p>Version {_escape(info['version'])} · ",
            '<a href="openapi.json">openapi.json</a></p>',
            *(f"<p>{_text(part)}</p>" for part in info["description"].split("\n\n")),
            *sections,
            '<h2 id="schemas">Schemas</h2>',
            *schemas,
            "</body></html>",
            "",
        ]
    )


def _tag(openapi: dict[str, Any], tag: dict[str, str]) -> str:
    operations = [
        _operation(method.upper(), path, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    ]
    return f"<h2>{_escape(tag['description'])}</h2>" + "".join(operations)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<details id="{_escape(operation["operationId"])}"><summary>',
        f'<span class="method {method}">{method}</span><code>{_escape(path)}</code>',
        f"<small>{_text(operation['summary'])}</small></summary>",
    ]
    if operation.get("security") == []:
        parts.append('<p class="open">Needs no token.</p>')
    parameters = operation.get("parameters")
    if parameters:
        rows = [
            (
                f"<code>{_escape(one['name'])}</code>",
                _escape(one["in"]),
                describe_type(one["schema"]),
                one["description"],
            )
            for one in parameters
        ]
        parts.append("<h4>Parameters</h4>" + _table(rows))
    if "requestBody" in operation:
        parts.append(f"<h4>Body</h4><p>{_content(operation['requestBody']['content'])}</p>")
    rows = [
        (f"<code>{status}</code>", _content(response.get("content", {})), "", response["description"])
        for status, response in operation["responses"].items()
    ]
    parts.append("<h4>Answers</h4>" + _table(rows) + "</details>")
    return "".join(parts)


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    cells = "".join(
        f"<tr><td>{first}</td><td>{second} {_text(third)}</td><td>{_text(last)}</td></tr>"
        for first, second, third, last in rows
    )
    return f"<table>{cells}</table>"


def _content(content: dict[str, Any]) -> str:
    return ", ".join(_link(body["schema"]) + f" <small>{_escape(kind)}</small>" for kind, body in content.items())


def _link(schema: dict[str, Any]) -> str:
    name = reference(schema)
    return f'<a href="#schema-{name}">{name}</a>' if name else _text(describe_type(schema))


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        (
            f"<code>{_escape(field)}</code>",
            _link(one) if reference(one) else _text(describe_type(one)),
            "required" if field in required else "",
            one.get("description", ""),
        )
        for field, one in schema.get("properties", {}).items()
    ]
    text = _text(schema.get("description", "").replace("``", "`"))
    head = f"<summary><code>{name}</code><small>{text}</small></summary>"
    return f'<details id="schema-{name}">{head}{_table(rows)}</details>'


def reference(schema: dict[str, Any]) -> str:
    """The component that a schema refers to, or nothing."""
    target: str = schema.get("$ref", "")
    return target.rpartition("/")[2]


def describe_type(schema: dict[str, Any]) -> str:
    """A schema in a few words: ``integer, 1 to 1000, default `100` ``."""
    words = [_type_name(schema)]
    if "minimum" in schema and "maximum" in schema:
        words.append(f"{schema['minimum']} to {schema['maximum']}")
    if "maxLength" in schema:
        words.append(f"up to {schema['maxLength']} characters")
    if schema.get("default") not in (None, "", []):
        default = schema["default"]
        words.append(f"default `{str(default).lower() if isinstance(default, bool) else default}`")
    return ", ".join(words)


def _type_name(schema: dict[str, Any]) -> str:
    name = reference(schema)
    if name:
        return name
    if "enum" in schema:
        return " or ".join("null" if value is None else f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(describe_type(one) for one in schema["anyOf"])
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type_name(schema['items'])}"
    if kind == "object" and "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        return f"object of {_type_name(schema['additionalProperties'])}"
    return str(kind)


def _escape(text: str) -> str:
    return html.escape(text, quote=True)


def _text(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", _escape(text))
