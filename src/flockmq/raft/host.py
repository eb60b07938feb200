"""All groups of one node: one frame per peer and turn, one write for all groups, heartbeats in step, quiet groups free.

```
          frames of peers        proposals, reads, runs        time             disk
               |                        |                       |                |
           receive()            propose() ... wake()         tick(now)      persisted(n)
               v                        v                       v                v
        .------------------------------------------------------------------------------.
        |   RaftHost   groups: RaftNode + SenderDesk     peers: heard, boot, what to say |
        `--------------------------------------|---------------------------------------'
                                               v
             take_turn() --> writes of all groups as one, entries to apply, one frame per peer
```
Only groups that are *awake* are ticked, only *dirty* ones looked at in a turn. Quiet groups are neither: the host
watches over the nodes of their leaders with one beat per peer, and wakes them when a node falls silent, was started
anew or is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.log.errors import DamageError, SpoiledError
from flockmq.raft.clock import TickClock
from flockmq.raft.codec import decode_frame, encode_frame, message_bytes
from flockmq.raft.errors import SafetyError
from flockmq.raft.handing_over import can_go_to, successor
from flockmq.raft.messages import Append, Forward, ForwardReply, Heartbeat, SnapshotChunk, TimeoutNow, VoteRequest
from flockmq.raft.node import RaftNode
from flockmq.raft.peers import Peer
from flockmq.raft.ready import NOT_LEADER, Proposal, Refusal
from flockmq.raft.senders import DeskRules, SenderDesk, SenderTable
from flockmq.raft.state import LEADER, Reach, Stored
from flockmq.raft.turn import TURN_WRITE_BYTES_MAX, Flight, GroupReady, Turn

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.raft.forwarder import Forwarder
    from flockmq.raft.messages import Checkpoint, Message
    from flockmq.raft.ports import LogReader, SnapshotSink, SnapshotSource
    from flockmq.raft.settings import RaftSettings
    from flockmq.raft.state import HardState

TURN_SEND_BYTES_MAX: Final = 16_777_216
"""About how much goes into the frame for one peer."""
UNKNOWN_MAX: Final = 1_024
STRANGER_MS: Final = 60_000
BALANCE_MS: Final = 1_000
BALANCE_GROUPS_MAX: Final = 8
"""Groups whose leadership may be handed over per look, so that balancing never stops everything at once."""


class RaftHost:
    """See the module. ``boot`` must be larger than at any start before."""

    def __init__(
        self,
        node_id: int,
        boot: int,
        settings: RaftSettings,
        rng: random.Random,
        now: int,
        admits: Callable[[int, bytes], int] | None = None,
    ) -> None:
        """``admits`` judges batches that arrive for a group led here (``DeskRules.admits``); None: all are welcome."""
        self.node_id = node_id
        self.boot = boot
        self.settings = settings
        self.rng = rng
        self.clock = TickClock(settings.tick_ms, now)
        self.groups: dict[int, RaftNode] = {}
        self.desks: dict[int, SenderDesk] = {}
        self.rules = DeskRules(admits)
        """What their desks go by, beyond Raft."""
        self.forwarders: dict[int, Forwarder] = {}
        self.preferred: dict[int, int] = {}
        """Group -> the node that should lead it."""
        self.elsewhere: dict[int, tuple[int, ...]] = {}
        """Groups without a replica here -> nodes that are said to have one, for runs of this node."""
        self.peers: dict[int, Peer] = {}
        self.reach = Reach()
        self.unreachable = self.reach.unreachable
        self.congested = self.reach.congested
        self.broken: dict[int, FlockError] = {}
        """Groups that had to stop, and why: damage on the disk, or a promise of Raft that would not hold."""
        self._unknown: dict[int, int] = {}
        self._awake: dict[int, None] = {}
        self._dirty: dict[int, None] = {}
        self._held: dict[int, None] = {}
        self._forwarding: dict[int, None] = {}
        """Forwarders to look at in the next turn."""
        self._unfinished: dict[int, None] = {}
        """Forwarders with runs that have no outcome."""
        self._is_answer = True
        """Whether what is being delivered was said to this life of the node, not to one before its last start."""
        self._flights: list[Flight] = []
        self._number = 0
        self._beat_at = 0
        self._balance_at = BALANCE_MS

    # Groups.

    def add_group(
        self,
        group: int,
        log: LogReader,
        checkpoint: Checkpoint,
        hard: HardState,
        commit: int = 0,
        preferred: int = 0,
        table: SenderTable | None = None,
        source: SnapshotSource | None = None,
        sink: SnapshotSink | None = None,
    ) -> RaftNode:
        """Run a replica of a group. ``preferred``: its leader by choice. ``table`` belongs to the checkpoint."""
        priority = 0 if preferred in (0, self.node_id) else 1
        node = RaftNode(
            group,
            self.node_id,
            self.settings,
            self.clock,
            self.rng,
            Stored(log, checkpoint, hard, commit),
            priority,
            source,
            sink,
            self.reach,
        )
        if preferred:
            node.state.preferred = preferred
            node.draw_campaign()
        self.groups[group] = node
        self.desks[group] = SenderDesk(node, table or SenderTable(), self.rules)
        self.preferred[group] = preferred
        self.broken.pop(group, None)
        self._unknown.pop(group, None)
        for member in node.state.configuration.members():
            self._peer(member)
        self._touch(group)
        return node

    def prefer(self, group: int, preferred: int) -> None:
        """Set the node that should lead a group, 0 for any: it campaigns first, and others hand over to it."""
        state = self.groups[group].state
        self.preferred[group] = preferred
        state.preferred = preferred
        state.priority = 0 if preferred in (0, self.node_id) else 1

    def remove_group(self, group: int) -> None:
        """Stop a replica, without a word to the others."""
        self.groups.pop(group, None)
        self.desks.pop(group, None)
        self.preferred.pop(group, None)
        self._awake.pop(group, None)
        self._dirty.pop(group, None)
        self._held.pop(group, None)

    def take_unknown(self) -> dict[int, int]:
        """Groups that other nodes believe to be here: group -> the node that spoke of it."""
        unknown = self._unknown
        self._unknown = {}
        return unknown

    # What users of groups ask.

    def propose(self, group: int, batch: bytes) -> Proposal | Refusal:
        """Put a batch into a group's log, if its leader is here."""
        node = self.groups.get(group)
        if node is None:
            return Refusal(NOT_LEADER, f"Group {group} has no replica on this node.", 0)
        self._touch(group)
        return node.propose(batch)

    def append_once(self, group: int, sender: int, sequence: int, batch: bytes) -> bool:
        """See ``RaftEngine.append_once``."""
        node = self.groups.get(group)
        if node is None or group in self.broken:
            return False
        self._follow_role(group)
        desk = self.desks[group]
        if desk.has_committed(sender, sequence):
            return True
        self._touch(group)
        last = desk.last_of(sender)
        if sequence > last:
            self._deliver(Forward(group, self.node_id, self.node_id, desk.term, last, 0, batch))
        return False

    def read(self, group: int, number: int, now: int) -> bool:
        """Ask from which index on a read may be served; ``GroupReady.ready.reads`` answers. False: no replica here."""
        node = self.groups.get(group)
        if node is None:
            return False
        self._touch(group)
        node.read(number, now)
        return True

    def change(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> Proposal | Refusal:
        """Change the members of a group, if its leader is here."""
        node = self.groups.get(group)
        if node is None:
            return Refusal(NOT_LEADER, f"Group {group} has no replica on this node.", 0)
        self._touch(group)
        return node.change(voters, learners)

    def go_alone(self, group: int, term: int) -> None:
        """Let the replica here decide alone, see ``RaftNode.go_alone``."""
        self._touch(group)
        self.groups[group].go_alone(term)

    def transfer(self, group: int, target: int) -> Refusal | None:
        """Hand leadership of a group over, if its leader is here."""
        node = self.groups.get(group)
        if node is None:
            return Refusal(NOT_LEADER, f"Group {group} has no replica on this node.", 0)
        self._touch(group)
        return node.transfer(target)

    def wake(self, group: int) -> None:
        """End the silence of a group."""
        node = self.groups.get(group)
        if node is not None:
            node.wake()
            self._touch(group)

    def mended(self, group: int) -> None:
        """Entries that could not be read are there again: apply and send them."""
        node = self.groups.get(group)
        if node is not None:
            node.state.dirty = True
            self._touch(group)

    def add_forwarder(self, forwarder: Forwarder) -> None:
        """Let runs of this node for a group travel with its frames."""
        self.forwarders[forwarder.group] = forwarder
        self._forwarding[forwarder.group] = None

    def remove_forwarder(self, group: int) -> None:
        """The group is no more: no node will ever answer."""
        self.forwarders.pop(group, None)
        self._forwarding.pop(group, None)
        self._unfinished.pop(group, None)

    def submitted(self, group: int) -> None:
        """A run was given to the group's forwarder."""
        self._forwarding[group] = None

    # What the network says.

    def receive(self, data: bytes) -> None:
        """A frame has arrived. FrameError: the link should be closed."""
        frame = decode_frame(data)
        if frame.receiver != self.node_id or frame.sender == self.node_id:
            return
        peer = self._peer(frame.sender)
        if not peer.is_current(frame.boot):
            return  # said before its last start
        is_first = peer.heard_frame(frame.boot, frame.number, self.clock, self.settings.gap_ms)
        if peer.was_restarted:
            peer.was_restarted = False
            self._node_restarted(peer.node)
        if not peer.reachable:
            peer.reachable = True
            self.unreachable.discard(peer.node)
            self._node_is_back(peer.node)
        self._is_answer = frame.receiver_boot == self.boot
        for message in frame.messages:
            # A run is taken in at most once per attempt: what arrives twice, or late, must not be appended after all.
            if is_first or not isinstance(message, Forward):
                self._deliver(message)

    def _deliver(self, message: Message) -> None:
        group = message.group
        if isinstance(message, ForwardReply):
            forwarder = self.forwarders.get(group)
            if forwarder is not None:
                forwarder.on_reply(message)
                self._forwarding[group] = None
            return
        node = self.groups.get(group)
        if node is None:
            is_real = isinstance(message, (Append, Heartbeat, SnapshotChunk, VoteRequest))
            if is_real and len(self._unknown) < UNKNOWN_MAX:
                self._unknown[group] = message.sender
            return
        if group in self.broken:
            if isinstance(message, Forward):
                self._hand_away(group)  # the sender has not heard of another leader
            return
        self._awake[group] = None
        try:
            if isinstance(message, Forward):
                self._follow_role(group)
                answer = self.desks[group].accept(message)
                if answer is not None:
                    self._send(answer)
            else:
                node.state.is_answer = self._is_answer
                node.step(message)
                self._follow_role(group)
        except (DamageError, SafetyError) as error:
            self.break_group(group, error)
            return
        if node.has_ready():  # the answer of the last of three changes nothing: no need for a turn
            self._dirty[group] = None

    def _follow_role(self, group: int) -> None:
        desk = self.desks[group]
        if desk.is_up_to_date():
            return
        try:
            answers = desk.follow_role()
        except SpoiledError:
            return  # again once the entry is fetched from another replica
        except DamageError as error:
            self.break_group(group, error)
            return
        for answer in answers:
            self._send(answer)

    def pause(self, node: int) -> None:
        """The link to a node is full: no entries for it, until ``resume``."""
        self.congested.add(node)

    def resume(self, node: int) -> None:
        """The link has room again."""
        self.congested.discard(node)
        for group in self._held:
            self._dirty[group] = None
        self._held = {}

    # Time.

    def tick(self, now: int) -> None:
        """Time passes; call it every ``tick_ms``."""
        self.clock.tick(now)
        elapsed = self.clock.elapsed
        for group in list(self._awake):
            node = self.groups[group]
            node.on_tick()
            if node.has_ready():
                self._dirty[group] = None
                self._follow_role(group)
            if node.state.quiet:
                del self._awake[group]
        self._watch(elapsed)
        for group in list(self._unfinished):
            self.forwarders[group].tick(elapsed)
            self._forwarding[group] = None
        if elapsed >= self._beat_at:
            gap = self.settings.heartbeat_ms
            self._beat_at = (elapsed // gap + 1) * gap
            for peer in self.peers.values():
                peer.beat_is_due = True
        if elapsed >= self._balance_at:
            self._balance_at = elapsed + BALANCE_MS
            self._balance()
            self._forget_strangers(elapsed)

    def _watch(self, elapsed: int) -> None:
        """Notice nodes that have fallen silent."""
        for peer in self.peers.values():
            if peer.reachable and elapsed - peer.heard_at >= self.settings.election_ms:
                peer.reachable = False
                self.unreachable.add(peer.node)
                self._node_is_lost(peer.node)

    def _node_is_lost(self, lost: int) -> None:
        """Groups that it led elect another leader. Only now the replicas know which of them are left, and take turns
        without it: by their own clocks they would wait for it as well.
        """
        for group, node in self.groups.items():
            state = node.state
            if state.leader == lost:
                node.leader_is_lost()
                self._touch(group)
            elif state.quiet and state.role == LEADER:
                reachable = set(state.configuration.members()) - self.unreachable
                if not state.configuration.has_quorum(reachable):
                    node.wake()  # it will notice that it has no quorum
                    self._touch(group)

    def _node_restarted(self, restarted: int) -> None:
        """Whatever it led it leads no more, and any lease it had is gone with its process."""
        for group, node in self.groups.items():
            if node.state.leader == restarted:
                node.leader_is_lost()
                self._touch(group)
        self._node_is_back(restarted)

    def _node_is_back(self, back: int) -> None:
        """Groups that fell silent without it may have more than it knows."""
        for group, node in self.groups.items():
            progress = node.state.progress.get(back)
            if progress is None:
                continue
            # It has to answer for itself before the group is quiet again; then there is nothing else to wait for.
            progress.heard_round = -1
            progress.knows_commit = 0
            if node.state.quiet:
                node.wake()
                node.state.work_at -= self.settings.quiet_after_ms
                self._touch(group)

    def _balance(self) -> None:
        """Hand groups over to the nodes that should lead them."""
        begun = 0
        for group, node in self.groups.items():
            if begun >= BALANCE_GROUPS_MAX:
                return
            wanted = self.preferred[group]
            if wanted in (0, self.node_id) or wanted in self.unreachable or not can_go_to(node.state, wanted):
                continue
            if node.transfer(wanted) is None:
                self._touch(group)
                begun += 1

    def _forget_strangers(self, elapsed: int) -> None:
        """Peers that share no group with us any more, and are silent."""
        silent = [node for node in self.unreachable if elapsed - self.peers[node].heard_at > STRANGER_MS]
        if not silent:
            return
        members = {member for node in self.groups.values() for member in node.state.configuration.members()}
        for node in silent:
            if node not in members:
                del self.peers[node]
                self.unreachable.discard(node)
                self.congested.discard(node)

    # What comes out.

    def has_work(self) -> bool:
        """Whether ``take_turn`` may have something."""
        if self._dirty or self._forwarding:
            return True
        return True in [peer.has_something() for peer in self.peers.values()]

    def take_turn(self, may_write: bool = True) -> Turn:
        """Everything all groups ask for. ``may_write`` False: the disk has no room, only talk."""
        turn = Turn()
        self._forward_runs()
        dirty = self._dirty
        self._dirty = {}
        size = 0
        for group in dirty:
            if size >= TURN_WRITE_BYTES_MAX:
                self._dirty[group] = None  # the next turn begins with these
                continue
            size += self._take_group(group, turn, may_write)
        self._forward_runs()  # those that were answered just now have no more to say: that needs no turn of its own
        if turn.writes:
            self._number += 1
            turn.number = self._number
            flight = Flight(turn.number)
            for write in turn.writes:
                flight.nodes.append(self.groups[write.group])
                flight.numbers.append(write.ready.number)
            self._flights.append(flight)
        self._take_frames(turn)
        return turn

    def _take_group(self, group: int, turn: Turn, may_write: bool) -> int:
        """One group's share; how many bytes it writes."""
        node = self.groups.get(group)
        if node is None or group in self.broken or not node.has_ready():
            return 0
        try:
            ready = node.take_ready(may_write)
        except (DamageError, SafetyError) as error:
            self.break_group(group, error)
            return 0
        desk = self.desks[group]
        for message in ready.messages:
            self._send(message)
        if ready.committed:
            for message in desk.applied(ready.committed):
                self._send(message)
                if message.receiver != self.node_id:
                    self._peer(message.receiver).is_waiting = True
        self._follow_role(group)
        if node.has_ready():
            self._dirty[group] = None
        if node.state.held_back:
            node.state.held_back = False
            self._held[group] = None
        if ready.install is not None or ready.committed or ready.reads:
            turn.applies.append(GroupReady(group, ready))
        if not ready.number:
            return 0
        turn.writes.append(GroupReady(group, ready))
        size = 64
        for entry in ready.entries:
            size += len(entry.data)
        return size

    def _take_frames(self, turn: Turn) -> None:
        """Send first to peers awaiting a ForwardReply; each send delays the next."""
        for peer in self.peers.values():
            if peer.has_something():
                place = 0 if peer.is_waiting else len(turn.frames)
                messages, number = peer.take()
                turn.frames.insert(place, (peer.node, self._encode(peer, number, messages)))
            if peer.is_full:
                peer.is_full = False
                self.resume(peer.node)

    def _encode(self, peer: Peer, number: int, messages: list[Message]) -> bytes:
        return encode_frame(self.node_id, self.boot, peer.node, peer.boot, number, messages)

    def _forward_runs(self) -> None:
        """Send runs to leaders; those for this very node take the same way without a frame."""
        forwarding = self._forwarding
        self._forwarding = {}
        for group in forwarding:
            forwarder = self.forwarders[group]
            node = self.groups.get(group)
            if node is not None and group in self.broken:
                if forwarder.leader in (0, self.node_id) or forwarder.is_unanswered():
                    forwarder.set_leader(self._another_member(node), 0)
            elif node is not None:
                if forwarder.leader in self.unreachable:
                    forwarder.set_leader(0, 0)  # runs that no node was sent can be refused for certain
                if node.state.leader and node.state.leader not in self.unreachable:
                    forwarder.set_leader(node.state.leader, node.state.term)
            elif not forwarder.leader or forwarder.leader in self.unreachable or forwarder.is_unanswered():
                forwarder.set_leader(self._replica_elsewhere(group), 0)
            for forward in forwarder.take_messages():
                self._send(forward)
            if forwarder.runs:
                self._unfinished[group] = None
            else:
                self._unfinished.pop(group, None)

    def _send(self, message: Message) -> None:
        if message.receiver == self.node_id:
            self._deliver(message)
            return
        peer = self._peer(message.receiver)
        peer.say(message, message_bytes(message))
        if peer.out_bytes >= TURN_SEND_BYTES_MAX and peer.node not in self.congested:
            peer.is_full = True
            self.congested.add(peer.node)

    def persisted(self, number: int) -> None:
        """All turns up to ``number`` are durable."""
        done = 0
        while done < len(self._flights) and self._flights[done].number <= number:
            flight = self._flights[done]
            for position in range(len(flight.nodes)):
                node = flight.nodes[position]
                group = node.state.group
                if group in self.broken:
                    continue  # its writes may have been left out
                try:
                    node.persisted(flight.numbers[position])
                except (DamageError, SafetyError) as error:
                    self.break_group(group, error)
                    continue
                if self.groups.get(group) is node:
                    self._awake[group] = None
                    if node.has_ready():
                        self._dirty[group] = None
                    self._follow_role(group)
                    for message in self.desks[group].stored():
                        self._send(message)
            done += 1
        del self._flights[:done]

    def break_group(self, group: int, error: FlockError) -> None:
        """Stop a group that can't go on: it says nothing any more. The others do."""
        self.broken[group] = error
        self._awake.pop(group, None)
        self._dirty.pop(group, None)
        self._hand_away(group)

    def _hand_away(self, group: int) -> None:
        """Hand leadership over, if this replica led. In a quiet group the others would never notice."""
        node = self.groups.get(group)
        if node is None or node.state.role != LEADER:
            return
        node.state.lease_is_safe = False
        best = successor(node.state, self.unreachable)
        if best:
            self._send(TimeoutNow(group, self.node_id, best, node.state.term))

    # Within.

    def _peer(self, node: int) -> Peer:
        peer = self.peers.get(node)
        if peer is None:
            peer = Peer(node, self.clock.elapsed)
            if node != self.node_id:
                self.peers[node] = peer
        return peer

    def _replica_elsewhere(self, group: int) -> int:
        """A node with a replica of a group that has none here: it knows the leader, or a node that may know it."""
        others = [
            node for node in self.elsewhere.get(group, ()) if node not in self.unreachable and node != self.node_id
        ]
        return self.rng.choice(others) if others else 0

    def _another_member(self, node: RaftNode) -> int:
        """A member that may know the leader of a group, when the replica here does not."""
        others = [member for member in node.state.configuration.members() if member != self.node_id]
        return self.rng.choice(others) if others else 0

    def _touch(self, group: int) -> None:
        """Something happened to a group: look at it in the next turn, and tick it."""
        self._dirty[group] = None
        self._awake[group] = None
