from __future__ import annotations

from flockmq.raft.replay import ReplayBound


def test_nothing_is_due_within_the_bound() -> None:
    bound = ReplayBound(100)
    bound.applied(1, 60)
    bound.applied(2, 40)
    assert bound.due(8) == []


def test_the_groups_that_bring_most_come_first_and_no_more_than_needed() -> None:
    bound = ReplayBound(100)
    for group, size in ((1, 30), (2, 70), (3, 50), (4, 10)):
        bound.applied(group, size)
    assert bound.due(8) == [2]
    bound.applied(4, 20)
    assert bound.due(8) == [2, 3]
    assert bound.due(1) == [2]


def test_what_is_being_saved_is_not_due_again() -> None:
    bound = ReplayBound(100)
    bound.applied(1, 150)
    assert bound.due(8) == [1]
    bound.begun(1)
    assert bound.saving == [1]
    bound.applied(1, 40)
    assert bound.due(8) == [], "40 are left once that is saved"
    bound.applied(2, 80)
    assert bound.due(8) == [2]
    assert bound.due(1) == [], "one at a time"
    bound.saved(1)
    assert bound.bytes == 120
    assert bound.saving == []
    assert bound.due(8) == [2]


def test_a_checkpoint_of_another_node_leaves_nothing_to_apply_again() -> None:
    bound = ReplayBound(100)
    bound.applied(1, 150)
    bound.begun(1)
    bound.installed(1)
    assert (bound.bytes, bound.saving, bound.due(8)) == (0, [], [])
    bound.saved(1)
    assert bound.bytes == 0
