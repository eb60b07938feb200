"""A cluster state that tests talk to in commands."""

from __future__ import annotations

from flockmq.cluster.commands import (
    Command,
    CreateTopic,
    NodeSeen,
    ReplicasAre,
    Result,
    SetTarget,
    Value,
    encode_envelope,
)
from flockmq.cluster.model import CORE, TopicRecord
from flockmq.cluster.state import ClusterState


class Machine:
    """Applies commands as the log would; wall time moves on by a second each."""

    def __init__(self, nodes: int = 0, zones: tuple[str, ...] = ("",)) -> None:
        self.state = ClusterState()
        self.wall_ms = 1_000_000
        for node in range(1, nodes + 1):
            self.node(node, zone=zones[node % len(zones)])

    def apply(self, command: Command) -> Result:
        self.wall_ms += 1_000
        return self.state.apply(encode_envelope(1, 1, self.state.index, self.wall_ms, command))

    def done(self, command: Command) -> Value | None:
        result = self.apply(command)
        assert result.ok, result.error
        assert not result.error
        assert not result.code
        return result.value

    def refused(self, command: Command, code: str) -> str:
        """What the refusal says; nothing has changed but the index."""
        before = self.state.encode()
        index = self.state.index
        result = self.apply(command)
        assert not result.ok
        assert result.code == code
        assert result.value is None
        assert result.error.endswith(".")
        assert self.state.index == index + 1
        self.state.index = index
        assert self.state.encode() == before
        self.state.index = index + 1
        return result.error

    def node(self, node: int, *, name: str = "", zone: str = "", role: int = CORE) -> None:
        self.done(NodeSeen(node, name or f"n{node}@host", "host", 16_000 + node % 1_000, role=role, zone=zone))

    def topic(self, name: str, shards: int = 1, replication_factor: int = 3) -> TopicRecord:
        value = self.done(CreateTopic(name, shards=shards, replication_factor=replication_factor))
        assert isinstance(value, TopicRecord)
        return value

    def follow(self, moves: list[SetTarget]) -> None:
        """Carry plans out, as partition leaders do."""
        for move in moves:
            self.done(move)
        self.arrive()

    def arrive(self) -> None:
        for partition in list(self.state.moving()):
            self.done(ReplicasAre(partition.group, partition.target, partition.as_of + 1))


def spread(counts: dict[int, int], nodes: list[int]) -> int:
    """The difference between who has most and who has least."""
    values = [counts.get(node, 0) for node in nodes]
    return max(values) - min(values)
