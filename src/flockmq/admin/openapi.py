"""The OpenAPI 3.1 description, made from the table of operations and the structs of the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from flockmq.admin.durable_sinks_model import QueryText
from flockmq.admin.model import ErrorBody, Request
from flockmq.admin.operations import JSON, NoQuery, Operation
from flockmq.admin.rules import BanKind, Shard, TopicText
from flockmq.errors import (
    BAD_REQUEST,
    BODY_TOO_LARGE,
    INTERNAL,
    INVALID_BODY,
    INVALID_PARAMETER,
    METHOD_NOT_ALLOWED,
    TIMEOUT,
    TOO_MANY_ATTEMPTS,
    TOOK_TOO_LONG,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA_TYPE,
    WRONG_HOST,
    ErrorKind,
)

_REF: Final = "#/components/schemas/{name}"
_PAGE: Final = re.compile(r"(?:Nodes)?Page_(\w+)_")
_PARAMETER_TEXTS: Final = {
    "name": "Name of the durable topic",
    "shard": "Number of the partition within its topic, counted from 0",
    "query": "Name of the query that writes, the same at each of its starts",
    "group": "Number of the partition's Raft group",
    "cursor": "Name of the cursor",
    "namespace": "Name of the namespace",
    "client": "Name of the registered client",
    "client_id": "Client id, percent-escaped (`/` as `%2F`)",
    "topic": "Topic name; slashes may stand as they are or as `%2F`, `$`, `#`, `%` and `?` percent-escaped",
    "node": "Name or id of the node, percent-escaped",
    "kind": "Kind of the ban: `client`, `username` or `address`",
    "value": "Client id, user name or address of the ban, percent-escaped",
}
_PATH_SCHEMAS: Final = {
    name: msgspec.json.schema(shape)
    for name, shape in {
        "shard": Shard,
        "group": Annotated[int, Meta(ge=1)],
        "kind": BanKind,
        "topic": TopicText,
        "query": QueryText,
        "value": Annotated[str, Meta(min_length=1, max_length=1_024)],
    }.items()
}
"""What path parameters may be; any text where nothing stands here."""
_DESCRIPTION: Final = """\
Everything that can be seen and done on a running node. All paths under `/api/v1` but this description and its page \
want the header `Authorization: Bearer TOKEN`.

Every answer that is not a success has the same shape: `{"error": {"code": "...", "message": "..."}}`. Programs look \
at `code`, people read `message`.

Listings come in pages: give `next` of a page as `after` to get the following one, with the same filters; `null` is \
the end, a short or empty page is not. An entry that exists from the first page to the last is listed exactly once; \
one that comes or goes in between may be missing. A cursor is kept for 60 s after its last use."""

TAGS: Final = (
    ("node", "The node itself"),
    ("cluster", "The nodes together, and the way of messages between them"),
    ("topics", "Durable topics, their partitions and records"),
    ("cursors", "Cursors: named positions of readers"),
    ("namespaces", "Namespaces and the clients registered in them"),
    ("groups", "Consumer groups: members share the records of topics, and settle each"),
    ("sinks", "Writing whole batches exactly once, as Spark does"),
    ("clients", "Connections, sessions and subscriptions"),
    ("messages", "Publishing and retained messages"),
    ("bans", "Clients that may not connect"),
    ("description", "This description"),
    ("monitoring", "For probes and Prometheus; no token needed"),
)


def build_openapi(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """Describe all operations."""
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "FlockMQ admin API",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The admin token; the broker leaves it in the credentials file of the user that "
                    "starts it (mode 0600)",
                }
            },
        },
    }


class _Schemas:
    """JSON Schemas of everything that operations take and give, by type."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types: list[Any] = [ErrorBody]
        for operation in operations:
            types += [shape for shape in (operation.answer, operation.body) if shape is not None]
        unique = list(dict.fromkeys(types))
        references, components = msgspec.json.schema_components(unique, ref_template=_REF)
        renamed: tuple[list[Any], dict[str, Any]] = msgspec.json.decode(
            _PAGE.sub(r"\1Page", msgspec.json.encode((references, components)).decode()),
            type=tuple[list[Any], dict[str, Any]],
        )
        self._by_type = dict(zip(unique, renamed[0], strict=True))
        rules = _schema_rules(Request)
        self.components = {
            name: _on_one_line(schema) | rules.get(name, {}) for name, schema in sorted(renamed[1].items())
        }

    def of(self, shape: Any) -> Any:
        return self._by_type[shape]


def _schema_rules(base: type[Request]) -> dict[str, dict[str, Any]]:
    """What requests say about several of their fields together, by the name of their schema."""
    rules = {base.__name__: base.schema_rules}
    for shape in base.__subclasses__():
        rules |= _schema_rules(shape)
    return rules


def _on_one_line(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose description, which is a docstring, has no line breaks and indents of our source."""
    return {name: " ".join(value.split()) if name == "description" else value for name, value in schema.items()}


def _describe(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
    }
    parameters = _path_parameters(operation) + _query_parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas.of(operation.body)}}}
    elif operation.body_type:
        content = {operation.body_type: {"schema": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"required": True, "content": content}
    if operation.token_tells_more:
        described["security"] = [{}, {"bearer": []}]
    elif not operation.secured:
        described["security"] = []
    described["responses"] = {
        str(operation.status if operation.answer is not None else 204): _success(operation, schemas),
        **_failures(operation, schemas),
    }
    return described


def _success(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    response: dict[str, Any] = {"description": operation.answer_text}
    if operation.answer is not None:
        response["content"] = {operation.content_type: {"schema": schemas.of(operation.answer)}}
        if operation.raw_type:
            response["content"][operation.raw_type] = {"schema": {"type": "string", "format": "binary"}}
    return response


def _failures(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    by_status: dict[int, list[ErrorKind]] = {}
    for kind in _kinds(operation):
        by_status.setdefault(kind.status, []).append(kind)
    return {
        str(status): {
            "description": "; ".join(f"`{kind.code}`: {kind.when}" for kind in kinds),
            "content": {JSON: {"schema": schemas.of(ErrorBody)}},
        }
        for status, kinds in sorted(by_status.items())
    }


def _kinds(operation: Operation) -> list[ErrorKind]:
    """What this operation can answer beside success, its own and what holds for all."""
    kinds = {BAD_REQUEST, WRONG_HOST, INTERNAL, METHOD_NOT_ALLOWED, INVALID_PARAMETER, *operation.errors}
    if operation.secured or operation.token_tells_more:
        kinds |= {UNAUTHORIZED, TOO_MANY_ATTEMPTS}
    kinds |= {BODY_TOO_LARGE, TIMEOUT, TOOK_TOO_LONG}
    if operation.body is not None or operation.body_type:
        kinds |= {INVALID_BODY, UNSUPPORTED_MEDIA_TYPE}
    return sorted(kinds, key=lambda kind: (kind.status, kind.code))


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PARAMETER_TEXTS[name],
            "schema": _without_null(_PATH_SCHEMAS.get(name, {"type": "string", "minLength": 1})),
        }
        for name in operation.parameters
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is NoQuery:
        return []
    schema = msgspec.json.schema_components([operation.query], ref_template=_REF)[1][operation.query.__name__]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "description": field["description"],
            "schema": _without_null({key: value for key, value in field.items() if key != "description"}),
        }
        for name, field in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is there or not; it has no way to be null."""
    choices = schema.get("anyOf", [schema])
    [kept] = [dict(choice) for choice in choices if choice.get("type") != "null"]
    if "enum" in kept:
        return {"type": "string", "enum": [value for value in kept["enum"] if value is not None]}
    return kept
