from __future__ import annotations

from flockmq.cluster.model import PartitionRecord


def test_a_partition_moves_until_its_voters_are_the_wanted_ones() -> None:
    still = PartitionRecord(1, 0, (1, 2, 3), (3, 2, 1), (1, 2, 3), 1, (1, 2, 3))
    assert not still.is_moving
    assert still.members() == (1, 2, 3)
    moving = PartitionRecord(1, 0, (1, 2, 3), (4, 2, 1), (1, 2, 3), 1, (1, 2, 3))
    assert moving.is_moving
    assert moving.members() == (1, 2, 3, 4)


def test_only_founders_begin_a_log_and_all_with_the_same_voters() -> None:
    partition = PartitionRecord(1, 0, (2, 3, 4), (2, 3, 4), (2, 3), 2, (1, 2, 3))
    assert partition.voters_to_begin(2) == (1, 2, 3)
    assert partition.voters_to_begin(1) is None
    assert partition.voters_to_begin(4) is None
