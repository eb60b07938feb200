from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from flockmq.admin.openapi import build_openapi
from flockmq.admin.routes import OPERATIONS
from flockmq.errors import CATALOGUE

OPENAPI = build_openapi(OPERATIONS, "1.2.3")
DESCRIBED = [
    (method, path, operation) for path, methods in OPENAPI["paths"].items() for method, operation in methods.items()
]


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_it_is_openapi_31_and_json() -> None:
    assert OPENAPI["openapi"] == "3.1.0"
    assert OPENAPI["info"]["version"] == "1.2.3"
    assert msgspec.json.decode(msgspec.json.encode(OPENAPI)) == OPENAPI


def test_every_operation_is_described_once() -> None:
    assert len(DESCRIBED) == len(OPERATIONS)
    assert {operation["operationId"] for _, _, operation in DESCRIBED} == {one.name for one in OPERATIONS}


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    found = set(references(OPENAPI))
    assert found == {f"#/components/schemas/{name}" for name in OPENAPI["components"]["schemas"]}


def test_descriptions_are_no_source_code() -> None:
    for name, schema in OPENAPI["components"]["schemas"].items():
        assert not re.search(r"\s\s|\n", schema.get("description", "")), name


def test_names_of_namespaces_are_bounded_wherever_they_are_taken() -> None:
    for name in ("PublishRequest", "CursorRequest", "TopicRequest"):
        assert OPENAPI["components"]["schemas"][name]["properties"]["namespace"]["maxLength"] == 128


def test_schema_names_fit_into_references() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in OPENAPI["components"]["schemas"])
    assert "ConnectionPage" in OPENAPI["components"]["schemas"]


@pytest.mark.parametrize(("method", "path", "operation"), DESCRIBED)
def test_path_parameters_are_those_of_the_path(method: str, path: str, operation: dict[str, Any]) -> None:
    in_path = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)\}", path))


@pytest.mark.parametrize(("method", "path", "operation"), DESCRIBED)
def test_every_parameter_is_explained_and_never_null(method: str, path: str, operation: dict[str, Any]) -> None:
    for parameter in operation.get("parameters", []):
        assert parameter["description"]
        assert parameter["schema"]["type"] in {"string", "integer", "boolean", "array"}
        assert None not in parameter["schema"].get("enum", [])


@pytest.mark.parametrize(("method", "path", "operation"), DESCRIBED)
def test_answers_name_success_and_the_error_shape(method: str, path: str, operation: dict[str, Any]) -> None:
    statuses = list(operation["responses"])
    assert sum(status.startswith("2") for status in statuses) == 1
    for status, response in operation["responses"].items():
        assert response["description"]
        if not status.startswith("2"):
            assert response["content"] == {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}


@pytest.mark.parametrize(("method", "path", "operation"), DESCRIBED)
def test_only_descriptions_and_monitoring_are_open(method: str, path: str, operation: dict[str, Any]) -> None:
    is_open = operation.get("security") == []
    assert is_open == (path in {"/api/v1/openapi.json", "/api/v1/docs", "/health/live", "/health/ready"})
    assert (operation.get("security") == [{}, {"bearer": []}]) == (path == "/metrics"), "names of topics need a token"
    assert ("401" in operation["responses"]) != is_open


def test_every_error_of_the_catalogue_can_be_met() -> None:
    described = "".join(
        response["description"] for _, _, operation in DESCRIBED for response in operation["responses"].values()
    )
    # The router answers this one for paths that nothing describes.
    assert [kind.code for kind in CATALOGUE if f"`{kind.code}`" not in described] == ["no_such_path"]


def test_limits_are_in_the_schema() -> None:
    [limit] = [one for one in OPENAPI["paths"]["/api/v1/sessions"]["get"]["parameters"] if one["name"] == "limit"]
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"], limit["schema"]["default"]) == (1, 1000, 100)
