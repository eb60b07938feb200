"""Which names are captured: those that a filter of any shard matches, whatever came and went before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.routing.capture import Capture
from routing_cases import FILTER, NAME

SHARDS = 3
shards = st.integers(0, SHARDS - 1)
puts = st.tuples(st.just("put"), shards, FILTER)
removes = st.tuples(st.just("remove"), shards, FILTER)
replaces = st.tuples(st.just("replace"), shards, st.sets(FILTER, max_size=4))


def is_match(topic_filter: bytes, topic: bytes) -> bool:
    """As the specification says it, level by level."""
    levels, names = topic_filter.split(b"/"), topic.split(b"/")
    if topic.startswith(b"$") and levels[0] in (b"#", b"+"):
        return False
    for place, level in enumerate(levels):
        if level == b"#":
            return True
        if place >= len(names) or level not in (b"+", names[place]):
            return False
    return len(levels) == len(names)


@given(st.lists(st.one_of(puts, removes, replaces), max_size=25), st.lists(NAME, min_size=1, max_size=8))
def test_capture_equals_brute_force(
    steps: list[tuple[str, int, bytes] | tuple[str, int, set[bytes]]], names: list[bytes]
) -> None:
    capture = Capture()
    model: list[set[bytes]] = [set() for _ in range(SHARDS)]
    for what, shard, value in steps:
        before = set().union(*model)
        if isinstance(value, set):
            model[shard] = set(value)
            told = {*capture.put_all(shard, sorted(value)), *capture.remove_all(shard, capture.differing(shard, value))}
        elif what == "put":
            model[shard].add(value)
            told = {value} if capture.put(shard, value) else set()
        else:
            model[shard].discard(value)
            told = {value} if capture.remove(shard, value) else set()
        assert told == before ^ set().union(*model), "exactly the filters that came or went are told"
    filters = set().union(*model)
    assert capture.filters() == sorted(filters)
    for name in names:
        assert capture.matches(name, name.split(b"/")) == any(is_match(one, name) for one in filters)
