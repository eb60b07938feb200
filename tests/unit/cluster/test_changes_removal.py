from __future__ import annotations

import pytest

from flockmq.cluster.commands import CONFLICT, NOT_FOUND, NodeStateChanged, RemoveNode, ReplicasAre, SetTarget
from flockmq.cluster.model import DEAD, LEFT
from state_cases import Machine


def test_a_node_that_is_alive_or_unknown_is_not_removed() -> None:
    machine = Machine(3)
    assert "cluster leave" in machine.refused(RemoveNode(2), CONFLICT)
    machine.refused(RemoveNode(9), NOT_FOUND)


def test_a_dead_node_is_taken_out_where_others_hold_what_it_held() -> None:
    machine = Machine(3)
    machine.topic("plant", shards=2)
    machine.done(NodeStateChanged(3, DEAD))
    machine.done(RemoveNode(3))
    assert machine.state.nodes[3].state == LEFT
    machine.done(RemoveNode(3))


@pytest.mark.parametrize(("factor", "dead"), [(1, (3,)), (2, (3,)), (3, (2, 3))])
def test_the_last_majority_of_a_partition_is_given_up_only_when_that_is_accepted(
    factor: int, dead: tuple[int, ...]
) -> None:
    machine = Machine(3)
    kept = machine.topic("kept", replication_factor=1)
    topic = machine.topic("plant", replication_factor=factor)
    for group, nodes in ((kept.partitions[0].group, (1,)), (topic.partitions[0].group, (1, 2, 3)[3 - factor :])):
        machine.done(SetTarget(group, nodes))
        machine.done(ReplicasAre(group, nodes, 1))
    for node in dead:
        machine.done(NodeStateChanged(node, DEAD))
    said = machine.refused(RemoveNode(3), CONFLICT)
    assert "plant/0" in said
    assert "--accept-data-loss" in said
    next_group = machine.state.next_group
    machine.done(RemoveNode(3, accept_data_loss=True))
    [partition] = machine.state.topic("default", "plant").partitions
    alive = {node for node in (1, 2, 3) if node not in dead}
    assert partition.group == next_group == machine.state.next_group - 1
    assert set(partition.first) == set(partition.target) <= alive
    assert partition.voters_to_begin(partition.preferred) == partition.first
    assert machine.state.topic("default", "plant").changed_index == machine.state.index
    assert machine.state.topic("default", "kept").partitions[0].group == kept.partitions[0].group
    assert topic.partitions[0].group not in machine.state.places


def test_without_a_core_node_nothing_begins_anew() -> None:
    machine = Machine(1)
    machine.topic("plant")
    machine.done(NodeStateChanged(1, DEAD))
    machine.refused(RemoveNode(1, accept_data_loss=True), CONFLICT)
