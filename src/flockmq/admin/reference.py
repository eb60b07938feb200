"""Reference pages of the documentation, made from the same tables as the API itself.

``python -m flockmq.admin.reference docs/reference`` writes them; a test holds them against the tables.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from flockmq import __version__
from flockmq.admin.docs_page import describe_type, reference
from flockmq.admin.metrics import METRICS
from flockmq.admin.openapi import build_openapi
from flockmq.admin.routes import OPERATIONS
from flockmq.errors import CATALOGUE

_NOTE: Final = (
    "<!-- Made by `python -m flockmq.admin.reference docs/reference`; change the tables in src, not this page. -->"
)


def rest_page() -> str:
    """``rest-api.md``."""
    openapi = build_openapi(OPERATIONS, __version__)
    lines = ["# REST API", "", _NOTE, "", openapi["info"]["description"], ""]
    lines += [
        "Every node serves this description as OpenAPI 3.1 at `/api/v1/openapi.json` and as a page at `/api/v1/docs`.",
        "",
        "```sh",
        'curl -H "Authorization: Bearer $FLOCKMQ_TOKEN" http://127.0.0.1:18083/api/v1/node',
        "```",
        "",
    ]
    for tag in openapi["tags"]:
        lines += [f"## {tag['description']}", ""]
        for path, methods in openapi["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    lines += _operation(method.upper(), path, operation)
    lines += ["## Errors", "", "| status | code | when |", "| --- | --- | --- |"]
    lines += [f"| {kind.status} | `{kind.code}` | {kind.when} |" for kind in CATALOGUE]
    lines += ["", "## Schemas", ""]
    for name, schema in openapi["components"]["schemas"].items():
        lines += _schema(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def metrics_page() -> str:
    """``metrics.md``."""
    lines = [
        "# Metrics",
        "",
        _NOTE,
        "",
        "`GET /metrics` on the admin port, no token needed, in Prometheus' text format or OpenMetrics. Counters count",
        "from the start of the node. `GET /api/v1/stats` gives the same numbers as JSON. What to watch:",
        "[Monitor with Prometheus](../how-to/monitor-with-prometheus.md).",
        "",
        "| metric | kind | labels | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |")
    return "\n".join(lines) + "\n"


def _operation(method: str, path: str, operation: dict[str, Any]) -> list[str]:
    lines = [f"### `{method} {path}`", "", operation["summary"] + ".", ""]
    parameters = operation.get("parameters", [])
    if parameters:
        lines += ["| parameter | in | type | |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{one['name']}` | {one['in']} | {describe_type(one['schema'])} | {one['description']} |"
            for one in parameters
        ]
        lines.append("")
    if "requestBody" in operation:
        lines += [f"Body: {_contents(operation['requestBody']['content'])}.", ""]
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            content = _contents(response.get("content", {}))
            lines += [f"Answers {status}: {response['description']}" + (f", {content}." if content else "."), ""]
    own = [status for status in operation["responses"] if not status.startswith("2")]
    lines += [f"Errors: {', '.join(own)}.", ""]
    return lines


def _schema(name: str, schema: dict[str, Any]) -> list[str]:
    lines = [f"### {name}", "", schema.get("description", "").replace("``", "`"), ""]
    lines += ["| field | type | |", "| --- | --- | --- |"]
    for field, one in schema.get("properties", {}).items():
        lines.append(f"| `{field}` | {_linked(one)} | {one.get('description', '')} |")
    return [*lines, ""]


def _contents(content: dict[str, Any]) -> str:
    return ", ".join(
        _linked(body["schema"]) + ("" if kind == "application/json" else f" as `{kind}`")
        for kind, body in content.items()
    )


def _linked(schema: dict[str, Any]) -> str:
    name = reference(schema)
    return f"[{name}](#{name.lower()})" if name else describe_type(schema)


def main(folder: str) -> None:
    """Write both pages."""
    for name, text in (("rest-api.md", rest_page()), ("metrics.md", metrics_page())):
        (Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
