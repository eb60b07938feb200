"""A whole cluster of brokers in one process, from one seed: virtual time, links that break, partitions, deaths.

```
 ClusterHarness --advance--> every step: frames and datagrams that are due --> ClusterNode --> frames, datagrams
       |                                        |                                  `--> Broker (BrokerHarness: clients)
       `-- split, heal, kill, start             `-- lost when cut; links between parts go down, and up again when healed
```
All above the sockets is the real thing: membership, owned maps, routes, sessions, wills, retained messages.

```python
cluster = ClusterHarness(3)
cluster.until(cluster.is_one)
alice = cluster.client(0, "alice")
cluster.split([{0, 1}, {2}])
cluster.advance(600_000)
cluster.heal()
```
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Final

from flockmq.durable.assembly import assemble
from flockmq.durable.parts import Parts
from flockmq.errors import FlockError
from flockmq.gossip.member import ALIVE, Member
from flockmq.gossip.settings import GossipSettings, profile
from flockmq.mqtt.packets import Connack, Connect, Suback, Subscribe, SubscribeEntry
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.peering.formation import Rules
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness, HarnessClient, make_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

STEP_MS: Final = 10
TICK_MS: Final = 100
CLUSTER_ID: Final = 0xF10C
LINK: Final = 0
DATAGRAM: Final = 1


class SimulatedNode:
    """One node: a broker in its harness, and what makes it one of many."""

    def __init__(self, cluster: ClusterHarness, number: int, boot: int) -> None:
        self.number = number
        self.node_id = number + 1
        self.name = f"n{number + 1}@sim"
        self.boot = boot
        self.alive = True
        self.wishes: dict[int, tuple[str, int]] = {}
        """Nodes that this one wants to be linked with."""
        self._ship = cluster.ship
        seed = cluster.rng.getrandbits(32)
        whole = assemble(
            Parts(
                me=Member(self.node_id, boot, self.name, f"10.0.0.{number + 1}", 16_000, cluster_id=CLUSTER_ID),
                settings=cluster.settings,
                gate=OpenGate(),
                gossip=cluster.gossip,
                rules=Rules(lists_peers=False, contact_points=1),
                rng=random.Random(cluster.rng.getrandbits(64)),  # noqa: S311  (to be repeated)
                now=cluster.now,
                wall_ms=WALL_MS + cluster.now - START_MS,
                edges=self,
                store=None,
            )
        )
        self.cluster_node = whole.cluster
        self.harness = BrokerHarness(seed, cluster.settings, broker=whole.broker)
        self.harness.now = cluster.now
        if cluster.before is not None:
            cluster.before(number, self.harness)
        contacts = [(f"10.0.0.{other + 1}", 16_000) for other in range(cluster.count) if other != number]
        self.cluster_node.swim.join(contacts, cluster.now)

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        """See Edges."""
        self._ship(self.number, peer - 1, b"".join(pieces))

    def wake(self) -> None:
        """See Edges: every step of the harness is a turn."""

    def kick(self) -> None:
        """See Edges: there is no store."""

    def keep(self, state: bytes) -> None:
        """See Edges: there is no cluster state."""

    def stopped(self, reason: str) -> None:
        """See Edges: there is no consensus."""

    def sees(self) -> dict[str, bool]:
        """Members by name: whether alive."""
        return {member.name: member.state == ALIVE for member in self.cluster_node.swim.members.values()}

    def routes(self) -> dict[bytes, list[str]]:
        """The route table: filter -> names of nodes."""
        table = self.harness.broker.subscriptions
        found: dict[bytes, list[str]] = {}
        for topic_filter in table.filters():
            entry = table.entry(topic_filter)
            if entry is None:
                continue
            names = [self.name] if entry.has_own() else []
            found[topic_filter] = sorted([*names, *(peer.name for peer in entry.peers or ())])
        return {topic_filter: names for topic_filter, names in found.items() if names}

    def retained(self) -> dict[bytes, bytes]:
        """Topic -> payload of what is retained."""
        store = self.harness.broker.retained
        found = {}
        for topic in store.topics():
            message = store.get(topic, self.harness.now)
            if message is not None and not topic.startswith(b"$SYS/"):
                found[topic] = message.run.payload(0)
        return found


class ClusterHarness:
    """See the module."""

    def __init__(
        self,
        count: int,
        seed: int = 0,
        *,
        settings: BrokerSettings | None = None,
        gossip: GossipSettings | None = None,
        delay_ms: tuple[int, int] = (1, 20),
        loss: float = 0.0,
        before: Callable[[int, BrokerHarness], None] | None = None,
    ) -> None:
        """``loss`` is that of datagrams; links lose nothing until they break. ``before`` sees brokers without links."""
        self.count = count
        self.rng = random.Random(seed)  # noqa: S311  (to be repeated)
        self.settings = settings or BrokerSettings(sys_interval_ms=0)
        self.gossip = gossip or profile("lan")
        self.delay_ms = delay_ms
        self.loss = loss
        self.before = before
        self.now = START_MS
        self.parts: list[set[int]] = [set(range(count))]
        self._boots = 0
        self._queue: list[tuple[int, int, int, int, int, bytes]] = []
        self._sequence = 0
        self._links: dict[tuple[int, int], int] = {}
        """Pairs of linked nodes, the smaller first, and which link of theirs it is: frames of an older one are lost."""
        self._last: dict[tuple[int, int], int] = {}
        """When the last frame from one node to another is due: links keep the order."""
        self.nodes = [self._make(number) for number in range(count)]

    def _make(self, number: int) -> SimulatedNode:
        self._boots += 1
        return SimulatedNode(self, number, self._boots)

    # --- clients ---

    def client(
        self, number: int, client_id: str, *, clean_start: bool = True, session_expiry_s: int = 0
    ) -> HarnessClient:
        """Connect a client to a node; time passes until its CONNACK is there."""
        properties = make_properties(session_expiry_s=session_expiry_s)
        client = self.nodes[number].harness.connect(Connect(5, client_id, clean_start, 0, properties))
        self.until(lambda: client.has_received)
        client.connack = client.expect(Connack)
        if client.connack.reason != 0:
            raise AssertionError(f"The broker refused client {client_id!r}: {client.connack!r}")
        return client

    def subscribe(self, client: HarnessClient, topic_filter: bytes, qos: int = 0) -> int:
        """Subscribe to one filter; time passes until the SUBACK is there. Its reason code."""
        client.send(Subscribe(client.next_id(), [SubscribeEntry(topic_filter, qos)]))
        self.until(lambda: client.has_received)
        return client.expect(Suback).reasons[0]

    # --- what goes wrong ---

    def split(self, parts: Iterable[set[int]]) -> None:
        """Nodes of different parts don't reach each other from now on."""
        self.parts = [set(part) for part in parts]
        for first, second in list(self._links):
            if not self.reaches(first, second):
                self._unlink(first, second)

    def heal(self) -> None:
        """All nodes reach each other again."""
        self.parts = [set(range(self.count))]

    def kill(self, number: int) -> None:
        """A node dies, with all that it had in memory."""
        self.nodes[number].alive = False
        for first, second in [pair for pair in self._links if number in pair]:
            self._unlink(first, second)

    def start(self, number: int) -> None:
        """A node that died starts again, with nothing."""
        self.nodes[number] = self._make(number)

    def reaches(self, first: int, second: int) -> bool:
        """Whether the network carries anything between two nodes."""
        return any(first in part and second in part for part in self.parts)

    # --- time ---

    def advance(self, ms: int) -> None:
        """Let time pass."""
        end = self.now + ms
        while self.now < end:
            # Nothing happens in between: nodes answer to what comes, and to their ticks.
            next_tick = self.now + TICK_MS - (self.now - START_MS) % TICK_MS
            due = self._queue[0][0] if self._queue else next_tick
            self.now = min(end, next_tick, max(due, self.now + STEP_MS))
            self._deliver()
            for node in self.nodes:
                if node.alive:
                    self._run(node)
            self._connect()

    def until(self, condition: Callable[[], bool], ms_max: int = 60_000) -> int:
        """Let time pass until something holds; how much it was. FlockError when it does not."""
        began = self.now
        while not condition():
            if self.now - began >= ms_max:
                raise FlockError(f"After {ms_max} ms: {[node.sees() for node in self.nodes]}")
            self.advance(TICK_MS)
        return self.now - began

    def is_one(self) -> bool:
        """Whether all nodes that live see and are linked with each other, and nobody else."""
        living = [node for node in self.nodes if node.alive]
        names = {node.name for node in living}
        pairs = len(living) * (len(living) - 1) // 2
        return len(self._links) == pairs and all(
            {name for name, is_alive in node.sees().items() if is_alive} == names for node in living
        )

    def _run(self, node: SimulatedNode) -> None:
        harness = node.harness
        harness.now = self.now
        if (self.now - START_MS) % TICK_MS == 0:
            harness.broker.tick(self.now)
            node.cluster_node.tick(self.now)
        for peer, pieces in node.cluster_node.turn(self.now):
            self.ship(node.number, peer - 1, b"".join(pieces))
        for (host, _), body in node.cluster_node.swim.take_datagrams():
            self._send_datagram(node.number, int(host.rpartition(".")[2]) - 1, body)
        for wish in node.cluster_node.take_wishes():
            if wish.host:
                node.wishes[wish.node_id - 1] = (wish.host, wish.port)
            else:
                node.wishes.pop(wish.node_id - 1, None)
                self._unlink(*_pair(node.number, wish.node_id - 1))
        harness.flush()

    # --- the network ---

    def ship(self, sender: int, receiver: int, frame: bytes) -> None:
        """Carry a frame from one node to another, in order, unless they have no link."""
        link = self._links.get(_pair(sender, receiver))
        if link is None:
            return
        due = max(self.now + self.rng.randint(*self.delay_ms), self._last.get((sender, receiver), 0))
        self._last[sender, receiver] = due
        self._put(due, LINK, sender, receiver, link.to_bytes(8, "little") + frame)

    def _send_datagram(self, sender: int, receiver: int, body: bytes) -> None:
        if receiver >= self.count or self.rng.random() < self.loss:
            return
        self._put(self.now + self.rng.randint(*self.delay_ms), DATAGRAM, sender, receiver, body)

    def _put(self, due: int, kind: int, sender: int, receiver: int, body: bytes) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (due, self._sequence, kind, sender, receiver, body))

    def _deliver(self) -> None:
        while self._queue and self._queue[0][0] <= self.now:
            _, _, kind, sender, receiver, body = heapq.heappop(self._queue)
            node = self.nodes[receiver]
            if not node.alive or not self.reaches(sender, receiver):
                continue
            if kind == DATAGRAM:
                node.cluster_node.datagram(body, (f"10.0.0.{sender + 1}", 16_000), self.now)
            elif self._links.get(_pair(sender, receiver)) == int.from_bytes(body[:8], "little"):
                node.cluster_node.frame(sender + 1, body[8:], self.now)

    def _connect(self) -> None:
        """Have links where somebody wants one and the network allows it."""
        for node in self.nodes:
            if not node.alive:
                continue
            for other in list(node.wishes):
                pair = _pair(node.number, other)
                peer = self.nodes[other]
                if pair in self._links or not peer.alive or not self.reaches(*pair):
                    continue
                self._sequence += 1
                self._links[pair] = self._sequence
                node.cluster_node.link_up(peer.node_id, CLUSTER_ID, self.now)
                peer.cluster_node.link_up(node.node_id, CLUSTER_ID, self.now)

    def _unlink(self, first: int, second: int) -> None:
        if self._links.pop((first, second), None) is None:
            return
        for one, other in ((first, second), (second, first)):
            if self.nodes[one].alive:
                self.nodes[one].cluster_node.link_down(other + 1, self.now)


def _pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)
