"""What a namespace may use, and who is in which."""

from __future__ import annotations

import pytest

from flockmq.session.space import Space, Spaces


def known(*names: str) -> Spaces:
    spaces = Spaces()
    for name in names:
        spaces.by_name[name] = Space(name)
    return spaces


@pytest.mark.parametrize(
    ("username", "listener", "found"),
    [
        ("bob", "tcp", ("default", "bob")),
        ("acme/bob", "tcp", ("acme", "acme/bob")),
        ("acme/", "tcp", ("default", "acme/")),
        ("/bob", "tcp", ("default", "/bob")),
        ("other/bob", "tcp", ("default", "other/bob")),
        ("acme/a/b", "tcp", ("acme", "acme/a/b")),
        ("default/bob", "tcp", ("default", "bob")),
        ("bob", "tls", ("acme", "acme/bob")),
        ("hooli/bob", "tls", ("hooli", "hooli/bob")),
        ("default/bob", "tls", ("default", "bob")),
        ("other/bob", "tls", ("acme", "acme/other/bob")),
    ],
)
def test_locate(username: str, listener: str, found: tuple[str, str]) -> None:
    spaces = known("acme", "hooli")
    spaces.listeners["tls"] = "acme"
    assert spaces.locate(username, listener) == found


def test_without_namespaces_a_name_is_what_it_is() -> None:
    assert Spaces().locate("default/bob", "tcp") == ("default", "default/bob")


def test_rate() -> None:
    space = Space("acme")
    space.limit(0, 0, 0, 10)
    assert space.spend(4, 1_000) == 4
    assert space.spend(10, 1_000) == 6
    assert space.spend(1, 1_000) == 0
    assert space.spend(1, 1_099) == 0
    assert space.spend(1, 1_100) == 1
    assert space.spend(99, 60_000) == 10, "no more than a second's worth is saved up"
    assert space.refused == 4 + 1 + 1 + 89
    space.tell_elsewhere(0, 0, nodes=4)
    assert space.spend(99, 120_000) == 2, "five nodes have a fifth each"


def test_room_counts_other_nodes() -> None:
    space = Space("acme")
    assert space.may_connect()
    assert not space.is_limited()
    space.limit(3, 2, 0, 0)
    space.connections = 1
    space.tell_elsewhere(1, 2, 1)
    assert space.may_connect()
    assert not space.may_begin_session()
    space.connections = 2
    assert not space.may_connect()


def test_bytes_count_on_all_nodes() -> None:
    space = Space("acme")
    space.stored_bytes = 4
    assert not space.is_full()
    space.limit(0, 0, 0, 0, 10)
    assert space.is_limited()
    space.tell_elsewhere(0, 0, 1, 5)
    assert not space.is_full()
    space.tell_elsewhere(0, 0, 1, 6)
    assert space.is_full()


def test_sessions_are_counted_where_they_belong() -> None:
    spaces = known("acme")
    spaces.default = Space("default")
    for client_id in ("$ns/acme/1", "$ns/acme/2", "$ns/unknown/1", "plain"):
        spaces.session_began(client_id)
    spaces.session_ended("$ns/acme/2")
    assert (spaces.by_name["acme"].sessions, spaces.default.sessions) == (1, 1)
    assert {space.name for space in spaces.all()} == {"acme", "default"}


def test_bytes_a_second_are_a_bucket_whose_last_bytes_are_on_credit() -> None:
    space = Space("acme")
    space.limit_capture(1_000)
    assert space.is_limited()
    assert space.spend_capture(600, 10_000)
    assert space.spend_capture(2_400, 10_000), "the bucket has 400 left"
    assert not space.spend_capture(1, 11_999), "it owes 2,000"
    assert space.spend_capture(1, 12_001)
    space.tell_elsewhere(0, 0, 1)
    assert space.spend_capture(500, 20_000)
    assert not space.spend_capture(1, 20_000), "another node has the other half"
