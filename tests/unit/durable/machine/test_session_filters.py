"""The set of filters that sessions wait with, and what has changed in it."""

from __future__ import annotations

from flockmq.durable.machine.session_filters import SessionFilters


def test_only_changes_of_the_set_count() -> None:
    filters = SessionFilters()
    filters.add(b"a", 1)
    filters.add(b"a", 2)
    filters.remove(b"a", 3)
    assert (filters.counts, filters.version) == ({b"a": 1}, 1)
    filters.remove(b"a", 4)
    assert (filters.counts, filters.version) == ({}, 4)
    assert filters.changes_since(0) == [(b"a", True), (b"a", False)]
    assert filters.changes_since(1) == [(b"a", False)]
    assert filters.changes_since(4) == []
    assert filters.changes_since(9) == []


def test_after_a_checkpoint_older_versions_need_the_whole_set() -> None:
    filters = SessionFilters()
    filters.add(b"a", 10)
    filters.restart(10)
    assert filters.version == 10
    assert filters.changes_since(9) is None
    assert filters.changes_since(10) == []
    filters.add(b"b", 11)
    assert filters.changes_since(10) == [(b"b", True)]


def test_changes_are_bounded() -> None:
    filters = SessionFilters()
    filters.changes_max = 3
    for index, topic_filter in ((1, b"a"), (2, b"b"), (2, b"c"), (3, b"d"), (4, b"e")):
        filters.add(topic_filter, index)
    assert filters.changes_since(1) is None, "one of the two changes of entry 2 is gone"
    assert filters.changes_since(2) == [(b"d", True), (b"e", True)]
