from __future__ import annotations

import pytest

from flockmq.security.filters import Filter, covers, overlaps, parse_filter, parse_name


@pytest.mark.parametrize(
    ("rule", "wanted", "covered", "overlapping"),
    [
        ("a/b", "a/b", True, True),
        ("a/b", "a/c", False, False),
        ("a/+", "a/b", True, True),
        ("a/b", "a/+", False, True),
        ("a/+", "a/+", True, True),
        ("a/+", "a/#", False, True),
        ("a/#", "a/+", True, True),
        ("a/#", "a", True, True),  # also the parent [MQTT-4.7.1-2]
        ("a", "a/#", False, True),
        ("a/+/#", "a/#", False, True),
        ("a/#", "a/+/#", True, True),
        ("+/b", "a/#", False, True),
        ("#", "a/#", True, True),
        ("#", "+", True, True),
        ("+/#", "#", True, True),  # no name has zero levels
        ("#", "+/#", True, True),
        ("+/+/#", "#", False, True),
        ("/+/#", "/#", True, True),  # no name is empty
        ("/#", "+", False, False),
        ("#", "$SYS/x", False, False),
        ("#", "$SYS/#", False, False),
        ("+/x", "$SYS/x", False, False),
        ("$SYS/#", "#", False, False),
        ("$SYS/#", "+/x", False, False),
        ("$SYS/#", "$SYS/x", True, True),
        ("$SYS/+", "$SYS/#", False, True),
        ("a/", "a", False, False),
        ("a/+", "a/", True, True),
        ("a", "a/b", False, False),
        ("/+", "+/+", False, True),
        ("a/+/c", "a/b/#", False, True),
        ("a/+/c", "a/b", False, False),
    ],
)
def test_covering_and_overlapping(rule: str, wanted: str, covered: bool, overlapping: bool) -> None:
    first, second = parse_filter(rule.encode()), parse_filter(wanted.encode())
    assert covers(first, second) is covered
    assert overlaps(first, second) is overlapping
    assert overlaps(second, first) is overlapping


def test_a_literal_that_looks_like_a_wildcard_is_none() -> None:
    literal = Filter((b"a", b"+"))
    assert not covers(literal, parse_filter(b"a/b"))
    assert not covers(literal, parse_filter(b"a/+"))
    assert covers(parse_filter(b"a/+"), literal)
    assert parse_name(b"a/+") == literal
