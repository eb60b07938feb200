"""Paths of the API as the client writes them."""

from __future__ import annotations

import pytest

from flockmq.client.calls import v1, with_query


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (v1("node"), "/api/v1/node"),
        (v1("topics", "a/b c"), "/api/v1/topics/a%2Fb%20c"),
        (v1("retained", "/"), "/api/v1/retained/%2F"),
        (v1("partitions", 7), "/api/v1/partitions/7"),
        (v1("topics", "x", "heads", after=None, wait_ms=0), "/api/v1/topics/x/heads?wait_ms=0"),
        (v1("partitions", unhealthy=True), "/api/v1/partitions?unhealthy=true"),
        (v1("cluster", "leave", discard_data=False), "/api/v1/cluster/leave?discard_data=false"),
        (with_query("/metrics", limit=1), "/metrics?limit=1"),
        (with_query("/metrics"), "/metrics"),
    ],
)
def test_paths(path: str, text: str) -> None:
    assert path == text
