"""Durable topics around a clustered broker, as one pure object: a whole node but for sockets and disk.

```
 ClusterNode (links, membership, routes)      RaftEngine (all groups of this node, one store)
        |   channel RAFT: Consensus <------------>|  receive(peer, frame), flush(): one turn, send_now()
        |   channel FEEDS                         | on_applied(group, ready)
        v                                         v
   group 0 --> Meta: cluster state --> Members (its leader alone), Partitions (replicas here), topic map, clients
   others ---> Machines (cursors, QoS 2 ids, sinks), Logs (long polls, feeds), Delivery (subscribers here)
```
Everything happens in the turns and ticks of the node that it is wrapped around: one frame per peer and turn.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.cluster.state import ClusterState
from flockmq.durable.calls import PartitionCalls
from flockmq.durable.cursors.cursors import Cursors
from flockmq.durable.cursors.sweeping import CursorSweeper
from flockmq.durable.deliver.delivery import Delivery
from flockmq.durable.groups.room import GroupRoom
from flockmq.durable.logs.local import EngineLogs
from flockmq.durable.logs.logs import Logs
from flockmq.durable.machine.control import Control
from flockmq.durable.machine.fences import Fences
from flockmq.durable.machine.machines import Listener, Machines
from flockmq.durable.order import after_consensus, before_consensus, slow_tick_of
from flockmq.durable.publish.appending import Appending
from flockmq.durable.publish.topics import Topics
from flockmq.durable.qos2.releases import Releases
from flockmq.durable.replicas.partitions import Partitions
from flockmq.durable.replicas.retention_sweeper import RetentionSweeper
from flockmq.durable.replicas.scrubbing import Scrubbing
from flockmq.durable.replicas.status import Statuses
from flockmq.durable.replicas.stored import StoredBytes
from flockmq.durable.replicas.usage import NamespaceUsage
from flockmq.durable.sessions.advancing import Advancing
from flockmq.durable.sessions.holding import CaptureHolds
from flockmq.durable.sessions.room import SessionRoom
from flockmq.durable.sessions.submitting import SessionLog
from flockmq.durable.sinks.sinks import Sinks
from flockmq.durable.state.barrier import AppliedBarrier
from flockmq.durable.state.facts import INDEX, MapFacts
from flockmq.durable.state.group0 import GROUP
from flockmq.durable.state.group_directory import GroupDirectory
from flockmq.durable.state.layout import Layout
from flockmq.durable.state.members import Members, seen_member
from flockmq.durable.state.meta import Meta
from flockmq.durable.state.wall import WallClock
from flockmq.errors import FlockError
from flockmq.peering.channels import RAFT
from flockmq.peering.node import Base, Upper
from flockmq.raft.engine import RaftEngine
from flockmq.raft.host import RaftHost

if TYPE_CHECKING:
    from flockmq.cluster.policy import PolicySettings, SeenMember
    from flockmq.durable.parts import Edges
    from flockmq.log.store import Store
    from flockmq.raft.ready import Ready
    from flockmq.raft.replicas import Replica
    from flockmq.raft.settings import RaftSettings

API: Final = b"f/api"
ZONE: Final = b"f/zone"
"""What a node tells of itself in owned maps, as text."""
LEAVING: Final = b"f/leaving"
"""It wants to be free of replicas and votes."""
STORE: Final = b"f/store"
"""The id of its store, eight bytes."""
WHY_RETIRED: Final = (
    "The store of this node was replaced by another one since it was last used here, and the cluster has gone on "
    "without it. Move the folder `store` aside and start the node again: the others refill it."
)
TEXT_BYTES_MAX: Final = 256
SLOW_TICK_MS: Final = 100
"""How often everything but consensus looks at the time."""


class Consensus:
    """The component of channel RAFT: frames of consensus travel on the links that are there anyway.

    Frames leave before this node writes and applies what the turn brought: others wait for them, and write meanwhile.
    Whether a peer is there consensus finds out by itself, with heartbeats; links only tell it whether they have room.
    """

    def __init__(
        self,
        engine: RaftEngine,
        send_now: Callable[[int, bytes], None],
        before: tuple[tuple[str, Callable[[int], None]], ...],
        after: tuple[tuple[str, Callable[[int], None]], ...],
    ) -> None:
        """``before`` and ``after`` a turn of consensus, in this order: what goes into it, and what follows from it."""
        self._engine = engine
        self._send_now = send_now
        self._before = [flush for _, flush in before]
        self._after = [flush for _, flush in after]

    def peer_up(self, peer: int, now: int) -> None:  # noqa: ARG002
        """A new link has room."""
        self._engine.writable(peer, True)

    def peer_down(self, peer: int, now: int) -> None:
        """What was on its way is lost, which consensus notices."""

    def peer_dead(self, peer: int, now: int) -> None:
        """Whether a node votes is not for membership to decide."""

    def receive(self, peer: int, body: bytes, now: int) -> None:  # noqa: ARG002  (a frame names its sender itself)
        """A frame; FlockError ends the link. Anything else is a bug: consensus stops."""
        try:
            self._engine.receive(body)
        except FlockError:
            raise
        except Exception as error:
            self._fail(error)

    def tick(self, now: int) -> None:
        """The engine has a clock of its own pace, see ``DurableNode.tick``."""

    def flush(self, now: int) -> None:
        """Have a turn."""
        try:
            for flush in self._before:
                flush(now)
            self._engine.turn(self._send_now)
            for flush in self._after:
                flush(now)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._engine.fail(error, "".join(traceback.format_exception(error)[-8:]))


class DurableNode:
    """See the module. ``open`` it once, then ``tick`` every ``tick_ms`` of consensus."""

    def __init__(
        self,
        base: Base,
        store: Store,
        raft: RaftSettings,
        edges: Edges,
        policy: PolicySettings | None,
        now: int,
        wall_ms: int,
    ) -> None:
        self.base = base
        self.node_id = node_id = base.node_id
        self.broker = base.broker
        self._now = self._slow_at = now
        self._wall = WallClock(wall_ms - now)
        self._topics_version = -1
        self._mine_since_ms = 0
        """Since when the cluster state has this node in its present state."""
        self._jumps = 0
        self._edges = edges
        broker = base.broker.node
        host = RaftHost(node_id, base.boot, raft, base.rng, now, self._admits)
        self.engine = RaftEngine(
            host, store, self._applied, self._state_of, edges.stopped, edges.kick, edges.wake, self._has_room
        )
        facts = MapFacts(base.maps, base.swim, node_id)
        self.meta = Meta(
            self.engine, base.calls, facts, base.rng, self._wall, edges, self._state_changed, self._was_taken_out
        )
        self.barrier = AppliedBarrier(facts)
        self.members = Members(self.meta, self.engine, self._seen, policy)
        self.partitions = Partitions(self.meta, self.engine, self._opened, self._closed)
        self.layout = Layout(lambda: self.meta.state, store.held_bytes)
        self.group_directory = GroupDirectory(lambda: self.meta.state)
        self.calls = PartitionCalls(node_id, self.engine, base.calls, self.layout)
        # The state behind partitions, and what people and programs ask of it.
        self.machines = Machines()
        self.fences = Fences(self.engine, self.machines)  # QoS 2, exactly once into the log
        self.control = Control(self.engine, self.machines, self.fences, self._wall)
        self.local = EngineLogs(self.engine, self.machines, self.layout)
        self.logs = Logs(node_id, self.local, self.layout, base.calls, base.exchange, edges.wake)
        self.cursors = Cursors(self.calls, self.control, self.machines, self.local)
        self.retention_sweeper = RetentionSweeper(
            self.engine, self.machines, self.layout, self.group_directory, broker.events, self._wall
        )
        self.cursor_sweeper = CursorSweeper(self.engine, self.machines, self.layout, self.control)
        self.scrubbing = Scrubbing(self.engine, self.calls, store.settings)
        self.statuses = Statuses(node_id, self.engine, self.machines, base.calls, self.scrubbing)
        self.sinks = Sinks(self.calls, self.control, self.machines)
        calls, meta, control, machines = self.calls, self.meta, self.control, self.machines
        log = SessionLog(calls, meta)
        self.releases = Releases(calls, control, machines, log, base.broker.sessions)
        # Publishers and subscribers of this node.
        self.appending = Appending(broker, self.engine.appends, raft.entry_bytes_max, self.releases)
        self.topics = Topics(broker.table, host, self.appending)
        self.delivery = Delivery(broker, self.logs)
        self.session_room = SessionRoom(
            base, calls, meta, self.barrier, control, machines, self.delivery, self.appending, log, self.releases
        )
        self.group_room = GroupRoom(
            base, self.calls, self.meta, self.control, self.machines, self.logs, self.group_directory
        )
        self.advancing = Advancing(self.logs, self.session_room.shards)
        self.capture_holds = CaptureHolds(calls, meta, machines, log, self.logs, self.cursors, self.advancing)
        self.usage = NamespaceUsage(base.maps, node_id, broker.spaces, StoredBytes(self.engine, self.layout))
        base.maps.set(STORE, store.identity.to_bytes(8, "little"))
        self.consensus = Consensus(self.engine, base.exchange.send_now, before_consensus(self), after_consensus(self))
        self.upper = Upper({RAFT}, self.engine.writable, {INDEX: self.meta.peer_told})
        self._ticks = [tick for _, tick in slow_tick_of(self)]
        room = self.session_room
        self._followers: tuple[Listener, ...] = (
            self.control,
            self.logs,
            self.sinks,
            room.shards,
            room.firing,
            self.group_room.dispatching,
            self.group_room.letters,
        )
        """Parts that follow what partitions apply, in the order in which they hear of it."""

    def open(self, copy: bytes, now: int, *, is_copy_lost: bool = False) -> None:
        """Run what the store holds. ``copy``: the cluster state that ``keep`` saved last, empty when there is none.

        ``is_copy_lost``: the last one can't be read or is outdated. Clients wait until the state is known again.
        """
        if is_copy_lost:
            self.meta.doubt_all()
        if copy:
            self.meta.restore(copy)
        self._refuse_retired(self.meta.state)
        self.meta.start()
        self.partitions.start()
        self.tick(now, self._wall.at(now))

    def is_ready(self) -> bool:
        """Whether this node knows the topics and persistent sessions that there are, and runs its replicas."""
        return self.meta.is_current and not self.partitions.pending and self.session_room.leases.is_ready()

    def may_serve_alone(self) -> bool:
        """Whether clients can be served before a majority has confirmed what this node knows."""
        return not self.meta.is_in_doubt

    def begin(self, cluster_id: int) -> None:
        """This node minted the cluster."""
        self.meta.begin(cluster_id)

    def tick(self, now: int, wall_ms: int) -> bool:
        """Time passes. True: the slow tick ran, so a turn is due; consensus asks for its own turns."""
        self._now = now
        self._wall.offset_ms = wall_ms - now
        self.engine.tick(now)
        if now < self._slow_at:
            return False
        self._slow_at = now + SLOW_TICK_MS
        for tick in self._ticks:
            tick(now)
        return True

    def tell_about_me(self, api: str, zone: str) -> None:
        """Let the others know where this node's admin API is, and in which zone it stands."""
        self.base.maps.set(API, api.encode())
        self.base.maps.set(ZONE, zone.encode())

    def set_leaving(self, is_leaving: bool) -> None:
        """Ask the cluster to take this node's replicas and votes away, or to let it have some again."""
        self.meta.removal.set_leaving(is_leaving)
        if is_leaving:
            self.base.maps.set(LEAVING, b"1")
        else:
            self.base.maps.delete(LEAVING)

    def belongings(self) -> int:
        """What the cluster would miss if this node were gone: its replicas, group 0's and those on their way too."""
        me = self.base.node_id
        state = self.meta.state
        held = sum(1 for partition in state.moving() if me in partition.members())
        return max(state.loads.replicas.get(me, 0), held) + len(self.engine.replicas)

    def hand_over(self) -> int:
        """This node is about to stop: let others lead what it leads; how many groups it still leads."""
        return self.engine.hand_over()

    def take_events(self) -> list[tuple[str, dict[str, object]]]:
        """What happened, for the log."""
        events = [*self.engine.events]
        self.engine.events.clear()
        return events

    # --- within ---

    def _applied(self, group: int, ready: Ready) -> None:
        if group == GROUP:
            self.meta.applied(ready)
            return
        self.partitions.applied(group, ready)
        if self.machines.restored(group, ready, self.engine):
            for follower in self._followers:
                follower.applied(group, [])
        if self.machines.applied(group, ready):
            for follower in self._followers:
                follower.applied(group, ready.committed)
        self.delivery.applied(group, ready, self._now)

    def _state_of(self, group: int) -> bytes:
        return self.meta.state_bytes() if group == GROUP else self.machines.state_of(group)

    def _opened(self, group: int, replica: Replica) -> None:
        self.machines.opened(group, replica)
        self.retention_sweeper.opened(group, replica)
        if 0 < self.meta.groups_at_start <= group and replica.log.last_index() == 1:
            self.delivery.begun(group)

    def _closed(self, group: int) -> None:
        self.machines.closed(group)
        for follower in self._followers:
            follower.closed(group)
        self.scrubbing.closed(group)
        self.delivery.closed(group, self._now)

    def _refuse_retired(self, state: ClusterState) -> None:
        """Take part no more with a store that the cluster has gone on without."""
        me = state.nodes.get(self.base.node_id)
        if me is not None and self.engine.store.identity in me.retired and not self.engine.stopped:
            self.engine.events.append(("store_retired", {"message": WHY_RETIRED}))
            self.engine.stop(WHY_RETIRED)

    def begin_turn(self, now: int) -> None:
        """A turn of consensus begins."""
        self._now = now
        self.calls.now = now

    def _was_taken_out(self, group: int) -> None:
        self.partitions.was_closed(group)

    def _admits(self, group: int, batch: bytes) -> int:
        return self.fences.admits(group, batch)

    def _has_room(self, group: int) -> None:
        self.appending.on_room(group)

    def _state_changed(self, state: ClusterState) -> None:
        self.partitions.follow(state)
        self._refuse_retired(state)
        self.topics.follow(state, self._now)
        self.session_room.leases.follow()
        self._follow_own_record(state)
        if state.versions.topics != self._topics_version:
            # A whole state that took the place of commands may have topics that are older than this node's news.
            self._topics_version = state.versions.topics
            is_restored = self.meta.ledger.jumps != self._jumps
            self._jumps = self.meta.ledger.jumps
            self.delivery.topics_changed(self._now, is_restored)
        self._edges.changed(state)

    def _follow_own_record(self, state: ClusterState) -> None:
        """Notice that the cluster held this node dead: others may have its sessions."""
        mine = state.nodes.get(self.node_id)
        if mine is None or mine.since_ms == self._mine_since_ms:
            return
        if self._mine_since_ms:
            self.session_room.reclaiming.reclaim_all()
        self._mine_since_ms = mine.since_ms

    def _seen(self) -> list[SeenMember]:
        maps = self.base.maps
        return [
            seen_member(
                member,
                _text(maps.get(member.node_id, API)),
                _text(maps.get(member.node_id, ZONE)),
                maps.get(member.node_id, LEAVING) is not None,
                _store_id(maps.get(member.node_id, STORE)),
            )
            for member in self.base.swim.members.values()
        ]


def _store_id(value: bytes | None) -> int:
    """The id of another node's store; 0 when it told none that is one."""
    return int.from_bytes(value, "little") if value is not None and len(value) == 8 else 0


def _text(value: bytes | None) -> str:
    """A text that another node told; empty when it told none that is one."""
    if value is None or len(value) > TEXT_BYTES_MAX:
        return ""
    return value.decode("utf-8", "replace")
