from __future__ import annotations

import pytest

from flockmq.cluster.filters import FilterTree, filters_overlap, internal_filter, namespace_prefix, user_filter

OVERLAPS = [
    (b"a", b"a", True),
    (b"a", b"b", False),
    (b"a/+", b"a/b", True),
    (b"a/+", b"a", False),
    (b"a/+", b"a/b/c", False),
    (b"a/#", b"a", True),
    (b"a/#", b"a/b/c", True),
    (b"a/#", b"ab", False),
    (b"+/b", b"a/+", True),
    (b"+/b", b"a/c", False),
    (b"+/#", b"a", True),
    (b"#", b"a/b", True),
    (b"#", b"+", True),
    (b"#", b"$ns/a/b", False),
    (b"+/x", b"$ns/x", False),
    (b"$ns/a/#", b"$ns/a/+", True),
    (b"$ns/a/#", b"$ns/b/#", False),
    (b"a//b", b"a/+/b", True),
    (b"a/", b"a", False),
    (b"a/", b"a/+", True),
    (b"a/b/#", b"a/+", True),
    (b"a/b/c/#", b"a/+", False),
]


@pytest.mark.parametrize(("one", "other", "expected"), OVERLAPS)
def test_overlap(one: bytes, other: bytes, expected: bool) -> None:
    assert filters_overlap(one, other) is expected
    assert filters_overlap(other, one) is expected
    for kept, asked in ((one, other), (other, one)):
        tree = FilterTree()
        tree.add(kept, "owner")
        assert tree.owner_of_overlap(asked) == ("owner" if expected else "")
        assert tree.owner_of_overlap(asked, "owner") == ""


def test_the_tree_forgets() -> None:
    tree = FilterTree()
    tree.add(b"a/b", "one")
    tree.add(b"a/b/c", "two")
    tree.remove(b"a/b")
    assert tree.owner_of_overlap(b"a/b") == ""
    assert tree.owner_of_overlap(b"a/+/c") == "two"
    tree.remove(b"a/b/c")
    assert tree.owner_of_overlap(b"#") == ""


def test_the_owner_that_is_ignored_does_not_hide_others() -> None:
    tree = FilterTree()
    tree.add(b"a/b", "one")
    tree.add(b"a/c", "two")
    assert tree.owner_of_overlap(b"a/#", "one") == "two"
    assert tree.owner_of_overlap(b"a/+", "one") == "two"
    tree.add(b"d/#", "one")
    tree.add(b"+/e/f", "two")
    assert tree.owner_of_overlap(b"d/e/f", "one") == "two"


def test_forms() -> None:
    assert namespace_prefix("default") == b""
    assert namespace_prefix("acme") == b"$ns/acme/"
    assert internal_filter("acme", "é/#") == "$ns/acme/é/#".encode()
    assert user_filter("acme", "$ns/acme/é/#".encode()) == "é/#"
    assert user_filter("default", b"a/+") == "a/+"
