"""Nodes with many groups in one process: RaftHosts that exchange real frames, on disks in memory.

```
 hosts.run(ms)   time passes, frames arrive, disks write
 hosts.cut(1, 2) frames from 1 to 2 are lost
 hosts.stop(1), hosts.start(1)
```
"""

from __future__ import annotations

from flockmq.log.batch import CONFIG, BatchView, control_batch, stamp
from flockmq.raft.codec import Frame, decode_frame
from flockmq.raft.configuration import Configuration
from flockmq.raft.entry import Entry
from flockmq.raft.forwarder import Forwarder
from flockmq.raft.host import RaftHost
from flockmq.raft.messages import Checkpoint
from flockmq.raft.node import RaftNode
from flockmq.raft.outcome import Outcome
from flockmq.raft.ready import Proposal
from flockmq.raft.settings import RaftSettings
from flockmq.raft.state import LEADER, SOUND, HardState
from flockmq.raft.turn import Turn
from flockmq.testing.lockstep import Lockstep
from raft_cluster import SETTINGS, MemoryLog, batch


class Disk:
    """What one group left on a disk."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.hard = HardState()
        self.applied: list[Entry] = []


class Node:
    """One process and its disk."""

    def __init__(self, hosts: Hosts, node_id: int) -> None:
        self.hosts = hosts
        self.id = node_id
        self.boot = 0
        self.disks: dict[int, Disk] = {}
        self.running = False
        self.outcomes: list[Outcome] = []
        self.slow_disk = False
        self.turns: list[Turn] = []
        self.start()

    def start(self) -> None:
        """Begin anew with what is on the disk."""
        self.boot += 1
        self.running = True
        self.turns = []
        self.host = RaftHost(self.id, self.boot, self.hosts.settings, self.hosts.rng, self.hosts.now)
        for group in self.disks:
            self.open(group)

    def open(self, group: int, preferred: int = 0, health: int = SOUND) -> RaftNode:
        """Run the replica that is on the disk."""
        disk = self.disks.setdefault(group, Disk())
        disk.applied = []
        hard = disk.hard if health == SOUND else HardState(disk.hard.term, disk.hard.vote, health)
        return self.host.add_group(group, disk.log, Checkpoint(0, 0, Configuration(())), hard, preferred=preferred)

    def bootstrap(self, group: int, voters: tuple[int, ...], preferred: int = 0) -> None:
        """A replica of a new group."""
        disk = self.disks.setdefault(group, Disk())
        disk.log.items.append(stamp(control_batch(CONFIG, Configuration(voters).encode()), 1, 1, 0))
        disk.hard = HardState(1)
        self.open(group, preferred)

    def group(self, group: int) -> RaftNode:
        return self.host.groups[group]

    def tick(self, now: int) -> None:
        self.host.tick(now)

    def turn(self) -> bool:
        return self.take()

    def take(self) -> bool:
        """One turn."""
        if not self.running or not self.host.has_work():
            return False
        turn = self.host.take_turn()
        for node, data in turn.frames:
            self.hosts.flying.append((self.id, node, data))
        for item in turn.applies:
            self.disks[item.group].applied += item.ready.committed
        if turn.number:
            self.turns.append(turn)
        if not self.slow_disk:
            self.sync()
        for forwarder in self.host.forwarders.values():
            self.outcomes += forwarder.take_outcomes()
        return True

    def sync(self) -> None:
        """All turns become durable."""
        turns, self.turns = self.turns, []
        for turn in turns:
            for item in turn.writes:
                disk = self.disks[item.group]
                disk.log.write(item.ready, b"")
                if item.ready.hard_state is not None:
                    disk.hard = item.ready.hard_state
            self.host.persisted(turn.number)

    def payloads(self, group: int) -> list[bytes]:
        """What was applied."""
        entries = self.disks[group].applied
        return [record.payload for entry in entries if entry.count for record in BatchView(entry.data).records()]


class Hosts(Lockstep[Node, tuple[int, int, bytes]]):
    """All nodes."""

    def __init__(self, size: int = 3, seed: int = 1, settings: RaftSettings = SETTINGS) -> None:
        super().__init__(seed, step_ms=settings.tick_ms)
        self.settings = settings
        self.frames: list[Frame] = []
        self.nodes |= {node: Node(self, node) for node in range(1, size + 1)}

    def bootstrap(self, group: int, voters: tuple[int, ...] = (1, 2, 3), preferred: int = 0) -> None:
        """Begin a group on all its nodes."""
        for node in voters:
            self.nodes[node].bootstrap(group, voters, preferred)

    def deliver(self, node: Node, part: tuple[int, int, bytes]) -> None:
        self.frames.append(decode_frame(part[2]))
        node.host.receive(part[2])

    def run(self, ms: int) -> None:
        self.settle()
        super().run(ms)

    def leader(self, group: int) -> Node:
        """The leader of a group, once there is one."""
        for _ in range(400):
            leading = [
                node
                for node in self.nodes.values()
                if node.running and group in node.host.groups and node.group(group).state.role == LEADER
            ]
            if leading:
                return max(leading, key=lambda node: node.group(group).state.term)
            self.run(50)
        raise AssertionError(f"group {group} finds no leader")

    def propose(self, group: int, payload: bytes) -> Proposal:
        """A batch with one record."""
        proposal = self.leader(group).host.propose(group, batch(payload))
        assert isinstance(proposal, Proposal), proposal.reason
        return proposal

    def forwarder(self, node: int, group: int) -> Forwarder:
        """Runs of a node for a group."""
        forwarder = Forwarder(group, node, self.nodes[node].boot)
        self.nodes[node].host.add_forwarder(forwarder)
        return forwarder

    def stop(self, node: int) -> None:
        """The process dies."""
        self.nodes[node].running = False
        self.nodes[node].turns = []

    def start(self, node: int) -> None:
        """The process starts."""
        self.nodes[node].start()
