from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.admin.operations import Operation, Router
from flockmq.admin.routes import OPERATIONS
from flockmq.errors import BAD_REQUEST, METHOD_NOT_ALLOWED, NO_SUCH_PATH, ApiError

ROUTER = Router(OPERATIONS)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: str(operation.name))
def test_every_operation_is_found_by_its_own_path(operation: Operation) -> None:
    values = {name: f"some{name}" for name in operation.parameters}
    path = operation.path.format(**values)
    assert ROUTER.find(operation.method, path) == (operation, values)


@given(NAMES)
def test_any_client_id_survives_the_path(client_id: str) -> None:
    operation, values = ROUTER.find("GET", f"/api/v1/sessions/{quote(client_id, safe='')}/subscriptions")
    assert operation.name == "listSessionSubscriptions"
    assert values == {"client_id": client_id}


@given(NAMES)
def test_any_topic_survives_the_path_escaped_or_with_plain_slashes(topic: str) -> None:
    for safe in ("", "/"):
        path = f"/api/v1/retained/{quote(topic, safe=safe)}"
        if path.endswith("/retained/"):
            continue
        operation, values = ROUTER.find("GET", path)
        assert operation.name == "getRetained"
        assert values == {"topic": topic}


@pytest.mark.parametrize("topic", ["/", "//", "/a", "a/", "a//b", ".", "..", "a/../b", "%2F", "a%b"])
def test_empty_levels_and_dots_are_kept(topic: str) -> None:
    assert ROUTER.find("GET", "/api/v1/retained/" + quote(topic, safe="/"))[1] == {"topic": topic}


@pytest.mark.parametrize(
    "path",
    ["/", "", "/api", "/api/v1", "/api/v1/", "/api/v1/nod", "/api/v1/node/", "/API/v1/node", "/api/v2/node",
     "//api/v1/node", "/api/v1/connections/", "/api/v1/retained/", "/api/v1/bans/client",
     "/api/v1/bans/client/", "/" * 5_000],
)  # fmt: skip
def test_other_paths_are_not_found(path: str) -> None:
    with pytest.raises(ApiError) as refused:
        ROUTER.find("GET", path)
    assert refused.value.kind is NO_SUCH_PATH


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/api/v1/node", "GET, HEAD"),
        ("PUT", "/api/v1/bans", "GET, HEAD, POST"),
        ("GET", "/api/v1/publish", "POST"),
        ("HEAD", "/api/v1/publish", "POST"),
        ("PATCH", "/api/v1/retained/a/b/c", "DELETE, GET, HEAD"),
        ("OPTIONS", "/api/v1/connections/a", "DELETE, GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    with pytest.raises(ApiError) as refused:
        ROUTER.find(method, path)
    assert refused.value.kind is METHOD_NOT_ALLOWED
    assert refused.value.headers == {"Allow": allowed}


def test_head_is_get_without_the_body() -> None:
    assert ROUTER.find("HEAD", "/api/v1/node")[0].name == "getNode"


def test_a_path_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        ROUTER.find("GET", "/api/v1/sessions/%ff")
    assert refused.value.kind is BAD_REQUEST
