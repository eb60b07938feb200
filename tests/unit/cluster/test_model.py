from __future__ import annotations

from flockmq.cluster.checks import SHARDS_MAX
from flockmq.cluster.model import CAPTURE_TOPIC, HIDDEN_TOPICS, SESSIONS_TOPIC, PartitionRecord, is_hidden


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


def test_hidden_topics_have_names_that_no_user_can_give() -> None:
    assert list(HIDDEN_TOPICS) == [SESSIONS_TOPIC, CAPTURE_TOPIC]
    assert all(name.startswith("$") and is_hidden(name) for name in HIDDEN_TOPICS)
    assert not is_hidden("sessions")
    assert not is_hidden("")


def test_shards_of_hidden_topics_are_for_ever() -> None:
    """A client id, or a name, stays in its shard: a change here would look for it elsewhere."""
    assert {name: shape.shards for name, shape in HIDDEN_TOPICS.items()} == {SESSIONS_TOPIC: 4, CAPTURE_TOPIC: 8}
    assert all(shape.shards <= SHARDS_MAX for shape in HIDDEN_TOPICS.values())
