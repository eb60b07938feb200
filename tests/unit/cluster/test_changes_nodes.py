from __future__ import annotations

import pytest

from flockmq.cluster.commands import (
    CONFLICT,
    INVALID,
    LIMIT,
    NOT_FOUND,
    DeleteSetting,
    ForgetNode,
    NodeSeen,
    NodeStateChanged,
    ReplaceNode,
    ReplicasAre,
    SetClusterId,
    SetSetting,
)
from flockmq.cluster.model import ALIVE, DEAD, EDGE, LEFT, NodeRecord
from state_cases import Machine


def test_the_cluster_id_is_set_once() -> None:
    machine = Machine()
    machine.done(SetClusterId(2**64 - 1))
    machine.done(SetClusterId(2**64 - 1))
    assert machine.state.cluster_id == 2**64 - 1
    assert "ffffffffffffffff" in machine.refused(SetClusterId(5), CONFLICT)
    machine.refused(SetClusterId(0), INVALID)


def test_a_node_is_added_changed_and_back_again() -> None:
    machine = Machine()
    machine.node(7)
    added = machine.state.nodes[7]
    assert (added.state, added.since_ms, added.port) == (ALIVE, machine.wall_ms, 16_007)
    machine.done(NodeSeen(7, "n7@host", "elsewhere", 16_007, "http://elsewhere:18083", zone="a", version="0.2"))
    moved = machine.state.nodes[7]
    assert (moved.host, moved.api, moved.zone, moved.version) == ("elsewhere", "http://elsewhere:18083", "a", "0.2")
    assert moved.since_ms == added.since_ms, "it was alive all the time"

    dead = machine.done(NodeStateChanged(7, DEAD))
    assert isinstance(dead, NodeRecord)
    assert (dead.state, dead.since_ms) == (DEAD, machine.wall_ms)
    machine.node(7)
    assert machine.state.nodes[7].state == ALIVE
    assert machine.state.nodes[7].since_ms == machine.wall_ms


def test_news_that_is_none_changes_no_version() -> None:
    machine = Machine(1)
    version = machine.state.versions.nodes
    machine.node(1)
    machine.done(NodeStateChanged(1, ALIVE))
    assert machine.state.versions.nodes == version
    machine.done(NodeStateChanged(1, LEFT))
    assert machine.state.versions.nodes == machine.state.index


@pytest.mark.parametrize(
    "command",
    [
        NodeSeen(0, "n@h", "h", 1),
        NodeSeen(1, "", "h", 1),
        NodeSeen(1, "n@h", "", 1),
        NodeSeen(1, "n@h", "h", 65_536),
        NodeSeen(1, "n@h", "h", 1, role=2),
        NodeSeen(1, "n\n@h", "h", 1),
        NodeSeen(1, "n@h", "h", 1, zone="z" * 256),
    ],
)
def test_details_that_no_node_has(command: NodeSeen) -> None:
    Machine().refused(command, INVALID)


def test_two_nodes_alive_can_not_share_a_name() -> None:
    machine = Machine()
    machine.node(1, name="n@h")
    assert "--name" in machine.refused(NodeSeen(2, "n@h", "h", 1), CONFLICT)
    machine.done(NodeStateChanged(1, DEAD))
    machine.node(2, name="n@h")


def test_a_state_that_does_not_exist_and_a_node_that_is_not_there() -> None:
    machine = Machine(1)
    machine.refused(NodeStateChanged(1, 3), INVALID)
    machine.refused(NodeStateChanged(9, DEAD), NOT_FOUND)
    machine.refused(ForgetNode(9), NOT_FOUND)


def test_a_node_is_forgotten_when_nothing_is_kept_on_it() -> None:
    machine = Machine(3)
    partition = machine.topic("t").partitions[0]
    machine.refused(ForgetNode(3), CONFLICT)
    machine.done(NodeStateChanged(3, DEAD))
    assert "1 partitions" in machine.refused(ForgetNode(3), CONFLICT)
    machine.node(4)
    machine.done(ReplaceNode(3, 4))
    machine.refused(ForgetNode(3), CONFLICT)
    machine.done(ReplicasAre(partition.group, (1, 2, 4), 1))
    machine.done(ForgetNode(3))
    assert list(machine.state.nodes) == [1, 2, 4]
    assert machine.state.partition(partition.group).founders == (1, 2)


def test_a_replacement_takes_what_the_node_had() -> None:
    machine = Machine(3)
    topic = machine.topic("t", shards=6)
    led = [partition.group for partition in topic.partitions if partition.preferred == 3]
    machine.node(4)
    machine.refused(ReplaceNode(3, 4), CONFLICT)
    machine.done(NodeStateChanged(3, DEAD))
    machine.done(ReplaceNode(3, 4))
    assert [partition.group for partition in machine.state.partitions() if partition.preferred == 4] == led
    assert len(machine.state.moving()) == 6
    assert machine.state.loads.replicas[3] == 0


def test_who_can_not_replace_a_node() -> None:
    machine = Machine(2)
    machine.node(5, role=EDGE)
    machine.done(NodeStateChanged(1, DEAD))
    machine.refused(ReplaceNode(1, 5), CONFLICT)
    machine.refused(ReplaceNode(1, 1), CONFLICT)
    machine.refused(ReplaceNode(1, 9), NOT_FOUND)


def test_a_replacement_that_is_a_replica_already_stays_one() -> None:
    machine = Machine(2)
    machine.topic("t")
    machine.done(NodeStateChanged(2, DEAD))
    machine.done(ReplaceNode(2, 1))
    assert machine.state.partitions()[0].target == (1,)


def test_there_is_an_end_to_nodes() -> None:
    machine = Machine(1_000)
    machine.refused(NodeSeen(1_001, "more@h", "h", 1), LIMIT)
    machine.node(5)


def test_settings() -> None:
    machine = Machine()
    machine.done(SetSetting("a.b", "text"))
    machine.done(SetSetting("on", True))
    machine.done(SetSetting("partitions_max", 3))
    assert machine.state.settings == {"a.b": "text", "on": True, "partitions_max": 3}
    assert machine.state.partitions_max() == 3
    machine.done(DeleteSetting("a.b"))
    assert list(machine.state.settings) == ["on", "partitions_max"]
    machine.refused(DeleteSetting("a.b"), NOT_FOUND)
    machine.refused(SetSetting("a/b", 1), INVALID)
    machine.refused(SetSetting("long", "x" * 4_097), INVALID)
    machine.refused(SetSetting("big", 2**63), INVALID)
    for value in (0, 1_000_001, "3", True):
        machine.refused(SetSetting("partitions_max", value), INVALID)


def test_there_is_an_end_to_settings() -> None:
    machine = Machine()
    for number in range(1_000):
        machine.done(SetSetting(f"s{number}", number))
    machine.refused(SetSetting("more", 1), LIMIT)
    machine.done(SetSetting("s1", 5))


def test_a_node_with_another_store_founds_nothing_that_there_is() -> None:
    machine = Machine()
    for node in (1, 2, 3):
        machine.done(NodeSeen(node, f"n{node}@h", "h", 1, store=10 + node))
    machine.topic("t", shards=2)
    machine.done(NodeSeen(2, "n2@h", "h", 1, store=99))
    assert machine.state.versions.topics == machine.state.index
    for partition in machine.state.partitions():
        assert 2 in partition.first
        assert 2 in partition.replicas
        assert partition.voters_to_begin(2) is None
        assert partition.voters_to_begin(1) == partition.first
    later = machine.topic("later").partitions[0]
    assert later.voters_to_begin(2) == later.first
    assert machine.state.nodes[2].retired == (12,)


def test_a_store_that_is_not_told_changes_nothing() -> None:
    machine = Machine(1)
    assert machine.state.nodes[1].store == 0
    machine.topic("t")
    machine.done(NodeSeen(1, "n1@host", "host", 16_001, store=11))
    assert machine.state.partitions()[0].founders == (1,), "its first store is no other one"
    machine.node(1)
    assert machine.state.nodes[1].store == 11


def test_a_store_that_was_replaced_does_not_come_back() -> None:
    machine = Machine()
    machine.done(NodeSeen(1, "n1@h", "h", 1, store=11))
    machine.done(NodeSeen(1, "n1@h", "h", 1, store=12))
    assert "Move that store aside" in machine.refused(NodeSeen(1, "n1@h", "h", 1, store=11), CONFLICT)
