from __future__ import annotations

import pytest

from flockmq.cli.api import server_urls
from flockmq.cli.usage import UsageError
from flockmq.errors import FlockError


@pytest.mark.parametrize(
    ("server", "urls"),
    [
        ("localhost", ["http://localhost:18083"]),
        ("10.0.0.1", ["http://10.0.0.1:18083"]),
        ("node1:8080", ["http://node1:8080"]),
        ("::1", ["http://[::1]:18083"]),
        ("[::1]", ["http://[::1]:18083"]),
        ("[fd00::1]:8080", ["http://[fd00::1]:8080"]),
        ("http://localhost:8080", ["http://localhost:8080"]),
        ("https://broker.example", ["https://broker.example"]),
        ("http://[::1]:8080/prefix", ["http://[::1]:8080/prefix"]),
        ("node1, node2:8080,https://node3", ["http://node1:18083", "http://node2:8080", "https://node3"]),
    ],
)
def test_a_server_without_a_port_is_reached_on_that_of_the_admin_api(server: str, urls: list[str]) -> None:
    assert server_urls(server) == urls


@pytest.mark.parametrize("server", ["", " , "])
def test_no_server_at_all(server: str) -> None:
    with pytest.raises(UsageError, match="names no server"):
        server_urls(server)


@pytest.mark.parametrize("server", ["host:", "host:x", "a b", "host:99999", "[::1", "host/path"])
def test_what_is_no_server(server: str) -> None:
    with pytest.raises(FlockError, match="is not a server address"):
        server_urls(server)
