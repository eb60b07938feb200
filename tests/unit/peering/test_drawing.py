from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.peering.drawing import draw_routes, draw_table, draw_trie
from routing_cases import FILTER

DRAWN = r"""
        a
    /   |   \
b   long-name   +
|       |       |
#       +       c

  +
 / \
x   y

#
"""


def test_levels_stand_below_each_other() -> None:
    filters = ["a/+/c", "a/b/#", "a/long-name/+", "+/x", "+/y", "#", "plain/name"]
    assert draw_trie(filters) == DRAWN.strip("\n").splitlines()


def test_a_wide_trie_becomes_an_outline() -> None:
    assert draw_trie(["a/+", "a/b/#", "/+"], width_max=3) == ["(empty)", "  +", "a", "  b", "    #", "  +"]


def test_without_wildcards_there_is_only_a_table() -> None:
    assert draw_trie(["a", "b/c"]) == []
    assert draw_routes([("a", ["n1"]), ("b/c", ["n1", "n2"])]) == [
        "-----------------",
        "| a   -> n1     |",
        "| b/c -> n1, n2 |",
        "-----------------",
    ]
    assert draw_routes([]) == ["----", "----"]
    assert draw_table([]) == []


@given(st.lists(FILTER, max_size=8))
def test_any_filters_can_be_drawn(filters: list[bytes]) -> None:
    names = [topic_filter.decode() for topic_filter in filters]
    lines = draw_routes([(name, ["n1"]) for name in names])
    assert len({len(line) for line in lines}) == 1, "the frame is closed"
    levels = {level for name in names if "+" in name or "#" in name for level in name.split("/") if level}
    text = "\n".join(draw_trie(names))
    assert all(level in text for level in levels)
