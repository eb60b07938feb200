"""Advice where leaders and copies should be, by a program or operator that measured; checked against cluster state.

```
 {"format": 1, "made_at": "2026-03-01T12:00:00Z",
  "leaders":  [{"namespace": "default", "topic": "plant", "shard": 0, "group": 7, "to_node": "n2@host", "why": "..."}],
  "replicas": [{"namespace": "default", "topic": "plant", "shard": 1, "group": 8,
                "from_node": "n1@host", "to_node": "n4@host", "why": "..."}]}

 Advice --> plan_advice(state) --> Step: a SetTarget, or nothing to do, or why it can't be done
```
Nodes have their names as in ``flockmq cluster status``. ``group`` may be left out; when it is there, it tells a topic
that was deleted and made anew from the one that was measured. Copies are moved before leaders are, so that advice may
make a node lead that has no copy yet. What advice has placed stays: the evening out by number that goes on by itself
leaves it alone, until ``flockmq cluster rebalance`` without advice or the loss of a node. So name those that should
stay where they are, too: else others may be moved to make up for those that go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct, field

from flockmq.cluster.commands import INVALID, RefusedError, SetTarget
from flockmq.cluster.model import ALIVE, CORE, DEFAULT_NAMESPACE
from flockmq.wording import counted

if TYPE_CHECKING:
    from flockmq.cluster.model import NodeRecord, PartitionRecord
    from flockmq.cluster.tables import Tables

FORMAT: Final = 1
ENTRIES_MAX: Final = 1_000

Outcome = Literal["move", "done", "refused"]
MOVE: Final = "move"
DONE: Final = "done"
REFUSED: Final = "refused"
"""What a step is: something to do, nothing to do, something that can't be done."""

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Why = Annotated[str, Meta(max_length=1_000, description="For people")]
Group = Annotated[int, Meta(ge=0, description="Its Raft group, so that a topic made anew is told apart; 0: any")]


class LeaderAdvice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node that should lead a partition: one of those that have, or will have by this advice, a copy."""

    topic: Name
    shard: Annotated[int, Meta(ge=0)]
    to_node: Annotated[Name, Meta(description="Name of the node, as `n1@host`")]
    namespace: Name = DEFAULT_NAMESPACE
    group: Group = 0
    why: Why = ""


class ReplicaAdvice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A copy of a partition that should be on another node."""

    topic: Name
    shard: Annotated[int, Meta(ge=0)]
    from_node: Annotated[Name, Meta(description="Name of the node that has a copy now")]
    to_node: Annotated[Name, Meta(description="Name of the node that has none")]
    namespace: Name = DEFAULT_NAMESPACE
    group: Group = 0
    why: Why = ""


class Advice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT, description="Always 1")] = FORMAT
    made_at: Annotated[str, Meta(max_length=64, description="When it was measured, RFC 3339")] = ""
    leaders: Annotated[list[LeaderAdvice], Meta(max_length=ENTRIES_MAX)] = field(default_factory=list)
    replicas: Annotated[list[ReplicaAdvice], Meta(max_length=ENTRIES_MAX)] = field(default_factory=list)


class Step:
    """What comes of one entry."""

    def __init__(self, entry: LeaderAdvice | ReplicaAdvice) -> None:
        self.entry = entry
        self.group = 0
        self.from_node = ""
        """The node that leads, or has the copy, now."""
        self.outcome: Outcome = DONE
        self.reason = ""


class Plan:
    """Steps in the order of the advice, copies first, and the commands that carry them out."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.commands: list[SetTarget] = []


def plan_advice(state: Tables, advice: Advice) -> Plan:
    """Check advice against how things are. Raises RefusedError when all of it is of another format."""
    if advice.format != FORMAT:
        raise RefusedError(INVALID, f"This advice has format {advice.format}; this FlockMQ reads {FORMAT}.")
    planner = _Planner(state)
    entries: list[LeaderAdvice | ReplicaAdvice] = [*advice.replicas, *advice.leaders]
    for entry in entries:
        step = Step(entry)
        planner.plan.steps.append(step)
        try:
            planner.take(step)
        except RefusedError as error:
            step.outcome = REFUSED
            step.reason = str(error)
    return planner.finish()


class _Planner:
    """A plan in the making."""

    def __init__(self, state: Tables) -> None:
        self.state = state
        self.plan = Plan()
        self.nodes: dict[str, NodeRecord] = {node.name: node for node in state.nodes.values()}
        self.places: dict[int, tuple[tuple[int, ...], int]] = {}
        """Target and leader of the groups that the advice is about."""
        self.partitions: dict[int, PartitionRecord] = {}

    def take(self, step: Step) -> None:
        """Do what one entry says; RefusedError says why not."""
        entry = step.entry
        partition = self._partition(entry)
        step.group = partition.group
        sink = self._sink(entry)
        target, leader = self.places.get(partition.group, (partition.target, partition.preferred))
        if isinstance(entry, ReplicaAdvice):
            step.from_node = entry.from_node
            source = self.nodes.get(entry.from_node)
            source_id = source.id if source is not None else 0
            if sink.id not in target or source_id in target:
                target = _moved(target, entry, source_id, sink.id)
                leader = sink.id if leader == source_id else leader
                step.outcome = MOVE
        else:
            known = self.state.nodes.get(partition.preferred)
            step.from_node = known.name if known is not None else ""
            if sink.id not in target:
                raise _no(f"{entry.to_node} has no copy of it; only a node that has one can lead.")
            leader = sink.id
            if partition.preferred != sink.id:
                step.outcome = MOVE
        self.partitions[partition.group] = partition
        self.places[partition.group] = (target, leader)

    def finish(self) -> Plan:
        """The commands: also for what stays, which is kept where it is from then on."""
        for group, partition in self.partitions.items():
            target, leader = self.places[group]
            if (target, leader, True) != (partition.target, partition.preferred, partition.is_advised):
                self.plan.commands.append(SetTarget(group, target, leader, is_advised=True))
        return self.plan

    def _partition(self, entry: LeaderAdvice | ReplicaAdvice) -> PartitionRecord:
        topic = self.state.topic(entry.namespace, entry.topic)
        if entry.shard >= len(topic.partitions):
            raise _no(f"{topic.name} has {counted(len(topic.partitions), 'shard')}, counted from 0.")
        partition = topic.partitions[entry.shard]
        if entry.group not in (0, partition.group):
            raise _no("The topic was made anew since this was measured.")
        if partition.is_moving:
            raise _no("It is moving already; try again when it has arrived.")
        return partition

    def _sink(self, entry: LeaderAdvice | ReplicaAdvice) -> NodeRecord:
        node = self.nodes.get(entry.to_node)
        if node is None or node.state != ALIVE or node.role != CORE:
            raise _no(f"There is no core node {entry.to_node} that is alive.")
        return node


def _moved(target: tuple[int, ...], entry: ReplicaAdvice, source: int, sink: int) -> tuple[int, ...]:
    if sink in target:
        raise _no(f"{entry.to_node} has a copy of it already.")
    if source not in target:
        raise _no(f"{entry.from_node} has no copy of it.")
    return tuple([sink if node == source else node for node in target])


def _no(reason: str) -> RefusedError:
    return RefusedError(INVALID, reason)
