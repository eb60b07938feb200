from __future__ import annotations

import pytest

from flockmq.config.bind import Address, addresses, rebind, split_bind
from flockmq.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:1883", ("127.0.0.1", 1883)),
        ("[::1]:0", ("::1", 0)),
        ("broker.example:8883", ("broker.example", 8883)),
        (":1883", ("", 1883)),
        ("1883", ("", 1883)),
        ("*:65535", ("*", 65_535)),
    ],
)
def test_split(text: str, parts: tuple[str, int]) -> None:
    assert split_bind(text) == parts


@pytest.mark.parametrize("text", ["", "localhost", "::1:1883", "a:b", "a:65536", "a:-1", "a:", "[::1]", "[::1]1883"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write|expected"):
        split_bind(text)


def test_without_a_host_anonymous_clients_get_this_machine_only() -> None:
    assert addresses((":1883",), anonymous=True) == (Address("127.0.0.1", 1883), Address("::1", 1883, optional=True))


def test_without_a_host_clients_that_authenticate_may_come_from_anywhere() -> None:
    assert addresses((":1883",), anonymous=False) == (Address("0.0.0.0", 1883), Address("::", 1883, optional=True))


def test_a_named_address_is_taken_as_it_is() -> None:
    assert addresses(("0.0.0.0:1", "[::]:1", "0.0.0.0:1"), anonymous=True) == (Address("0.0.0.0", 1), Address("::", 1))


def test_star_and_localhost_are_pairs() -> None:
    assert [str(one) for one in addresses(("*:1", "localhost:2"), anonymous=True)] == [
        "0.0.0.0:1",
        "[::]:1",
        "127.0.0.1:2",
        "[::1]:2",
    ]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("x.org", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert Address(host, 1).loopback is loopback


@pytest.mark.parametrize(
    ("binds", "host", "port", "changed"),
    [
        ((":1883",), None, 0, (":0",)),
        ((":1883",), "127.0.0.1", None, ("127.0.0.1:1883",)),
        ((":1883",), "::1", 1, ("[::1]:1",)),
        (("[::1]:5", "10.0.0.1:5"), None, 6, ("[::1]:6", "10.0.0.1:6")),
        (("[::1]:5", "10.0.0.1:5"), "*", None, ("*:5",)),
    ],
)
def test_rebind(binds: tuple[str, ...], host: str | None, port: int | None, changed: tuple[str, ...]) -> None:
    assert rebind(binds, host, port) == changed
