"""The calls that hand one message on, as plain Python runs them: ``python -m flockmq.testing.walks``.

```
 publish one message in a harness --> sys.setprofile --> is it laid down in a place? --> the functions above that
```
A message rests in a few places on its way: an open batch, a log, a frame, a client's buffer. A walk is every function
on the stack when the message, or its outcome, is laid down in one of them. Functions that only check or compute a value
are not on the stack then. Compiled functions can't be seen: run this with ``FLOCKMQ_PURE=1``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Connack, Connect, Publish, Suback, Subscribe, SubscribeEntry
from flockmq.testing.harness import BrokerHarness
from flockmq.testing.simulation.nodes.clients import TOPIC
from flockmq.testing.simulation.nodes.plan import NodesPlan
from flockmq.testing.simulation.nodes.world import NodesWorld

if TYPE_CHECKING:
    from types import FrameType

    from flockmq.testing.harness import HarnessClient

ROOT: Final = Path(__file__).parents[1]
QOS0_PLACES: Final = frozenset({"Connection.send", "Connection.take"})
DURABLE_PLACES: Final = frozenset(
    {
        "BatchBuilder.add_run",  # the open batch of its partition
        "AckQueue.add",  # the PUBACKs that the client waits for
        "Forwarder.submit",  # the runs of this node without an outcome
        "RaftHost._send",  # the messages for a peer
        "Exchange.send_now",  # a link
        "RaftLog.append",  # the log in memory
        "_send_appends",  # what a leader has sent
        "GroupLog.append_views",  # the next write of the journal
        "RaftLog.became_durable",  # the log on disk
        "commit_to",  # the commit index
        "_take_committed",  # the entries to apply
        "Forwarder._report",  # the outcomes
        "Connection.reply",  # the client's buffer
        "Outbound.offer",  # the subscriber's queue
        "Outbound.launch",  # the subscriber's window
    }
)


def record(places: frozenset[str], action: Callable[[], None]) -> list[str]:
    """Do something; the calls of the walk as ``file:function``, in the order in which they first hand something on."""
    found: dict[str, None] = {}
    stack: list[str] = []

    def follow(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001
        code = frame.f_code
        file = Path(code.co_filename)
        if event not in ("call", "return") or not file.is_relative_to(ROOT) or file.is_relative_to(ROOT / "testing"):
            return
        if event == "return":
            if stack:
                stack.pop()
            return
        if code.co_qualname in places:
            found.update(dict.fromkeys(stack))
        stack.append(f"{file.relative_to(ROOT)}:{code.co_name}")

    sys.setprofile(follow)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(found)


def qos0_publish() -> list[str]:
    """A client publishes to another one of the same node, at QoS 0. The topic was used before."""
    harness = BrokerHarness()
    publisher = harness.client("publisher")
    subscriber = harness.client("subscriber")
    subscriber.subscribe(b"walk/#")
    for _ in range(3):
        publisher.publish(b"walk/way", b"before")
    data = encode_packet(Publish(b"walk/way", b"now"), 5)

    def publish() -> None:
        harness.broker.receive(publisher.connection, data, harness.now)
        harness.flush()

    return record(QOS0_PLACES, publish)


class DurableWalk:
    """Three nodes with one partition of three replicas; publisher and subscriber are with its two followers."""

    def __init__(self) -> None:
        self.world = NodesWorld(1, NodesPlan(nodes=3, shards=1, copies=3))
        self.world.form()
        self.world.run_for(3_000)
        record_of_topic = self.world.topic(self.world[1])
        assert record_of_topic is not None
        group = record_of_topic.partitions[0].group
        followers = [one.number for one in self.world.processes() if not one.engine.is_leader(group)]
        self.near, self.far = followers
        self.publisher = self.connect(self.near, "publisher")
        self.subscriber = self.connect(self.far, "subscriber")
        self.subscriber.send(Subscribe(1, [SubscribeEntry(f"{TOPIC}/#".encode(), 1)]))
        self.wait(self.far, self.subscriber)
        self.subscriber.expect(Suback)
        self.packet_id = 0

    def connect(self, number: int, client_id: str) -> HarnessClient:
        """Connect a client to a node."""
        client = self.world[number].harness.connect(Connect(5, client_id, True, 0, None))
        self.wait(number, client)
        client.expect(Connack)
        return client

    def wait(self, number: int, *clients: HarnessClient) -> None:
        """Let time pass until all of these clients got something."""
        self.world[number].wake()
        while not all(client.has_received for client in clients):
            self.world.queue.run_until(self.world.queue.now + 100)

    def publish(self) -> None:
        """One message, until its PUBACK and its delivery are there."""
        self.packet_id += 1
        data = encode_packet(Publish(f"{TOPIC}/way".encode(), b"now", 1, packet_id=self.packet_id), 5)
        process = self.world[self.near]
        process.harness.broker.receive(self.publisher.connection, data, process.harness.now)
        self.wait(self.near, self.publisher, self.subscriber)

    def settle(self) -> None:
        """Clients read and acknowledge, and all nodes come to rest."""
        self.publisher.received()
        self.subscriber.consume()
        self.world.run_for(2_000)


def durable_publish() -> list[str]:
    """A durable QoS 1 publish on a follower: to its PUBACK, and to a subscriber of the other follower."""
    walk = DurableWalk()
    for _ in range(2):
        walk.publish()
        walk.settle()
    return record(DURABLE_PLACES, walk.publish)


WALKS: Final[dict[str, Callable[[], list[str]]]] = {
    "A QoS 0 publish on one node": qos0_publish,
    "A durable QoS 1 publish": durable_publish,
}
"""By their titles in ``docs/internals/walks.md``."""


def main() -> None:
    """Print all walks."""
    for title, walk in WALKS.items():
        calls = walk()
        files = {call.partition(":")[0] for call in calls}
        print(f"# {title}: {len(calls)} calls in {len(files)} files", *calls, sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
