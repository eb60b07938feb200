"""A whole cluster of brokers in one process, from one seed: virtual time, links that break, partitions, deaths.

```
 machines (from 1 on) --> processes: ClusterNode around a Broker, DurableNode around both where logs are switched on
       |                        `-- frames, datagrams --> LinkNetwork: delays, splits, losses --> other processes
       `-- pause, die, start                              clients' bytes --> HarnessClient
```
All above the sockets and disks is the real thing: membership, owned maps, routes, sessions, wills, retained messages.

```python
cluster = ClusterHarness(3)
cluster.wait(cluster.is_one)
alice = cluster.client(1, "alice")
cluster.split([{1, 2}, {3}])
cluster.run_for(600_000)
cluster.split([])
```
``simulation/nodes`` adds cluster state, durable topics, disks, and clients that go from node to node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from flockmq.durable.assembly import assemble
from flockmq.durable.parts import Parts
from flockmq.errors import FlockError
from flockmq.gossip.member import ALIVE, Member
from flockmq.gossip.settings import GossipSettings, profile
from flockmq.mqtt.packets import Connack, Connect, Suback, Subscribe, SubscribeEntry
from flockmq.node.ports import OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.peering.formation import Rules
from flockmq.raft.settings import RaftSettings
from flockmq.testing.edges import StorelessEdges
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness, HarnessClient, make_properties
from flockmq.testing.simulation.links import LinkNetwork
from flockmq.testing.simulation.machine import Machine
from flockmq.testing.simulation.world import LOOK_MS, World

if TYPE_CHECKING:
    from flockmq.log.store import Store
    from flockmq.testing.simulation.events import Action

BROKER_TICK_MS: Final = 100
TURN_US: Final = 100
CLUSTER_ID: Final = 0xF10C
PORT: Final = 16_000
RAFT: Final = RaftSettings(tick_ms=50, commit_news_at_once=True, write_bytes_max=16_384)
"""As a server has it, but for a store that is a hundred times smaller."""

Before = Callable[[int, BrokerHarness], None]


class ClusterProcess(StorelessEdges):
    """One life of a clustered broker: the edges of an assembled node."""

    def __init__(self, machine: NodeMachine[Any], rng: random.Random, store: Store | None = None) -> None:
        self.machine = machine
        self.cluster = machine.cluster
        self.life = machine.life
        self.number = machine.number
        self.name = f"n{machine.number}@sim"
        now = self.cluster.now_ms()
        self.rng = rng
        self.link_requests: dict[int, None] = {}
        """Nodes that this one wants to be linked with."""
        self.clients: list[tuple[HarnessClient, Callable[[], None]]] = []
        boot = self.cluster.next_boot()
        self.whole = assemble(
            Parts(
                me=Member(self.number, boot, self.name, _host(self.number), PORT, cluster_id=CLUSTER_ID),
                settings=self.cluster.settings,
                gate=OpenGate(),
                gossip=self.cluster.gossip,
                rules=Rules(lists_peers=False, contact_points=1),
                rng=self.rng,
                now=now,
                wall_ms=self.machine.wall_ms(),
                edges=self,
                store=store,
                raft=RAFT,
            )
        )
        self.node = self.whole.cluster
        self.harness = BrokerHarness(self.rng.getrandbits(32), self.cluster.settings, broker=self.whole.broker)
        self.harness.now = now
        if self.cluster.before is not None:
            self.cluster.before(self.number, self.harness)
        self._turn_is_due = False
        self._broker_tick_at = now

    def begin(self) -> None:
        """Join the others."""
        others = [(_host(other.number), PORT) for other in self.cluster.machines if other is not self.machine]
        self.node.swim.join(others, self.cluster.now_ms())
        self.wake()

    def die(self, rng: random.Random) -> None:
        """The process ends."""

    # What comes in.

    def tick(self) -> None:
        """Time passes."""
        now = self.cluster.now_ms()
        if now >= self._broker_tick_at:
            self._broker_tick_at = now + BROKER_TICK_MS
            self.harness.broker.tick(now)
            self.node.tick(now)

    def frame(self, peer: int, frame: bytes) -> None:
        """A linked node sends a frame."""
        self.node.frame(peer, frame, self.cluster.now_ms())

    def datagram(self, sender: int, body: bytes) -> None:
        """A node probes, or gossips."""
        self.node.datagram(body, (_host(sender), PORT), self.cluster.now_ms())

    def link_up(self, peer: int) -> None:
        """A link stands."""
        self.node.link_up(peer, CLUSTER_ID, self.cluster.now_ms())

    def link_down(self, peer: int) -> None:
        """A link is lost."""
        self.node.link_down(peer, self.cluster.now_ms())

    def connect(self, packet: Connect, came: Callable[[], None]) -> HarnessClient:
        """A client connects; ``came`` is called when there may be something to read."""
        client = self.harness.connect(packet)
        self.clients.append((client, came))
        return client

    # Turns.

    def wake(self) -> None:
        """The node has work: it gets a turn soon."""
        if not self._turn_is_due:
            self._turn_is_due = True
            self.cluster.queue.after(TURN_US, self._turn)

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        """Send a frame to a linked node."""
        self.cluster.network.send_frame(self.number, peer, b"".join(pieces))

    def _turn(self) -> None:
        if self.machine.process is not self:
            return
        if self.machine.paused:
            self.cluster.queue.after(self.machine.tick_us, self._turn)
            return
        self._turn_is_due = False
        now = self.cluster.now_ms()
        self.harness.now = now
        self.harness.flush()
        network = self.cluster.network
        for peer, pieces in self.node.turn(now):
            self.ship(peer, pieces)
        for (host, _), body in self.node.swim.take_datagrams():
            network.send_datagram(self.number, int(host.rpartition(".")[2]), body)
        for request in self.node.take_link_requests():
            if request.host:
                self.link_requests[request.node_id] = None
            else:
                self.link_requests.pop(request.node_id, None)
                network.unlink(self.number, request.node_id)
        self.harness.flush()
        self.cluster.turned(self.number)
        self._tell_clients()

    def _tell_clients(self) -> None:
        gone = False
        for client, came in self.clients:
            if client.has_received or client.closed:
                gone = gone or client.closed
                self.cluster.queue.after(TURN_US, came)
        if gone:
            self.clients = [(client, came) for client, came in self.clients if not client.closed]

    # What it knows.

    def sees(self, others: set[int]) -> bool:
        """Whether exactly these nodes are alive for it."""
        return {member.node_id for member in self.node.swim.members.values() if member.state == ALIVE} == others

    def routes(self) -> dict[bytes, list[str]]:
        """The route table: filter -> names of nodes."""
        table = self.harness.broker.subscriptions
        found: dict[bytes, list[str]] = {}
        for topic_filter in table.filters():
            entry = table.entry(topic_filter)
            if entry is not None:
                names = [self.name] if entry.has_own() else []
                found[topic_filter] = sorted([*names, *(peer.name for peer in entry.peers or ())])
        return {topic_filter: names for topic_filter, names in found.items() if names}

    def retained(self) -> dict[bytes, bytes]:
        """Topic -> payload of what is retained."""
        store = self.harness.broker.retained
        found = {topic: store.get(topic, self.harness.now) for topic in store.topics()}
        return {
            topic: message.run.payload(0)
            for topic, message in found.items()
            if message is not None and not topic.startswith(b"$SYS/")
        }


P = TypeVar("P", bound=ClusterProcess)


class NodeMachine(Machine[P]):
    """``number`` counts from 1 and is the node's id."""

    def __init__(self, cluster: VirtualCluster[P], number: int) -> None:
        super().__init__(cluster, number, cluster.rng(f"node {number}"), cluster.TICK_MS)
        self.cluster = cluster
        self.wall_error_ms = 0
        """How wrong its time of day is; a restart does not change that."""
        self.segment_bytes = 32_768
        self.kept_state = b""
        """The copy of cluster state that lies beside the store."""
        self.is_kept_outdated = False
        """Whether that copy is known to lack a change."""
        self.founding = 0
        """The store that begins the cluster, until the state knows that there is one."""
        self.witness = b""
        """The file beside the store that tells which store it was."""

    def boot(self) -> P:
        """Make a process of the kind that the cluster is made of."""
        return self.cluster.make(self)

    def wall_ms(self) -> int:
        """The time of day as this machine has it."""
        return self.cluster.wall_ms() + self.wall_error_ms

    def next_rng(self) -> random.Random:
        """Chance of the process that is being made."""
        return random.Random(self.rng.getrandbits(64))  # noqa: S311  (to be repeated)

    def begin(self, process: P) -> None:
        """Let it join the others."""
        process.begin()

    def tick(self, process: P) -> None:
        """Let time pass for it."""
        self.do(self.life, process.tick)

    def act(self, action: Action, arguments: tuple[object, ...]) -> None:
        """Do something, and have a turn soon after."""
        assert self.process is not None
        self.process.harness.now = self.cluster.now_ms()
        action(*arguments)
        if self.process is not None:
            self.process.wake()


class VirtualCluster(World, Generic[P]):
    """Machines and the network between them; ``make`` says what runs on them."""

    TICK_MS = BROKER_TICK_MS

    def __init__(
        self,
        count: int,
        seed: int,
        *,
        trace: bool = False,
        settings: BrokerSettings | None = None,
        gossip: GossipSettings | None = None,
        loss: float = 0.0,
        before: Before | None = None,
    ) -> None:
        """``loss`` is that of datagrams; links lose nothing until they break. ``before`` sees brokers without links."""
        super().__init__(seed, trace)
        self.settings = settings or BrokerSettings(sys_interval_ms=0)
        self.gossip = gossip or profile("local")
        self.before = before
        self.machines: list[NodeMachine[P]] = []
        self.network = LinkNetwork(self, self.rng("network"), self.machines, loss)
        self.machines += [NodeMachine(self, number) for number in range(1, count + 1)]
        self._boots = 0

    def make(self, machine: NodeMachine[P]) -> P:
        """A process for a machine."""
        raise NotImplementedError

    def turned(self, number: int) -> None:
        """A turn of a node is over."""

    def frames(self) -> int:
        """How many frames the network carried."""
        return self.network.frames

    def died(self, number: int) -> None:
        """A process ended."""
        self.network.died(number)

    # Time and nodes.

    def now_ms(self) -> int:
        """Time as all nodes see it."""
        return START_MS + self.queue.now // 1_000

    def wall_ms(self) -> int:
        """The time of day that belongs to ``now_ms``."""
        return WALL_MS + self.queue.now // 1_000

    def next_boot(self) -> int:
        """Boots of all nodes together count up, as times of starts do."""
        self._boots += 1
        return self._boots

    def machine(self, number: int) -> NodeMachine[P]:
        """By number, from 1 on."""
        return self.machines[number - 1]

    def __getitem__(self, number: int) -> P:
        """The process on a machine; there must be one."""
        process = self.machine(number).process
        assert process is not None, f"node {number} does not run"
        return process

    def processes(self) -> list[P]:
        """Those that run."""
        return [machine.process for machine in self.machines if machine.process is not None]

    def not_one(self) -> str:
        """Which of the nodes that run is not linked with all others, or sees another set; empty when none is."""
        numbers = {process.number for process in self.processes()}
        if not self.network.are_linked(numbers):
            return "not all are linked"
        for process in self.processes():
            if not process.sees(numbers):
                return f"node {process.number} does not see all others"
        return ""


class ClusterHarness(VirtualCluster[ClusterProcess]):
    """Clustered brokers without logs, started at once; tests talk to their clients directly."""

    def __init__(
        self,
        count: int,
        seed: int = 0,
        *,
        loss: float = 0.0,
        before: Before | None = None,
    ) -> None:
        super().__init__(count, seed, gossip=profile("lan"), loss=loss, before=before)
        for number in range(1, count + 1):
            self.start(number)

    def make(self, machine: NodeMachine[ClusterProcess]) -> ClusterProcess:
        """A clustered broker."""
        return ClusterProcess(machine, machine.next_rng())

    def client(
        self, number: int, client_id: str, *, clean_start: bool = True, session_expiry_s: int = 0
    ) -> HarnessClient:
        """Connect a client to a node; time passes until its CONNACK is there."""
        properties = make_properties(session_expiry_s=session_expiry_s)
        client = self[number].harness.connect(Connect(5, client_id, clean_start, 0, properties))
        self.wait(lambda: client.has_received)
        client.connack = client.expect(Connack)
        if client.connack.reason != 0:
            raise AssertionError(f"The broker refused client {client_id!r}: {client.connack!r}")
        return client

    def subscribe(self, client: HarnessClient, topic_filter: bytes, qos: int = 0) -> int:
        """Subscribe to one filter; time passes until the SUBACK is there. Its reason code."""
        client.send(Subscribe(client.next_id(), [SubscribeEntry(topic_filter, qos)]))
        self.wait(lambda: client.has_received)
        return client.expect(Suback).reasons[0]

    def split(self, parts: Iterable[set[int]]) -> None:
        """Nodes of different parts don't reach each other from now on; no parts: all do."""
        self.network.split(parts)

    def kill(self, number: int) -> None:
        """A node dies, with all that it had in memory."""
        self.machine(number).die(self.machine(number).rng, power=False)

    def start(self, number: int) -> None:
        """A node that died starts again, with nothing."""
        self.machine(number).start()

    def run_for(self, ms: int) -> None:
        """Let time pass; what clients do next happens at its end."""
        super().run_for(ms)
        for process in self.processes():
            process.harness.now = self.now_ms()

    def wait(self, condition: Callable[[], bool], ms_max: int = 60_000) -> int:
        """Let time pass until something holds; how much it was. FlockError when it does not."""
        began = self.queue.now
        while not condition():
            if self.queue.now - began >= ms_max * 1_000:
                raise FlockError(f"After {ms_max} ms: {self.not_one() or 'all nodes see each other'}")
            self.run_for(LOOK_MS)
        return (self.queue.now - began) // 1_000

    def is_one(self) -> bool:
        """Whether all nodes that live see and are linked with each other, and no others."""
        return not self.not_one()


def _host(number: int) -> str:
    return f"10.0.0.{number}"
