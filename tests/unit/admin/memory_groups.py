"""Consumer groups without nodes, for tests of what the API does: records of the memory logs, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flockmq.admin.durable_records import batch_views, records_of
from flockmq.admin.group_port import GroupFigures
from flockmq.cluster.groups import ConsumerGroup
from flockmq.cluster.model import TopicRecord
from flockmq.cluster.selection import Selection
from flockmq.durable.groups.fetching import SENTENCES
from flockmq.durable.groups.messages import LATER
from flockmq.durable.groups.port import Fetched, Holder, PartitionStatus

if TYPE_CHECKING:
    from unit.admin.durable_desks import MemoryDurable

Place = tuple[int, int, int]
"""Id of a group, Raft group, offset."""


class MemoryGroups:
    """A ``GroupPort``."""

    def __init__(self, durable: MemoryDurable) -> None:
        self._durable = durable
        self.settled: set[Place] = set()
        self.held: dict[Place, str] = {}
        self.deliveries: dict[Place, int] = {}
        self.buried: dict[Place, str] = {}
        self.nacks: list[tuple[str, int | None, str]] = []
        self.extended: list[tuple[str, int]] = []
        self.leaderless: set[str] = set()
        """Tokens whose leader does not answer."""
        self.slow: list[str] = []
        """What partitions say that do not begin."""

    async def fetch(self, group_id: int, member: str, count_max: int, wait_ms: int) -> list[Fetched]:
        found: list[Fetched] = []
        for place, one in self._open(self._group(group_id)):
            if place not in self.held and len(found) < count_max:
                self.held[place] = member
                self.deliveries[place] = self.deliveries.get(place, 0) + 1
                found.append(one._replace(token=":".join(map(str, place)), deliveries=self.deliveries[place]))
        return found

    async def ack(self, tokens: Sequence[str]) -> list[str]:
        return [self._settle(token) for token in tokens]

    async def nack(self, tokens: Sequence[str], delay_ms: int | None, reason: str) -> list[str]:
        self.nacks += [(token, delay_ms, reason) for token in tokens]
        return [self._release(token) for token in tokens]

    async def bury(self, tokens: Sequence[str], reason: str) -> list[str]:
        outcomes = [self._settle(token) for token in tokens]
        self.buried |= {
            self._place(token): reason for token, outcome in zip(tokens, outcomes, strict=True) if not outcome
        }
        return outcomes

    async def extend(self, tokens: Sequence[str], ms: int) -> list[str]:
        self.extended += [(token, ms) for token in tokens]
        return ["" if self._place(token) in self.held else "stale." for token in tokens]

    async def begin(self, group_id: int) -> list[str]:
        return self.slow

    async def status(self, group_id: int) -> list[PartitionStatus]:
        found = []
        group = self._group(group_id)
        for topic in self._topics(group):
            for shard, partition in enumerate(topic.partitions):
                left = [place for place, _ in self._open(group) if place[1] == partition.group]
                held = [self.held[place] for place in left if place in self.held]
                holders = [Holder(1, member, held.count(member), 3) for member in sorted(set(held))]
                is_led = partition.group not in self._durable.leaderless
                end = self._durable.log(partition.group).end
                found.append(
                    PartitionStatus(
                        *(partition.group, shard, topic.name, 1 if is_led else 0, group.generation),
                        *(left[0][2] if left else end, end, len(left), 100 * len(left)),
                        *(self._durable.now_ms if left else 0, len(held), holders),
                        *(len([place for place in self.buried if place[0] == group_id]), 0, 0),
                        group.paused,
                    )
                )
        return found

    def figures(self, groups_max: int) -> list[GroupFigures]:
        return [
            GroupFigures(group.namespace, group.name, len(self._open(group)), 100, self._durable.now_ms, 1, 2, 3)
            for group in list(self._durable.state().groups.values())[:groups_max]
        ]

    async def peek(self, group_id: int, count: int) -> list[Fetched]:
        return [one for _, one in self._open(self._group(group_id))][:count]

    def _group(self, group_id: int) -> ConsumerGroup:
        [found] = [one for one in self._durable.state().groups.values() if one.id == group_id]
        return found

    def _topics(self, group: ConsumerGroup) -> list[TopicRecord]:
        return [self._durable.state().topic(group.namespace, name) for name in group.topics()]

    def _open(self, group: ConsumerGroup) -> list[tuple[Place, Fetched]]:
        found = []
        for topic in self._topics(group):
            selection = Selection.of(group, topic)
            for shard, partition in enumerate(topic.partitions):
                log = self._durable.log(partition.group)
                for one in records_of("default", batch_views(b"".join(log.batches)), 0, 10_000):
                    place = (group.id, partition.group, one.offset)
                    user = [(pair.name.encode(), pair.value.encode()) for pair in one.user_properties]
                    name = one.topic.encode()
                    if place not in self.settled and selection.record(name, user):
                        fetched = Fetched(
                            *("", partition.group, shard, topic.name, one.offset, 0, name, one.client.encode()),
                            *(self._durable.now_ms, (one.payload or "").encode(), one.qos, user, None, b""),
                        )
                        found.append((place, fetched))
        return found

    def _place(self, token: str) -> Place:
        group, partition, offset = token.split(":")
        return int(group), int(partition), int(offset)

    def _settle(self, token: str) -> str:
        problem = self._release(token)
        if not problem:
            self.settled.add(self._place(token))
        return problem

    def _release(self, token: str) -> str:
        if token in self.leaderless:
            return SENTENCES[LATER]
        if token.count(":") != 2 or self._place(token) not in self.held:
            return "The token is stale: the record was settled, or handed out again."
        del self.held[self._place(token)]
        return ""
