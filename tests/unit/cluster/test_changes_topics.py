from __future__ import annotations

import pytest

from flockmq.cluster.commands import (
    CONFLICT,
    EXISTS,
    INVALID,
    LIMIT,
    NOT_FOUND,
    AcceptLoss,
    AlterNamespace,
    AlterTopic,
    CreateCursor,
    CreateHidden,
    CreateNamespace,
    CreateTopic,
    DeleteCursor,
    DeleteTopic,
    Moves,
    NodeStateChanged,
    Rebalance,
    ReplaceNode,
    ReplicasAre,
    SetSetting,
    SetTarget,
)
from flockmq.cluster.model import (
    BY_PROPERTY,
    CAPTURE_TOPIC,
    DEAD,
    EDGE,
    LEADER,
    SESSIONS_TOPIC,
    CursorRecord,
    PartitionRecord,
    TopicRecord,
)
from flockmq.cluster.placement import next_moves
from state_cases import Machine, spread


def test_a_topic_and_its_partitions() -> None:
    machine = Machine(3)
    topic = machine.topic("orders", shards=3)
    assert topic.filters == (b"orders/#",)
    assert topic.retention_ms == 7 * 24 * 3_600_000
    assert (topic.created_ms, topic.changed_index) == (machine.wall_ms, machine.state.index)
    assert [(partition.group, partition.shard) for partition in topic.partitions] == [(1, 0), (2, 1), (3, 2)]
    assert sorted(partition.preferred for partition in topic.partitions) == [1, 2, 3]
    for partition in topic.partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.replicas == partition.target == partition.founders == partition.first
    assert machine.state.topic_of_group(2) == topic
    assert machine.state.partition(2) == topic.partitions[1]


def test_fewer_nodes_mean_fewer_replicas_and_only_cores_alive_count() -> None:
    machine = Machine(3)
    machine.node(9, role=EDGE)
    machine.done(NodeStateChanged(2, DEAD))
    assert sorted(machine.topic("t").partitions[0].replicas) == [1, 3]
    Machine().refused(CreateTopic("t"), CONFLICT)


@pytest.mark.parametrize(
    "command",
    [
        CreateTopic("a/b"),
        CreateTopic("t", filters=("a/#/b",)),
        CreateTopic("t", filters=("$SYS/#",)),
        CreateTopic("t", filters=("a", "a")),
        CreateTopic("t", shards=0),
        CreateTopic("t", shards=1_025),
        CreateTopic("t", replication_factor=0),
        CreateTopic("t", replication_factor=8),
        CreateTopic("t", retention_ms=-1),
        CreateTopic("t", retention_bytes=2**63),
        CreateTopic("t", ack=3),
        CreateTopic("t", key=3),
        CreateTopic("t", key=BY_PROPERTY),
        CreateTopic("t", key_property="order"),
        CreateTopic("t", exchange="queue"),
    ],
)
def test_topics_that_can_not_be(command: CreateTopic) -> None:
    Machine(1).refused(command, INVALID)


def test_a_name_belongs_to_one_topic() -> None:
    machine = Machine(1)
    machine.done(CreateNamespace("acme"))
    machine.done(CreateTopic("plant", filters=("plant/+/temperature", "plant/all/#")))
    machine.refused(CreateTopic("plant"), EXISTS)
    text = machine.refused(CreateTopic("other", filters=("x", "plant/1/#")), CONFLICT)
    assert "plant/1/#" in text
    assert "plant/+/temperature" in text
    machine.done(CreateTopic("plant", "acme"))
    machine.refused(CreateTopic("other", "acme", ("+/x",)), CONFLICT)
    machine.refused(CreateTopic("other", "nowhere"), NOT_FOUND)
    machine.done(DeleteTopic("plant"))
    machine.done(CreateTopic("other", filters=("#",)))


def test_filters_of_one_topic_may_overlap_and_change() -> None:
    machine = Machine(1)
    machine.done(CreateTopic("t", filters=("a/#", "a/b")))
    machine.done(CreateTopic("u", filters=("c",)))
    machine.done(AlterTopic("t", filters=("a/b", "+/d")))
    machine.refused(AlterTopic("t", filters=("#",)), CONFLICT)
    machine.done(CreateTopic("v", filters=("a/c",)))
    assert machine.state.filters.owner_of_overlap(b"a/b") == "default/t"


def test_shards_are_added_and_never_taken_away() -> None:
    machine = Machine(3)
    before = machine.topic("t", shards=2)
    machine.topic("u")
    after = machine.done(AlterTopic("t", shards=4))
    assert isinstance(after, TopicRecord)
    assert after.partitions[:2] == before.partitions
    assert [(partition.group, partition.shard) for partition in after.partitions[2:]] == [(4, 2), (5, 3)]
    assert after.changed_index == machine.state.index
    machine.refused(AlterTopic("t", shards=3), INVALID)
    machine.refused(AlterTopic("gone"), NOT_FOUND)


def test_what_publishers_need_not_know_is_no_change_to_them() -> None:
    machine = Machine(3)
    before = machine.topic("t")
    after = machine.done(AlterTopic("t", retention_ms=0, retention_bytes=5, replication_factor=1, exchange="direct"))
    assert isinstance(after, TopicRecord)
    assert (after.retention_ms, after.retention_bytes, after.replication_factor) == (0, 5, 1)
    assert after.changed_index == before.changed_index
    assert after.partitions == before.partitions
    version = machine.state.versions.topics
    machine.done(AlterTopic("t"))
    assert machine.state.versions.topics == version
    changed = machine.done(AlterTopic("t", ack=LEADER))
    assert isinstance(changed, TopicRecord)
    assert changed.changed_index == machine.state.index
    machine.refused(AlterTopic("t", key=BY_PROPERTY), INVALID)
    machine.done(AlterTopic("t", key=BY_PROPERTY, key_property="order"))


def test_groups_are_never_used_again() -> None:
    machine = Machine(1)
    machine.topic("t", shards=3)
    machine.done(DeleteTopic("t"))
    assert machine.state.places == {}
    assert machine.state.loads.partitions == 0
    assert [partition.group for partition in machine.topic("t", shards=2).partitions] == [4, 5]
    machine.refused(DeleteTopic("u"), NOT_FOUND)


def test_there_is_an_end_to_partitions() -> None:
    machine = Machine(1)
    machine.done(SetSetting("partitions_max", 5))
    machine.topic("t", shards=4)
    machine.refused(CreateTopic("u", shards=2), LIMIT)
    machine.refused(AlterTopic("t", shards=6), LIMIT)
    machine.topic("u")


def test_a_thousand_topics_are_even() -> None:
    machine = Machine(5)
    for number in range(1_000):
        machine.done(CreateTopic(f"t{number}", filters=(f"site/{number}/#",), shards=3))
    assert spread(machine.state.loads.replicas, [1, 2, 3, 4, 5]) <= 1
    assert spread(machine.state.loads.leaders, [1, 2, 3, 4, 5]) <= 2
    machine.refused(CreateTopic("more", filters=("site/+/x",)), CONFLICT)


def test_cursors() -> None:
    machine = Machine(1)
    machine.topic("t")
    machine.topic("u")
    created = machine.done(CreateCursor("spark", "t"))
    assert created == CursorRecord("default", "spark", "t", False, machine.wall_ms, machine.state.index)
    version = machine.state.versions.cursors
    assert machine.done(CreateCursor("spark", "t")) == created
    assert machine.state.versions.cursors == version
    held = machine.done(CreateCursor("spark", "t", hold=True))
    assert isinstance(held, CursorRecord)
    assert held.hold
    assert machine.done(CreateCursor("spark", "t")) == held, "who only makes sure of it takes no hold away"
    freed = machine.done(CreateCursor("spark", "t", hold=False))
    assert isinstance(freed, CursorRecord)
    assert not freed.hold
    machine.refused(CreateCursor("spark", "u"), EXISTS)
    machine.refused(CreateCursor("other", "gone"), NOT_FOUND)
    machine.refused(CreateCursor("a/b", "t"), INVALID)
    machine.done(CreateCursor("other", "u"))
    machine.done(DeleteTopic("t"))
    assert list(machine.state.cursors) == ["default/other"]
    assert machine.state.versions.cursors == machine.state.index
    before = machine.state.cursors["default/other"].key
    machine.done(DeleteCursor("other"))
    again = machine.done(CreateCursor("other", "u"))
    assert isinstance(again, CursorRecord)
    assert again.key != before, "partitions may still know where the first one stood"
    machine.done(DeleteCursor("other"))
    machine.refused(DeleteCursor("other"), NOT_FOUND)


def test_a_move_from_wish_to_fact() -> None:
    machine = Machine(4)
    partition = machine.topic("t").partitions[0]
    assert partition.replicas == (1, 2, 3)
    wished = machine.done(SetTarget(partition.group, (2, 3, 4)))
    assert isinstance(wished, PartitionRecord)
    assert (wished.replicas, wished.target, wished.preferred) == ((1, 2, 3), (2, 3, 4), 2)
    assert machine.state.moving() == [wished]
    arrived = machine.done(ReplicasAre(partition.group, (2, 3, 4), 17))
    assert isinstance(arrived, PartitionRecord)
    assert (arrived.replicas, arrived.founders, arrived.first, arrived.as_of) == ((2, 3, 4), (2, 3), (1, 2, 3), 17)
    assert machine.state.moving() == []
    machine.refused(ReplicasAre(partition.group, (1, 2, 3), 16), CONFLICT)
    back = machine.done(ReplicasAre(partition.group, (1, 2, 3), 18))
    assert isinstance(back, PartitionRecord)
    assert back.founders == (2, 3), "who left once can not found any more"


def test_a_loss_is_accepted_only_as_it_was_seen() -> None:
    machine = Machine(4)
    group = machine.topic("t").partitions[0].group
    machine.done(ReplicasAre(group, (2, 3, 4), 17))
    machine.refused(AcceptLoss(group, 2, 16), CONFLICT)
    accepted = machine.done(AcceptLoss(group, 2, 17))
    assert isinstance(accepted, PartitionRecord)
    assert accepted.heir == 2
    machine.refused(AcceptLoss(group, 1, 17), INVALID)
    withdrawn = machine.done(AcceptLoss(group, 0, 17))
    assert isinstance(withdrawn, PartitionRecord)
    assert withdrawn.heir == 0


def test_targets_that_can_not_be() -> None:
    machine = Machine(3)
    machine.node(9, role=EDGE)
    group = machine.topic("t").partitions[0].group
    machine.refused(SetTarget(group, ()), INVALID)
    machine.refused(SetTarget(group, (1, 1)), INVALID)
    machine.refused(SetTarget(group, (1, 9)), INVALID)
    machine.refused(SetTarget(group, (1, 2), 3), INVALID)
    machine.refused(SetTarget(group, (1, 77)), NOT_FOUND)
    machine.refused(SetTarget(99, (1,)), NOT_FOUND)
    machine.refused(ReplicasAre(99, (1,)), NOT_FOUND)
    machine.refused(ReplicasAre(group, ()), INVALID)


def test_a_target_that_is_the_present_one_changes_nothing() -> None:
    machine = Machine(3)
    partition = machine.topic("t").partitions[0]
    version = machine.state.versions.topics
    machine.done(SetTarget(partition.group, partition.target, partition.preferred))
    machine.done(ReplicasAre(partition.group, partition.replicas))
    assert machine.state.versions.topics == version


def test_rebalance_goes_in_steps_and_tells_what_is_left() -> None:
    machine = Machine(3)
    machine.topic("t", shards=8)
    machine.node(4)
    assert machine.done(Rebalance(0)) == Moves(0, 6)
    assert machine.done(Rebalance(2)) == Moves(2, 4)
    machine.arrive()
    machine.done(Rebalance(10))
    machine.arrive()
    assert machine.done(Rebalance(10)) == Moves(0, 0)
    assert spread(machine.state.loads.replicas, [1, 2, 3, 4]) == 0
    assert spread(machine.state.loads.leaders, [1, 2, 3, 4]) == 0
    machine.refused(Rebalance(-1), INVALID)


def test_there_is_an_end_to_topics_and_cursors() -> None:
    machine = Machine(1)
    topic = machine.topic("t")
    machine.state.topics.update({f"default/t{number}": topic for number in range(49_998)})
    machine.topic("last")
    assert "50000" in machine.refused(CreateTopic("more"), LIMIT)
    cursor = CursorRecord("default", "c", "t")
    machine.state.cursors.update({f"default/c{number}": cursor for number in range(49_999)})
    machine.done(CreateCursor("last", "t"))
    machine.refused(CreateCursor("more", "t"), LIMIT)
    machine.done(CreateCursor("last", "t", hold=True))


def hidden(machine: Machine, name: str) -> TopicRecord:
    record = machine.done(CreateHidden(name))
    assert isinstance(record, TopicRecord)
    return record


def test_a_hidden_topic_is_made_once() -> None:
    machine = Machine(3)
    sessions = hidden(machine, SESSIONS_TOPIC)
    assert (sessions.namespace, sessions.filters, sessions.shards) == ("default", (), 4)
    assert (sessions.retention_ms, sessions.retention_bytes) == (0, 64 * 1_048_576)
    assert [partition.group for partition in sessions.partitions] == [1, 2, 3, 4]
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in sessions.partitions)
    version = machine.state.versions.topics
    assert hidden(machine, SESSIONS_TOPIC) == sessions
    assert machine.state.versions.topics == version
    capture = hidden(machine, CAPTURE_TOPIC)
    assert (capture.shards, capture.retention_ms) == (8, 7 * 24 * 3_600_000)
    assert capture.retention_bytes == 1_024 * 1_048_576
    machine.done(CreateTopic("all", filters=("#",)))


def test_hidden_topics_that_can_not_be() -> None:
    machine = Machine(1)
    assert SESSIONS_TOPIC in machine.refused(CreateHidden("orders"), INVALID)
    Machine().refused(CreateHidden(SESSIONS_TOPIC), CONFLICT)
    machine.done(SetSetting("partitions_max", 3))
    machine.refused(CreateHidden(SESSIONS_TOPIC), LIMIT)


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("name", [SESSIONS_TOPIC, CAPTURE_TOPIC])
def test_users_can_not_touch_a_hidden_topic(name: str, exists: bool) -> None:
    machine = Machine(1)
    if exists:
        machine.done(CreateHidden(name))
    machine.refused(CreateTopic(name), INVALID)
    for command in (AlterTopic(name, shards=20), DeleteTopic(name), CreateCursor("spark", name)):
        assert "the cluster's own" in machine.refused(command, INVALID)


def test_operators_say_how_much_is_captured_and_no_more() -> None:
    machine = Machine(3)
    machine.done(CreateHidden(CAPTURE_TOPIC))
    altered = machine.done(AlterTopic(CAPTURE_TOPIC, retention_ms=1_000, retention_bytes=5_000_000))
    assert isinstance(altered, TopicRecord)
    assert (altered.retention_ms, altered.retention_bytes) == (1_000, 5_000_000)
    machine.refused(AlterTopic(CAPTURE_TOPIC, retention_ms=1_000, shards=9), INVALID)


def test_hidden_topics_count_for_no_limit_of_their_namespace() -> None:
    machine = Machine(1)
    machine.done(AlterNamespace("default", topics_max=1))
    machine.topic("t")
    machine.done(CreateHidden(SESSIONS_TOPIC))
    machine.refused(CreateTopic("u"), LIMIT)
    machine.done(DeleteTopic("t"))
    machine.topic("u")
    assert [topic.name for topic in machine.state.user_topics()] == ["u"]
    assert machine.state.user_topic_count() == 1


def test_hidden_topics_leave_room_for_as_many_topics_as_before() -> None:
    machine = Machine(1)
    topic = machine.topic("t")
    machine.done(CreateHidden(SESSIONS_TOPIC))
    machine.state.topics.update({f"default/t{number}": topic for number in range(49_998)})
    machine.topic("last")
    machine.refused(CreateTopic("more"), LIMIT)
    machine.done(CreateHidden(CAPTURE_TOPIC))


def test_a_hidden_topic_grows_and_spreads_with_the_cores() -> None:
    machine = Machine(1)
    assert [partition.replicas for partition in hidden(machine, SESSIONS_TOPIC).partitions] == [(1,)] * 4
    for node in (2, 3, 4):
        machine.node(node)
    while moves := next_moves(machine.state):
        machine.follow(moves)
    assert all(len(partition.replicas) == 3 for partition in machine.state.partitions())
    assert spread(machine.state.loads.replicas, [1, 2, 3, 4]) == 0
    assert spread(machine.state.loads.leaders, [1, 2, 3, 4]) == 0
    assert machine.done(Rebalance(10)) == Moves(0, 0)


def test_a_partition_of_a_hidden_topic_moves_and_is_replaced_as_any() -> None:
    machine = Machine(3)
    group = hidden(machine, SESSIONS_TOPIC).partitions[1].group
    machine.node(4)
    machine.done(SetTarget(group, (2, 3, 4)))
    machine.done(ReplicasAre(group, (2, 3, 4), 17))
    moved = machine.state.topics["default/$sessions"].partitions[1]
    assert (moved.replicas, moved.founders, moved.as_of) == ((2, 3, 4), (2, 3), 17)
    machine.done(NodeStateChanged(4, DEAD))
    machine.node(5)
    machine.done(ReplaceNode(4, 5))
    assert sorted(machine.state.partition(group).target) == [2, 3, 5]
