"""Advice where leaders and copies should be."""

from __future__ import annotations

import msgspec
import pytest

from flockmq.cluster.advice import DONE, MOVE, REFUSED, Advice, LeaderAdvice, Plan, ReplicaAdvice, plan_advice
from flockmq.cluster.commands import NodeStateChanged, Rebalance, RefusedError, SetTarget
from flockmq.cluster.model import DEAD
from flockmq.cluster.placement import next_moves
from state_cases import Machine


def name(machine: Machine, node: int) -> str:
    return machine.state.nodes[node].name


def outcomes(plan: Plan) -> list[str]:
    return [step.outcome for step in plan.steps]


def test_leaders_go_where_they_are_advised_and_stay_there() -> None:
    machine = Machine(3)
    partitions = machine.topic("t", shards=6).partitions
    wanted = name(machine, 1)
    leaders = [LeaderAdvice(topic="t", shard=one.shard, group=one.group, to_node=wanted) for one in partitions]
    plan = plan_advice(machine.state, Advice(leaders=leaders))
    assert sorted(outcomes(plan)) == [DONE] * 2 + [MOVE] * 4
    for command in plan.commands:
        machine.done(command)
    assert {one.preferred for one in machine.state.partitions()} == {1}
    assert next_moves(machine.state) == [], "evening out leaves them alone"
    again = plan_advice(machine.state, Advice(leaders=leaders))
    assert (set(outcomes(again)), again.commands) == ({DONE}, [])
    machine.done(Rebalance(100))
    assert sorted(machine.state.loads.leaders.values()) == [2, 2, 2], "who asks for even numbers gets them"


def test_copies_move_before_leaders() -> None:
    machine = Machine(4)
    [partition] = machine.topic("t", shards=1).partitions
    [outside] = {1, 2, 3, 4} - set(partition.target)
    source = partition.target[0]
    advice = Advice(
        leaders=[LeaderAdvice(topic="t", shard=0, to_node=name(machine, outside))],
        replicas=[ReplicaAdvice(topic="t", shard=0, from_node=name(machine, source), to_node=name(machine, outside))],
    )
    plan = plan_advice(machine.state, advice)
    target = tuple(outside if node == source else node for node in partition.target)
    assert plan.commands == [SetTarget(partition.group, target, outside, is_advised=True)]
    machine.follow(plan.commands)
    assert plan_advice(machine.state, advice).commands == []


def test_what_can_not_be_done_says_why_and_the_rest_is_done() -> None:
    machine = Machine(4)
    partition = machine.topic("t", shards=2).partitions[0]
    [outside] = {1, 2, 3, 4} - set(partition.target)
    here = next(node for node in partition.target if node != partition.preferred)
    machine.done(NodeStateChanged(outside, DEAD))
    advice = Advice(
        leaders=[
            LeaderAdvice(topic="none", shard=0, to_node=name(machine, here)),
            LeaderAdvice(topic="t", shard=9, to_node=name(machine, here)),
            LeaderAdvice(topic="t", shard=0, group=99, to_node=name(machine, here)),
            LeaderAdvice(topic="t", shard=0, to_node="nobody@host"),
            LeaderAdvice(topic="t", shard=0, to_node=name(machine, outside)),
            LeaderAdvice(topic="t", shard=0, to_node=name(machine, here)),
        ],
        replicas=[
            ReplicaAdvice(topic="t", shard=0, from_node=name(machine, partition.preferred), to_node=name(machine, here))
        ],
    )
    plan = plan_advice(machine.state, advice)
    assert outcomes(plan) == [REFUSED] * 6 + [MOVE]
    for step, said in zip(
        plan.steps, ["has a copy", "no topic", "shards", "made anew", "no core node", "no core node"], strict=False
    ):
        assert said in step.reason
    assert plan.commands == [SetTarget(partition.group, partition.target, here, is_advised=True)]


def test_a_node_without_a_copy_can_not_lead() -> None:
    machine = Machine(4)
    partition = machine.topic("t", shards=1).partitions[0]
    [outside] = {1, 2, 3, 4} - set(partition.target)
    plan = plan_advice(
        machine.state, Advice(leaders=[LeaderAdvice(topic="t", shard=0, to_node=name(machine, outside))])
    )
    assert outcomes(plan) == [REFUSED]
    assert plan.commands == []


def test_the_file() -> None:
    text = b'{"format":1,"made_at":"x","leaders":[{"topic":"t","shard":0,"to_node":"a@b","why":"hot"}],"replicas":[]}'
    advice = msgspec.json.decode(text, type=Advice)
    assert advice.leaders == [LeaderAdvice(topic="t", shard=0, to_node="a@b", why="hot")]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"leader":[]}', type=Advice)
    with pytest.raises(RefusedError, match="format 2"):
        plan_advice(Machine(1).state, Advice(format=2))
