from __future__ import annotations

import pytest

from flockmq.routing.entry import FilterEntry
from flockmq.routing.trie import FilterTrie


def trie_of(*filters: bytes) -> FilterTrie:
    trie = FilterTrie()
    for topic_filter in filters:
        trie.add(FilterEntry(topic_filter))
    return trie


def found(trie: FilterTrie, topic: bytes) -> list[bytes]:
    return sorted(entry.topic_filter for entry in trie.match(topic))


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/#", b"sport", True),
        (b"#", b"sport", True),
        (b"#", b"/", True),
        (b"sport/tennis/+", b"sport/tennis/player1", True),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        (b"+/tennis/#", b"sport/tennis", True),
        (b"sport/+/player1", b"sport/tennis/player1", True),
        (b"sport/+/player1", b"sport/tennis/player2", False),
    ],
)
def test_the_examples_of_the_specification(topic_filter: bytes, topic: bytes, expected: bool) -> None:  # 4.7.1
    assert found(trie_of(topic_filter), topic) == ([topic_filter] if expected else [])


def test_leading_wildcards_do_not_match_dollar_topics() -> None:  # [MQTT-4.7.2-1]
    trie = trie_of(b"#", b"+/monitor/Clients", b"+/#", b"$SYS/#", b"$SYS/monitor/+")
    assert found(trie, b"$SYS/monitor/Clients") == [b"$SYS/#", b"$SYS/monitor/+"]
    assert found(trie, b"$SYS") == [b"$SYS/#"]


def test_a_dollar_is_only_special_in_front() -> None:
    assert found(trie_of(b"a/+", b"a/#", b"#"), b"a/$b") == [b"#", b"a/#", b"a/+"]


def test_all_filters_that_match_are_found_once_each() -> None:
    trie = trie_of(b"a/b/+", b"a/+/c", b"+/b/c", b"a/#", b"#", b"+/+/+", b"a/b/c/#", b"a/x/+", b"a/+/d", b"+")
    assert found(trie, b"a/b/c") == sorted([b"a/b/+", b"a/+/c", b"+/b/c", b"a/#", b"#", b"+/+/+", b"a/b/c/#"])


def test_filters_that_share_their_first_levels_stay_apart() -> None:
    trie = trie_of(b"fleet/7/+/state", b"fleet/7/+/speed", b"fleet/7/#", b"fleet/70/+/state")
    assert found(trie, b"fleet/7/x/state") == [b"fleet/7/#", b"fleet/7/+/state"]
    assert found(trie, b"fleet/70/x/state") == [b"fleet/70/+/state"]


def test_removing_gives_all_nodes_back() -> None:
    filters = [b"a/b/+", b"a/+/c", b"+/b/c", b"a/#", b"#", b"+/+/+", b"a/b/c/#", b"a/b/+/d", b"a/b/+/e"]
    trie = trie_of(*filters)
    for topic_filter in filters:
        assert trie.remove(topic_filter)
        assert not trie.remove(topic_filter)
    assert trie.count == 0
    assert trie._root.is_empty()


def test_removing_leaves_the_others() -> None:
    trie = trie_of(b"a/b/+", b"a/b/+/d", b"a/b/#")
    trie.remove(b"a/b/+")
    assert found(trie, b"a/b/x") == [b"a/b/#"]
    assert found(trie, b"a/b/x/d") == [b"a/b/#", b"a/b/+/d"]
    trie.remove(b"a/b/#")
    assert found(trie, b"a/b/x/d") == [b"a/b/+/d"]


@pytest.mark.parametrize("unknown", [b"#", b"+", b"a/#", b"a/+", b"a/b/+/c", b"a/b/+/d/e", b"a/b/+/d/#", b"x/+"])
def test_removing_what_is_not_there_changes_nothing(unknown: bytes) -> None:
    trie = trie_of(b"a/b/+/d", b"a/c/#")
    assert not trie.remove(unknown)
    assert trie.count == 2
    assert found(trie, b"a/b/x/d") == [b"a/b/+/d"]


def test_the_deepest_names_and_filters() -> None:
    plus = b"/".join([b"+"] * 128)
    plain = b"/".join([b"x"] * 127)
    trie = trie_of(plus, plain + b"/+", plain + b"/#")
    assert found(trie, plain + b"/x") == sorted([plus, plain + b"/+", plain + b"/#"])
    assert found(trie, plain) == [plain + b"/#"]
