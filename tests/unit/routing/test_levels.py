from __future__ import annotations

import pytest

from flockmq.routing.levels import leaf_matches, levels_match


@pytest.mark.parametrize(
    ("topic_filter", "name", "start", "expected"),
    [
        (b"a/b", b"a/b", 0, True),
        (b"a/b", b"a/c", 0, False),
        (b"a/b", b"a", 0, False),
        (b"a", b"a/b", 0, False),
        (b"a/+", b"a/b", 0, True),
        (b"a/+", b"a", 0, False),
        (b"a/+", b"a/", 0, True),
        (b"a/#", b"a", 0, True),
        (b"a/#", b"a/b/c", 0, True),
        (b"#", b"a", 0, True),
        (b"x/b", b"a/b", 1, True),
        (b"x/y/+", b"a/b/c", 2, True),
        (b"x", b"a", 1, True),
        (b"x", b"a/b", 1, False),
        (b"x/#", b"a", 1, True),
        (b"x/#", b"a/b/c", 1, True),
        (b"x/y/#", b"a/b/c", 1, False),
        (b"+/+/c", b"a/b/c", 1, True),
        (b"+/+/c", b"a/b/ac", 1, False),
        (b"+/b/c", b"a/x/c", 1, False),
    ],
)
def test_only_levels_from_start_on_are_compared(topic_filter: bytes, name: bytes, start: int, expected: bool) -> None:
    assert levels_match(topic_filter.split(b"/"), name.split(b"/"), start) is expected
    assert leaf_matches(topic_filter.split(b"/"), name, start) is expected
