"""A machine of a simulated cluster of whole nodes: its disk outlives the brokers that run on it.

```
 frames, datagrams, clients' bytes, ticks --> ClusterNode, DurableNode, Broker --> a turn soon after:
      frames --> DurableNetwork      store.take_commit --> StorageWorker --> engine.committed --> the next turn
      bytes of clients --> whoever is connected
```
Everything above disk and sockets is the real thing.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from flockmq.durable.assembly import assemble
from flockmq.durable.parts import Parts
from flockmq.gossip.member import ALIVE, Member
from flockmq.log.recovery import open_store
from flockmq.log.settings import StoreSettings
from flockmq.log.witness import OLDER, OTHER, Witnessing, is_marked, judge, read_witness, whole_file
from flockmq.mqtt.packets import Connect
from flockmq.node.ports import OpenGate
from flockmq.peering.formation import Rules
from flockmq.raft.settings import RaftSettings
from flockmq.testing.harness import START_MS, WALL_MS, BrokerHarness, HarnessClient
from flockmq.testing.simulation.disk import SimulatedDisk
from flockmq.testing.simulation.storage import StorageWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.log.store import Store
    from flockmq.log.work import Commit
    from flockmq.testing.durable_harness import DurableHarness
    from flockmq.testing.simulation.events import Action

TICK_MS: Final = 50
BROKER_TICK_MS: Final = 100
TURN_US: Final = 100
SETTLE_MS: Final = 5_000
"""How long a node that starts waits for others, see ``server/cluster.py``."""
CLUSTER_ID: Final = 0xF10C
PORT: Final = 16_000
WRITE_BYTES_MAX: Final = 16_384
STORE: Final = StoreSettings(
    journal_bytes=262_144,
    commit_bytes=65_536,
    segment_bytes=32_768,
    index_bytes=2_048,
    cache_bytes=65_536,
    verify_bytes=262_144,
)


class Machine:
    """``life`` counts its processes; there is at most one at a time."""

    def __init__(self, cluster: DurableHarness, number: int, rng: random.Random) -> None:
        """``number`` counts from 1 and is the node's id."""
        self.cluster = cluster
        self.number = number
        self.rng = rng
        self.disk = SimulatedDisk(rng)
        self.kept_state = b""
        self.founding = 0
        """The store that begins the cluster, until the state knows that there is one."""
        self.witness = b""
        """What lies beside the store and tells which one it was."""
        self.life = 0
        self.process: Process | None = None
        self.paused = False
        self.resumed_at = 0
        """When its last pause ended."""
        self._inbox: list[tuple[Action, tuple[object, ...]]] = []

    @property
    def host(self) -> str:
        """Its address."""
        return f"10.0.0.{self.number}"

    def start(self) -> None:
        """Start a process, if there is none."""
        if self.process is not None:
            return
        self.life += 1
        self.paused = False
        self._inbox.clear()
        self.cluster.trace.note("start", self.number, self.life)
        self.process = Process(self)
        self.process.begin()
        self.cluster.queue.after(self.rng.randrange(TICK_MS * 1_000), self._tick, self.life)

    def die(self, rng: random.Random, power: bool) -> None:
        """The process ends; with ``power`` what it had not synced is at risk."""
        process = self.process
        if process is None:
            return
        self.cluster.trace.note("die", self.number, self.life, int(power))
        self.process = None
        process.worker.die(rng)
        if power:
            self.disk.lose_power(rng)
        else:
            self.disk.kill()
        self.cluster.died(self.number)

    def pause(self, ms: int) -> None:
        """Stand still for a while: messages wait, time passes."""
        if self.process is not None and not self.paused:
            self.paused = True
            self.cluster.queue.after(ms * 1_000, self.resume, self.life)

    def resume(self, life: int) -> None:
        """Go on, with all that came meanwhile."""
        if self.life != life or not self.paused:
            return
        self.paused = False
        self.resumed_at = self.cluster.now_ms()
        inbox = self._inbox
        self._inbox = []
        for action, arguments in inbox:
            self.do(life, action, *arguments)

    def do(self, life: int, action: Action, *arguments: object) -> None:
        """Let the process do something: now, when its pause is over, or never if it died."""
        if self.process is None or self.life != life:
            return
        if self.paused:
            self._inbox.append((action, arguments))
            return
        self.process.harness.now = self.cluster.now_ms()
        action(*arguments)
        if self.process is not None:
            self.process.wake()

    def _tick(self, life: int) -> None:
        process = self.process
        if process is None or self.life != life:
            return
        self.cluster.queue.after(TICK_MS * 1_000, self._tick, life)
        if not self.paused:
            self.do(life, process.tick)


def _open_checked(machine: Machine, rng: random.Random) -> Store:
    """As ``server/store_opening.py`` does it: a store that is not the one that was here is set aside."""
    store = open_store(machine.disk, STORE, rng)
    verdict = judge(
        read_witness(machine.witness),
        store.identity,
        store.sequence - 1,
        is_new=store.is_new,
        is_damaged=is_marked(store),
    )
    if verdict not in (OTHER, OLDER):
        return store
    machine.cluster.count("stores set aside")
    machine.disk.wipe()
    return open_store(machine.disk, STORE, rng)


class Process:
    """One life of a node."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.cluster = machine.cluster
        self.life = machine.life
        number = machine.number
        now = self.cluster.now_ms()
        rng = random.Random(machine.rng.getrandbits(64))  # noqa: S311  (to be repeated)
        self.wishes: dict[int, None] = {}
        """Nodes that this one wants to be linked with."""
        self.clients: list[tuple[HarnessClient, Callable[[], None]]] = []
        self.store = _open_checked(machine, rng)
        self._witnessing = Witnessing(self.store.identity, self.store.sequence - 1)
        machine.witness = whole_file(self.store.identity, self.store.sequence - 1)
        whole = assemble(
            Parts(
                me=Member(
                    number, self.cluster.next_boot(), f"n{number}@sim", machine.host, PORT, cluster_id=CLUSTER_ID
                ),
                settings=self.cluster.settings,
                gate=OpenGate(),
                gossip=self.cluster.gossip,
                rules=Rules(lists_peers=False, contact_points=1),
                rng=rng,
                now=now,
                wall_ms=self._wall_ms(),
                edges=self,
                store=self.store,
                # As a server has it, but for a store that is a hundred times smaller.
                raft=RaftSettings(tick_ms=TICK_MS, commit_news_at_once=True, write_bytes_max=WRITE_BYTES_MAX),
            )
        )
        assert whole.durable is not None
        self.node = whole.cluster
        self.durable = whole.durable
        self.engine = self.durable.engine
        self.harness = BrokerHarness(rng.getrandbits(32), self.cluster.settings, broker=whole.broker)
        self.harness.now = now
        self.worker = StorageWorker(self.cluster.queue, rng, machine.disk, self.store, self._written, self._disk_failed)
        self._commit: Commit | None = None
        self._turn_is_due = False
        self._broker_tick_at = now
        self._started = now

    def begin(self) -> None:
        """Join the others."""
        now = self.cluster.now_ms()
        contacts = [(other.host, PORT) for other in self.cluster.machines if other is not self.machine]
        self.durable.open(self.machine.kept_state, now)
        if self.machine.number == 1 and self.life == 1:
            self.machine.founding = self.store.identity
        if self.machine.founding == self.store.identity and not self.durable.meta.state.cluster_id:
            self.durable.begin(CLUSTER_ID)
        self.node.swim.join(contacts, now)
        self.wake()

    def takes_clients(self) -> bool:
        """Real nodes listen once they know what there is, or after a while without others, unless they are in doubt."""
        waited = self.cluster.now_ms() - self._started
        return self.durable.is_ready() or (waited >= SETTLE_MS and self.durable.may_serve_alone())

    def sees(self, others: set[int]) -> bool:
        """Whether exactly these nodes are alive for it."""
        return {member.node_id for member in self.node.swim.members.values() if member.state == ALIVE} == others

    # What comes in.

    def tick(self) -> None:
        """Time passes."""
        now = self.cluster.now_ms()
        if now >= self._broker_tick_at:
            self._broker_tick_at = now + BROKER_TICK_MS
            self.harness.broker.tick(now)
            self.node.tick(now)
        self._testify()
        self.durable.tick(now, self._wall_ms())
        self.durable.take_events()
        work = self.durable.scrubbing.take(now, self._wall_ms())
        if work is not None:
            work.perform(self.machine.disk)
            self.durable.scrubbing.done(work, now, self._wall_ms())

    def frame(self, peer: int, frame: bytes) -> None:
        """A linked node says something."""
        self.node.frame(peer, frame, self.cluster.now_ms())

    def datagram(self, sender: str, body: bytes) -> None:
        """Somebody probes, or gossips."""
        self.node.datagram(body, (sender, PORT), self.cluster.now_ms())

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
        """See Edges."""
        self.cluster.network.send_frame(self.machine.number, peer, b"".join(pieces))

    def _turn(self) -> None:
        if self.machine.process is not self:
            return
        if self.machine.paused:
            self.cluster.queue.after(TICK_MS * 1_000, self._turn)
            return
        self._turn_is_due = False
        now = self.cluster.now_ms()
        self.harness.now = now
        self.harness.flush()
        network = self.cluster.network
        for peer, pieces in self.node.turn(now):
            self.ship(peer, pieces)
        for (host, _), body in self.node.swim.take_datagrams():
            network.send_datagram(self.machine.number, int(host.rpartition(".")[2]), body)
        for wish in self.node.take_wishes():
            if wish.host:
                self.wishes[wish.node_id] = None
            else:
                self.wishes.pop(wish.node_id, None)
                network.unlink(self.machine.number, wish.node_id)
        self.harness.flush()
        self.cluster.look_at(self)
        self._tell_clients()

    def _tell_clients(self) -> None:
        gone = False
        for client, came in self.clients:
            if client.has_received or client.closed:
                gone = gone or client.closed
                self.cluster.queue.after(TURN_US, came)
        if gone:
            self.clients = [(client, came) for client, came in self.clients if not client.closed]

    # The disk.

    def kick(self) -> None:
        """See Edges."""
        if not self.worker.is_writing:
            commit = self.store.take_commit()
            if commit is not None:
                self._commit = commit
                self.worker.begin(commit)
        self.worker.look_for_chores()

    def _written(self) -> None:
        self.machine.do(self.life, self._settle)

    def _settle(self) -> None:
        commit = self._commit
        assert commit is not None
        self._commit = None
        self.worker.settle()
        self._witnessing.committed(commit.sequence)
        self._testify()
        self.engine.committed(commit)
        self.kick()

    def _testify(self) -> None:
        """Write the witness, when it is time to."""
        slot = self._witnessing.due(self.cluster.now_ms())
        if slot is not None:
            known = bytearray(self.machine.witness)
            known[slot[0] : slot[0] + len(slot[1])] = slot[1]
            self.machine.witness = bytes(known)

    def _disk_failed(self, error: OSError) -> None:
        self.engine.stop(str(error))

    def keep(self, state: bytes) -> None:
        """See Edges."""
        self.machine.kept_state = state

    def stopped(self, reason: str) -> None:
        """See Edges."""
        self.cluster.stopped(self.machine.number, reason)

    def _wall_ms(self) -> int:
        return WALL_MS + self.cluster.now_ms() - START_MS
