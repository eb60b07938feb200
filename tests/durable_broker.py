"""A broker with durable topics on one node: real engine and store, a disk in memory, time and writing in hand.

```
 broker.topic("t", shards=3)       declares a topic with filter t/#
 client.publish(...)               as with any BrokerHarness; nothing is stored yet
 broker.settle()                   everything is written, committed and answered
 broker.records(shard)             what is in the log
```
``leader=False``: the groups are on node 2, which is the test: ``sent`` has the runs that go there, ``reply`` answers.
"""

from __future__ import annotations

import random

from flockmq.durable.publish.appending import Appending
from flockmq.log.batch import DATA, BatchView
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.log.view import Record
from flockmq.mqtt.packets import Ack, Publish
from flockmq.node.settings import BrokerSettings
from flockmq.raft.codec import decode_frame, encode_frame
from flockmq.raft.engine import RaftEngine
from flockmq.raft.entry import Entry
from flockmq.raft.host import RaftHost
from flockmq.raft.messages import Forward, ForwardReply
from flockmq.raft.ready import Ready
from flockmq.raft.senders import ELSEWHERE, run_of
from flockmq.raft.settings import RaftSettings
from flockmq.routing.durable import DurableTopic
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties
from flockmq.testing.lockstep import perform
from flockmq.testing.simulation.disk import SimulatedDisk


class DurableBroker(BrokerHarness):
    """See the module."""

    def __init__(self, settings: BrokerSettings | None = None, feeding: str = "whole", leader: bool = True) -> None:
        super().__init__(settings=settings, feeding=feeding, node_id=1)
        rng = random.Random(3)
        self.disk = SimulatedDisk(rng)
        self.store = open_store(self.disk, StoreSettings(), rng)
        self.host = RaftHost(1, 1, RaftSettings(), rng, self.now)
        self.engine = RaftEngine(
            self.host, self.store, self._applied, lambda group: b"", self._stopped, on_room=self._on_room
        )
        self.appending = Appending(self.broker.node, self.engine.appends, self.host.settings.entry_bytes_max)
        self.ports.appending = self.appending
        self.table = self.broker.node.table
        self.leader = leader
        self.logs: dict[int, list[Entry]] = {}
        self.topics: dict[bytes, DurableTopic] = {}
        self.sent: list[Forward] = []
        self.reason = ""
        self._frames = 0

    def _on_room(self, group: int) -> None:
        self.appending.on_room(group)

    def topic(
        self, name: bytes, shards: int = 1, key: int = 0, key_property: bytes = b"", ack: int = 0, first: int = 0
    ) -> DurableTopic:
        """Declare a topic, or change it; its groups are numbered from ``first`` on, or are those it has and more."""
        before = self.topics.get(name)
        groups = list(before.groups) if before is not None else []
        known = sum(len(topic.groups) for topic in self.topics.values())
        while len(groups) < shards:
            group = (first or known + 1) + len(groups)
            groups.append(group)
            self.logs[group] = []
            if self.leader:
                self.open(group)
            else:
                self.host.elsewhere[group] = (2,)
        index = self.table.topics.index + 1
        topic = DurableTopic(b"default", name, [name + b"/#"], groups, ack, key, key_property, index)
        self.topics[name] = topic
        self.tell(topic)
        self.settle()
        return topic

    def open(self, group: int) -> None:
        """Begin a group, and have it led from here."""
        self.logs[group] = []
        self.engine.open(group, (1,))
        for _ in range(100):
            self.settle()
            if self.engine.is_leader(group):
                return
        raise AssertionError("the group has no leader")

    def tell(self, topic: DurableTopic) -> None:
        """Let this node know of a topic."""
        self.table.topics.put(topic)
        self.table.topics.index = max(topic.index, self.table.topics.index)
        self.host.rules.known = self.table.topics.index
        self.table.topics_changed(topic.filters)
        self.appending.topics_changed(self.now)

    def turn(self) -> None:
        """One turn of consensus; nothing is written. Node 2 says that it leads, in term 1."""
        self.engine.turn(self._send)
        questions = [forward for forward in self.sent if not forward.term]
        if questions:
            self.sent = [forward for forward in self.sent if forward.term]
            for forward in questions:
                self.answer(forward, ELSEWHERE, 2)
            self.engine.turn(self._send)
        self.flush()

    def _send(self, peer: int, frame: bytes) -> None:
        self.sent += [message for message in decode_frame(frame).messages if isinstance(message, Forward)]

    def reply(self, forward: Forward, outcome: int, value: int = 0, term: int = 1) -> None:
        """Answer as the leader of a group."""
        self.answer(forward, outcome, value, term)
        self.turn()

    def answer(self, forward: Forward, outcome: int, value: int = 0, term: int = 1) -> None:
        """The same, and the broker has had no time to hear it."""
        run = run_of(forward.batch)
        assert run is not None
        self._frames += 1
        answer = ForwardReply(forward.group, 2, 1, term, 1, run.sequence, forward.attempt, outcome, value)
        self.engine.receive(encode_frame(2, 1, 1, 1, self._frames, [answer]))

    def write(self) -> bool:
        """Write what is there to be written."""
        return perform(self.store, self.disk, self.engine)

    def settle(self) -> None:
        """Until nothing is left to do."""
        self.wait(60)
        while True:
            self.turn()
            if not self.write() and not self.engine.has_work():
                break

    def wait(self, ms: int) -> None:
        """Time passes for all parts, without a write."""
        end = self.now + ms
        while self.now < end:
            self.now = min(self.now + 20, end)
            self.engine.tick(self.now)
            self.appending.tick(self.now)
            self.broker.tick(self.now)
            self.turn()

    def records(self, topic: DurableTopic, shard: int = 0) -> list[Record]:
        """All committed records of a shard."""
        found: list[Record] = []
        for entry in self.logs[topic.groups[shard]]:
            if entry.kind == DATA:
                view = BatchView(entry.data)
                found += [view.record(position) for position in range(view.count)]
        return found

    def _applied(self, group: int, ready: Ready) -> None:
        self.logs[group] += ready.committed

    def _stopped(self, reason: str) -> None:
        self.reason = reason


def publish(client: HarnessClient, payload: bytes, packet_id: int = 0, qos: int = 1, **more: object) -> None:
    """Send a PUBLISH; what comes back is not read."""
    topic = more.pop("topic", b"t/a")
    retain = bool(more.pop("retain", False))
    dup = bool(more.pop("dup", False))
    assert isinstance(topic, bytes)
    properties = make_properties(**more) if more else None
    client.send(Publish(topic, payload, qos, retain, dup, packet_id, properties))


def acks(client: HarnessClient) -> list[tuple[int, int, int]]:
    """Kind, packet id and reason of all that came back, which must be acknowledgements."""
    found = []
    for packet in client.received():
        assert isinstance(packet, Ack), packet
        found.append((packet.kind, packet.packet_id, packet.reason))
    return found
