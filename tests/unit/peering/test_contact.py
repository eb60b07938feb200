from __future__ import annotations

import pytest

from flockmq.errors import FlockError
from flockmq.peering.contact import Contact, make_contact, parse_contact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1", Contact("node1", 16_000)),
        ("node1:17000", Contact("node1", 17_000)),
        (" 192.0.2.1:1 ", Contact("192.0.2.1", 1)),
        ("[2001:db8::1]:17000", Contact("2001:db8::1", 17_000)),
        ("[::1]", Contact("::1", 16_000)),
        ("::1", Contact("::1", 16_000)),
        ("fe80::1%eth0", Contact("fe80::1%eth0", 16_000)),
    ],
)
def test_what_people_write(text: str, expected: Contact) -> None:
    assert parse_contact(text) == expected
    assert parse_contact(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["", ":1", "a:", "a:0", "a:65536", "a:x", "[::1", "[::1]x", "[::1]:", "a b", "a/b", "a:²", "x" * 254]
)
def test_what_is_no_contact(text: str) -> None:
    with pytest.raises(FlockError, match=r"is not an address|should follow"):
        parse_contact(text)


@pytest.mark.parametrize(("host", "port"), [("", 1), ("a\n", 1), ("a", 0), ("a", 70_000), ("a", -1)])
def test_what_others_say_is_checked(host: str, port: int) -> None:
    with pytest.raises(FlockError, match="is not a"):
        make_contact(host, port)
