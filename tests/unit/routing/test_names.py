from __future__ import annotations

import pytest

from flockmq.routing.names import Named, NameTree


def tree_of(*names: bytes) -> NameTree[Named]:
    tree: NameTree[Named] = NameTree()
    for name in names:
        tree.set(Named(name))
    return tree


def found(tree: NameTree[Named], topic_filter: bytes) -> list[bytes]:
    return sorted(value.topic for value in tree.match(topic_filter))


NAMES = (b"a", b"a/b", b"a/b/c", b"a/d/c", b"x/y/z", b"/", b"/a", b"$SYS/up", b"$SYS")


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        (b"a", [b"a"]),
        (b"a/b", [b"a/b"]),
        (b"a/+", [b"a/b"]),
        (b"a/+/c", [b"a/b/c", b"a/d/c"]),
        (b"a/#", [b"a", b"a/b", b"a/b/c", b"a/d/c"]),
        (b"+", [b"a"]),
        (b"+/+", [b"/", b"/a", b"a/b"]),
        (b"+/y/#", [b"x/y/z"]),
        (b"x/#", [b"x/y/z"]),
        (b"x/y/z/#", [b"x/y/z"]),
        (b"x/y/z/+", []),
        (b"#", [b"/", b"/a", b"a", b"a/b", b"a/b/c", b"a/d/c", b"x/y/z"]),
        (b"$SYS/#", [b"$SYS", b"$SYS/up"]),
        (b"+/up", []),
        (b"+/#", [b"/", b"/a", b"a", b"a/b", b"a/b/c", b"a/d/c", b"x/y/z"]),
        (b"nothing/#", []),
    ],
)
def test_a_filter_finds_its_names(topic_filter: bytes, expected: list[bytes]) -> None:
    assert found(tree_of(*NAMES), topic_filter) == expected


def test_a_dollar_is_only_special_in_front() -> None:
    tree = tree_of(b"a/$b", b"a/$b/c", b"a/$d", b"$a/b")
    assert found(tree, b"a/+") == [b"a/$b", b"a/$d"]
    assert found(tree, b"+/+/c") == [b"a/$b/c"]
    assert found(tree, b"#") == found(tree, b"+/#") == [b"a/$b", b"a/$b/c", b"a/$d"]


def test_a_value_is_found_under_its_own_name_only() -> None:
    tree = tree_of(b"a/b/c")
    value = tree.get(b"a/b/c")
    assert value is not None
    assert value.topic == b"a/b/c"
    for other in (b"a", b"a/b", b"a/b/c/d", b"a/b/x", b"b"):
        assert tree.get(other) is None


def test_a_name_that_others_go_through_has_no_value_of_its_own() -> None:
    tree = tree_of(b"a/b", b"a/c")
    assert tree.get(b"a") is None
    assert not tree.remove(b"a")
    assert found(tree, b"a/#") == [b"a/b", b"a/c"]


@pytest.mark.parametrize("others", [(), (b"a/c",), (b"a/b/c", b"a/b/d")])
def test_setting_again_replaces(others: tuple[bytes, ...]) -> None:
    tree = tree_of(b"a/b", *others)
    newer = Named(b"a/b")
    tree.set(newer)
    assert tree.get(b"a/b") is newer
    assert tree.count == 1 + len(others)
    assert tree.match(b"a/b") == [newer]


def test_removing_gives_all_branches_back() -> None:
    tree = tree_of(*NAMES)
    for name in NAMES:
        assert tree.remove(name)
        assert not tree.remove(name)
        assert tree.get(name) is None
    assert tree.count == 0
    assert not tree._root.children


def test_a_name_left_alone_needs_no_branch() -> None:
    tree = tree_of(b"a/b/c/d/1", b"a/b/c/d/2")
    tree.remove(b"a/b/c/d/1")
    assert isinstance(tree._root.children[b"a"], Named)
    assert found(tree, b"a/b/c/d/+") == [b"a/b/c/d/2"]


def test_a_walk_stays_in_the_branches_that_can_match() -> None:
    tree = tree_of(*[b"%d/%d" % (first, second) for first in range(100) for second in range(100)])
    assert len(tree.match(b"7/#")) == 100
    assert tree.steps < 300
    assert tree.match(b"7/7")[0].topic == b"7/7"
    assert tree.steps < 10


def test_a_walk_gives_up_when_it_gets_too_long() -> None:
    tree = tree_of(*[b"%d/%d" % (first, second) for first in range(100) for second in range(100)])
    for topic_filter in (b"#", b"+/#", b"+/+", b"+/x"):
        assert tree.match_within(topic_filter, 99) is None
        assert tree.match_within(topic_filter, 100_000) is not None
    assert tree.match_within(b"7/7", 99) is not None


def test_clearing_forgets_all() -> None:
    tree = tree_of(*NAMES)
    tree.clear()
    assert tree.count == 0
    assert tree.match(b"#") == []
    assert tree.get(b"a") is None


def test_the_deepest_names() -> None:
    deep = b"/".join([b"x"] * 127)
    tree = tree_of(deep + b"/1", deep + b"/2", deep)
    assert found(tree, b"/".join([b"+"] * 127) + b"/#") == [deep, deep + b"/1", deep + b"/2"]
    assert tree.remove(deep + b"/1")
    assert found(tree, b"#") == [deep, deep + b"/2"]
