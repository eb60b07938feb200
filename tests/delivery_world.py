"""Nodes with clients and partitions, without sockets, disks or consensus: what is committed is what a test says.

```
 world.commit(group, records) --> the one true log --apply(node)--> replica of a node --> Delivery --> its clients
                                                                          ^--- feeds between the nodes, settled at once
```
Every node is a whole broker; the test decides when its replica hears of a commit, which links there are and where
logs begin.
"""

from __future__ import annotations

from typing import Final

from flockmq.cluster.model import is_hidden
from flockmq.durable.deliver.delivery import Delivery
from flockmq.durable.logs.local import NOT_HERE
from flockmq.durable.logs.logs import Logs
from flockmq.errors import Behind, Damaged, NoReplica, OffsetGone
from flockmq.log.batch import NOOP, BatchBuilder, BatchView, control_batch, stamp
from flockmq.log.names import Found
from flockmq.mqtt.packets import Publish, Suback, Subscribe, SubscribeEntry
from flockmq.mqtt.topics import matches
from flockmq.node.settings import BrokerSettings
from flockmq.peering.calls import Calls
from flockmq.peering.channels import CALLS, FEEDS
from flockmq.raft.configuration import Configuration
from flockmq.raft.entry import entry_of
from flockmq.raft.messages import SnapshotMeta
from flockmq.raft.ready import Ready
from flockmq.routing.durable import DurableTopic, TopicMap
from flockmq.tasks import Promise, Tasks, promised
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness, HarnessClient, make_properties
from flockmq.testing.lockstep import Lockstep

ROUNDS_MAX: Final = 100_000


class Truth:
    """The log of a partition, as all replicas will have it."""

    def __init__(self) -> None:
        self.entries: list[bytes] = [stamp(control_batch(NOOP), 1, 1, 0)]
        self.end = 0
        self.leader = 0
        self.replicas: tuple[int, ...] = ()
        self.term = 1


class Replicas:
    """The replicas of one node: how many entries of each log are applied, and which of them are still kept."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.applied: dict[int, int] = {}
        self.kept: dict[int, int] = {}
        self.broken: set[int] = set()
        self.lost: dict[int, int] = {}
        """By partition: damaged up to here, and there is no other replica."""
        self.reads = 0
        self.seeks = 0

    def groups(self) -> list[int]:
        return list(self.applied)

    def is_here(self, group: int) -> bool:
        return group in self.applied

    def is_leader(self, group: int) -> bool:
        return self.world.truths[group].leader == self.node_id

    def speaking_for(self, groups: list[int], now: int) -> set[int]:
        return {group for group in groups if self.is_leader(group)}

    def confirm(self, group: int, now: int) -> Promise[bool]:
        return promised(self.is_leader(group))

    def term_of(self, group: int) -> int:
        return self.world.truths[group].term

    def leader_of(self, group: int) -> int:
        return self.world.truths[group].leader

    def first(self, group: int) -> int:
        return self.kept.get(group, 0)

    def end(self, group: int) -> int:
        if group not in self.applied:
            return NOT_HERE
        applied = self.world.truths[group].entries[: self.applied[group]]
        return BatchView(applied[-1]).next_offset if applied else 0

    def committed_end(self, group: int) -> int:
        return self.end(group)

    def read(self, group: int, offset: int, bytes_max: int, until: int = 0) -> list[bytes]:
        self.reads += 1
        if group in self.broken or group not in self.applied:
            raise NoReplica
        if max(offset, until) > self.end(group):
            raise Behind(self.end(group))
        if self.lost_until(group, offset):
            raise Damaged(offset, self.lost[group])
        if offset < self.first(group):
            raise OffsetGone(self.first(group), f"Offset {offset}")
        found: list[bytes] = []
        size = 0
        for batch in self.world.truths[group].entries[: self.applied[group]]:
            view = BatchView(batch)
            if view.count and view.next_offset > offset:
                if found and size + len(batch) > bytes_max:
                    break
                found.append(batch)
                size += len(batch)
        return found

    def offset_at(self, group: int, time_ms: int) -> int:
        for batch in self.world.truths[group].entries[: self.applied[group]]:
            for record in BatchView(batch).records() if BatchView(batch).count else []:
                if record.timestamp_ms >= time_ms and record.offset >= self.first(group):
                    return record.offset
        return self.end(group)

    def find(self, group: int, offset: int, filters: tuple[bytes, ...]) -> Found:
        """By batch, as if each were a block of its own."""
        self.seeks += 1
        for batch in self.world.truths[group].entries[: self.applied[group]]:
            view = BatchView(batch)
            if view.next_offset > offset and any(matches(one, name) for one in filters for name in view.topics()):
                return Found(max(offset, view.base_offset), view.next_offset, len(batch))
        return Found(self.end(group), self.end(group), 0)

    def closed(self, group: int) -> int:
        return self.end(group)

    def lost_until(self, group: int, offset: int) -> int:
        return self.lost.get(group, 0) if offset < self.lost.get(group, 0) else 0


class Node(BrokerHarness):
    """A broker with deliveries from logs."""

    running = True

    def __init__(self, world: World, node_id: int, settings: BrokerSettings | None = None) -> None:
        super().__init__(node_id, settings, node_id=node_id)
        self.now = world.now
        self.world = world
        self.node_id = node_id
        self.replicas = Replicas(world, node_id)
        self.calls = Calls(self, Tasks(world.now))
        self.logs = Logs(node_id, self.replicas, world, self.calls, self, self.wake)
        self.delivery = Delivery(self.broker.node, self.logs)
        self.ports.replay = self.delivery.replay
        self.is_awake = False

    def wake(self) -> None:
        self.is_awake = True

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """The outbox of its components."""
        self.world.flying.append((self.node_id, peer, channel, body))

    def tick(self, now: int) -> None:
        self.now = now
        self.broker.tick(now)
        self.calls.tick(now)
        self.delivery.tick(now)

    def turn(self) -> bool:
        self.is_awake = False
        self.delivery.flush(self.world.now)
        moved = self.is_awake or bool(self.broker.dirty)
        super().flush()
        return moved

    def flush(self, sender: HarnessClient | None = None) -> None:
        super().flush(sender)
        self.world.settle()


class World(Lockstep[Node, tuple[int, int, int, bytes]]):
    """All nodes."""

    def __init__(self, size: int = 1, settings: BrokerSettings | None = None) -> None:
        super().__init__(now=START_MS, step_ms=100)
        self.truths: dict[int, Truth] = {}
        self.sent_bytes = 0
        self._topics: list[DurableTopic] = []
        self._is_settling = True
        self.nodes |= {number: Node(self, number, settings) for number in range(1, size + 1)}
        self._is_settling = False
        for node in self.nodes.values():
            node.delivery.topics_changed(self.now)
            for peer in self.nodes:
                if peer != node.node_id:
                    node.calls.peer_up(peer, self.now)
                    node.delivery.peer_up(peer, self.now)
        self.settle()

    # --- cluster state ---

    def replicas_of(self, group: int) -> tuple[int, ...]:
        truth = self.truths.get(group)
        return truth.replicas if truth is not None else ()

    def create(
        self,
        name: str,
        *groups: int,
        filters: tuple[bytes, ...] = (),
        on: tuple[int, ...] = (1,),
        is_restored: bool = False,
    ) -> None:
        """A durable topic with a shard per group, its replicas on these nodes, led by the first.

        ``is_restored``: nodes hear of it late, with a whole state.
        """
        for group in groups:
            truth = self.truths[group] = Truth()
            truth.replicas = on
        wanted = [] if is_hidden(name) else list(filters or (f"{name}/#".encode(),))
        self._topics = [one for one in self._topics if one.name != name.encode()]
        self._topics.append(DurableTopic(b"default", name.encode(), wanted, list(groups), index=len(self._topics) + 1))
        for group in groups:
            for number in on:
                self.nodes[number].replicas.applied[group] = 0
        self.tell_topics(is_restored)
        for group in groups:
            self.lead(group, on[0])

    def delete(self, name: str) -> None:
        self._topics = [one for one in self._topics if one.name != name.encode()]
        self.tell_topics()

    def tell_topics(self, is_restored: bool = False) -> None:
        for node in self.nodes.values():
            node.broker.node.table.topics = TopicMap(len(self._topics), self._topics)
            node.delivery.topics_changed(self.now, is_restored)
        self.settle()

    def lead(self, group: int, number: int) -> None:
        """Another leader: its first entry is committed and applied everywhere."""
        truth = self.truths[group]
        truth.leader = number
        truth.term += 1
        truth.entries.append(stamp(control_batch(NOOP), truth.term, len(truth.entries) + 1, truth.end))
        for replica in truth.replicas:
            self.apply(replica, group)

    # --- the log ---

    def commit(
        self,
        group: int,
        *records: tuple[bytes, bytes],
        qos: int = 1,
        retain: bool = False,
        client: bytes = b"publisher",
        apply: bool = True,
        wall_ms: int = 0,
    ) -> list[int]:
        """(topic, payload) records become one batch of the log; their offsets."""
        builder = BatchBuilder()
        flags = qos | (4 if retain else 0)
        for topic, payload in records:
            builder.add(topic, client, wall_ms or self.now - START_MS + WALL_MS, flags, payload)
        return self.append(group, builder, apply)

    def append(self, group: int, builder: BatchBuilder, apply: bool = True) -> list[int]:
        truth = self.truths[group]
        batch = stamp(builder.build(), truth.term, len(truth.entries) + 1, truth.end)
        offsets = list(range(truth.end, truth.end + builder.count))
        truth.entries.append(batch)
        truth.end += builder.count
        if apply:
            for replica in truth.replicas:
                self.apply(replica, group)
        return offsets

    def apply(self, number: int, group: int) -> None:
        """A replica applies all that is committed."""
        node = self.nodes[number]
        truth = self.truths[group]
        done = node.replicas.applied[group]
        fresh = truth.entries[done:]
        if not fresh:
            return
        node.replicas.applied[group] = len(truth.entries)
        ready = Ready(len(truth.entries))
        ready.committed = [entry_of(batch) for batch in fresh]
        node.calls.tasks.now = self.now
        node.logs.applied(group, ready.committed)
        node.delivery.applied(group, ready, self.now)
        self.settle()

    def install(self, number: int, group: int) -> None:
        """A replica is refilled by a snapshot: it has nothing older than the end of the log now."""
        node = self.nodes[number]
        truth = self.truths[group]
        node.replicas.applied[group] = len(truth.entries)
        node.replicas.kept[group] = truth.end
        ready = Ready(len(truth.entries))
        index = len(truth.entries)
        ready.install = SnapshotMeta(index, 1, truth.end, Configuration(()), index, 1)
        node.calls.tasks.now = self.now
        node.logs.applied(group, ready.committed)
        node.delivery.applied(group, ready, self.now)
        self.settle()

    # --- links and time ---

    def cut(self, one: int, other: int) -> None:
        """The link between two nodes breaks."""
        self.cuts |= {(one, other), (other, one)}
        for here, there in ((one, other), (other, one)):
            self.nodes[here].calls.peer_down(there, self.now)
            self.nodes[here].delivery.peer_down(there, self.now)
        self.settle()

    def mend(self, one: int, other: int) -> None:
        """There is a link again."""
        self.cuts -= {(one, other), (other, one)}
        for here, there in ((one, other), (other, one)):
            self.nodes[here].calls.peer_up(there, self.now)
            self.nodes[here].delivery.peer_up(there, self.now)
        self.settle()

    def settle(self, turns_max: int = ROUNDS_MAX) -> None:
        """Turns on all nodes until nothing moves; what clients do meanwhile is part of it."""
        if self._is_settling:
            return
        self._is_settling = True
        try:
            super().settle(turns_max)
        finally:
            self._is_settling = False

    def deliver(self, node: Node, part: tuple[int, int, int, bytes]) -> None:
        sender, _, channel, body = part
        self.sent_bytes += len(body)
        if channel == FEEDS:
            node.delivery.receive(sender, body, self.now)
        else:
            assert channel == CALLS
            node.calls.receive(sender, body, self.now)


def ask(client: HarnessClient, *filters: bytes, start: str = "", qos: int = 1, no_local: bool = False) -> Suback:
    """Subscribe with a start in history; the SUBACK."""
    properties = make_properties(user=[("flockmq-from", start)]) if start else None
    entries = [SubscribeEntry(one, qos, no_local, False, 0) for one in filters]
    client.send(Subscribe(client.next_id(), entries, properties))
    return client._take(Suback)


def got(messages: list[Publish]) -> list[bytes]:
    """The payloads."""
    return [message.payload for message in messages]


def numbered(topic: bytes, count: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    """Records whose payloads are numbers."""
    return [(topic, b"%d" % number) for number in range(first, first + count)]
