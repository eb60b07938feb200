"""All Raft groups of a node on its one store, as a pure object: frames, time and finished writes in, frames out.

```
 receive(frame)   tick(now)   appends.open_batch(group)      committed(commit)
       |              |                |                            |
       v              v                v                            v
 turn():  records --> one run per group (``appends``)
          host.take_turn() --> frames: one per peer, to ``send``
                           --> writes: staged in the store --> kick(): the driver writes them --> committed()
                           --> committed entries: on_applied, then outcomes to those that wait
```
``kick`` and ``wake`` are the driver's: there may be something to write, there is something to do. The real driver has a
journal and an event loop, the simulator a queue of events. When the disk fails, or something happens that can't,
the node takes part no more: it says nothing that it could not keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.log.batch import control_batch
from flockmq.log.errors import DamageError, StoreDown
from flockmq.raft.appends import Appends
from flockmq.raft.configuration import Configuration
from flockmq.raft.errors import SafetyError
from flockmq.raft.handing_over import successor
from flockmq.raft.pending_reads import PendingReads, ReadDone
from flockmq.raft.persistence import stage
from flockmq.raft.ready import Proposal, Refusal
from flockmq.raft.replay import ReplayBound
from flockmq.raft.replicas import Replica, bootstrap, open_replica
from flockmq.raft.speaking import knows_all
from flockmq.raft.state import LEADER

if TYPE_CHECKING:
    from flockmq.log.store import Store
    from flockmq.log.work import Commit
    from flockmq.raft.host import RaftHost
    from flockmq.raft.ready import Ready
    from flockmq.raft.turn import GroupReady, Turn

UNWRITTEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Frames that are taken in while the disk has no room; then peers have to wait."""
REPLAY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Entries that a restart applies again, of all groups together; beyond that checkpoints are made."""
CHECKPOINTS_MAX: Final = 16
"""That are being saved at once."""

_REFILLED: Final = (
    "The log of this replica ends before that; it neither votes nor serves what follows until its leader has sent it "
    "again."
)

Send = Callable[[int, bytes], object]
"""(node, frame)"""


def _nothing() -> None:
    """What a caller does that drives turns and writes by itself."""


def _no_waiter(group: int) -> None:
    """No client waits for room."""


def _act(actions: list[Callable[[], None]]) -> None:
    """Call each action once. An action that is added meanwhile waits for the end of the next turn."""
    due = list(actions)
    actions.clear()
    for action in due:
        action()


class RaftEngine:
    """See the module."""

    def __init__(
        self,
        host: RaftHost,
        store: Store,
        on_applied: Callable[[int, Ready], None],
        state_of: Callable[[int], bytes],
        on_stopped: Callable[[str], None],
        kick: Callable[[], None] = _nothing,
        wake: Callable[[], None] = _nothing,
        on_room: Callable[[int], None] = _no_waiter,
        replay_bytes_max: int = REPLAY_BYTES_MAX,
    ) -> None:
        """Make an engine whose groups are yet to be opened.

        ``on_applied``: a group has something to apply: ``install`` (the checkpoint of its replica has the state), then
        ``committed``. ``state_of``: the state after all of that, for a checkpoint. ``on_stopped``: why.
        ``kick``: the store may have something to write. ``wake``: a turn is due. ``on_room``: see ``Appends``.
        """
        self.host = host
        self.store = store
        self.replicas: dict[int, Replica] = {}
        """All groups of the host."""
        self.stopped = ""
        """Why this node takes part no more; empty while it does."""
        self.turns = 0
        self.kick = kick
        self.wake = wake
        self.appends = Appends(host, self._wake, on_room)
        self.after_turn: list[Callable[[], None]] = []
        """Called once, at the end of a turn when all its outcomes are known: write your answers then."""
        self.events: list[tuple[str, dict[str, object]]] = []
        """What happened, for the log; the driver of this engine takes the events."""
        self._on_applied = on_applied
        self._state_of = state_of
        self._on_stopped = on_stopped
        self.replay = ReplayBound(replay_bytes_max)
        """What a restart would apply again."""
        self._writing: list[tuple[int, int]] = []
        """(number of the journal record, number of the turn) of turns that are not durable."""
        self._unwritten_bytes = 0
        self._broken: set[int] = set()
        self._reads = PendingReads()

    # Groups.

    def open(self, group: int, founders: tuple[int, ...] | None = None, preferred: int = 0) -> Replica:
        """Run a replica of a group, from its log if there is one.

        Without a log: ``founders`` are the voters that a new group begins with, this node among them; all of them must
        be given the same. None: the group is older than this replica, which waits until its leader has filled it.
        """
        log = self.store.groups.get(group)
        is_new = False
        is_begun = False
        if log is None:
            log = self.store.create(group)
            if founders is None:
                is_new = True
            else:
                is_begun = True
                bootstrap(log, Configuration(founders))
        try:
            replica = open_replica(self.host, log, preferred, is_new)
        except DamageError:
            log.reset(0, 0, 0)
            replica = open_replica(self.host, log, preferred, True)
        self.replicas[group] = replica
        damage = log.damage
        if damage is not None and damage.first and not is_new:
            fields: dict[str, object] = {"partition": group, "first_entry": damage.first, "last_entry": damage.last}
            self.events.append(("log_damaged", {**fields, "message": f"{damage.reason} {_REFILLED}"}))
        if is_begun:
            replica.node.begin()
        self._broken.discard(group)
        self._wake()
        self.kick()
        return replica

    def close_group(self, group: int) -> None:
        """Stop a replica and forget its log, without a word to the others."""
        self.host.remove_group(group)
        self.host.broken.pop(group, None)
        self.replicas.pop(group, None)
        self._broken.discard(group)
        self.replay.forget(group)
        self._reads.close_group(group)
        if group in self.store.groups and not self.store.down:
            self.store.remove(group)
            self.kick()

    def is_leader(self, group: int) -> bool:
        """Whether this node leads a group, as far as it knows."""
        node = self.host.groups.get(group)
        return node is not None and node.state.role == LEADER and group not in self.host.broken

    def knows_all(self, group: int) -> bool:
        """Whether this node leads a group, and has applied all that was committed before it did."""
        return self.is_leader(group) and knows_all(self.host.groups[group].state)

    def leader_of(self, group: int) -> int:
        """The node that leads a group; 0 when that is not known here."""
        node = self.host.groups.get(group)
        if node is not None:
            return node.state.leader
        forwarder = self.host.forwarders.get(group)
        return forwarder.leader if forwarder is not None else 0

    def committed_offset(self, group: int) -> int:
        """Offset behind the last record that is committed and applied here; -1 without a replica."""
        node = self.host.groups.get(group)
        if node is None:
            return -1
        return node.state.log.offset_at(node.state.applied + 1)

    def propose_control(self, group: int, kind: int, body: bytes, timestamp_ms: int = 0) -> Proposal | Refusal:
        """Put a control batch into a group's log, if its leader is here."""
        proposal = self.host.propose(group, control_batch(kind, body, timestamp_ms))
        self._wake()
        return proposal

    def append_once(self, group: int, sender: int, sequence: int, batch: bytes) -> bool:
        """Put the run of a sender that is no node into a group's log, unless that has it; whether it is committed.

        Its runs come in order, each after the one before was committed: a log with a later run has this one.
        """
        if self.host.append_once(group, sender, sequence, batch):
            return True
        self._wake()
        return False

    def read(self, group: int, answer: ReadDone, now: int) -> None:
        """Call back when all that was committed before now is applied here; False: not here, ask the leader.

        ``now`` must be the present moment, not that of the last tick: a lease is judged by it.
        """
        number = self._reads.begin(group, answer)
        if self.stopped or not self.host.read(group, number, now):
            self._reads.refuse(number)
            return
        self._wake()

    def hand_over(self) -> int:
        """Let other nodes lead the groups that this node leads, where one can; how many groups are still to go."""
        left = 0
        for group, node in self.host.groups.items():
            state = node.state
            if state.role != LEADER or group in self.host.broken:
                continue
            best = successor(state, self.host.unreachable)
            if best:
                left += 1
                if not state.transfer_to:
                    self.host.transfer(group, best)
        self._wake()
        return left

    # What comes in.

    def receive(self, frame: bytes) -> None:
        """A frame of a peer has come; FlockError when it can't be read."""
        if self.stopped:
            return
        if not self.store.has_room():
            self._unwritten_bytes += len(frame)
        self.host.receive(frame)
        if self.host.has_work():
            self._wake()

    def is_overwhelmed(self) -> bool:
        """Whether peers should wait: the disk does not keep up."""
        return self._unwritten_bytes > UNWRITTEN_BYTES_MAX

    def writable(self, peer: int, is_writable: bool) -> None:
        """The link to a peer has room for entries, or not."""
        if is_writable:
            self.host.resume(peer)
            self._wake()
        else:
            self.host.pause(peer)

    def tick(self, now: int) -> None:
        """Time passes; call it every ``tick_ms``."""
        if self.stopped:
            return
        self.host.tick(now)
        try:
            self._checkpoint()
        except StoreDown as error:
            self.stop(str(error))
            return
        if self.host.has_work():
            self._wake()

    def _checkpoint(self) -> None:
        """Let checkpoints count that are saved, and begin others when a restart would have too much to do."""
        replay = self.replay
        for group in replay.saving:
            if self.replicas[group].checkpoints.use_saved():
                replay.saved(group)
        for group in replay.due(CHECKPOINTS_MAX):
            replica = self.replicas[group]
            if replica.checkpoints.save(replica.node, self.host.desks[group].table, self._state_of(group)):
                replay.begun(group)
        self.kick()

    # Turns.

    def has_work(self) -> bool:
        """Whether a turn may bring something."""
        return not self.stopped and self.store.has_room() and self.host.has_work()

    def turn(self, send: Send) -> None:
        """Do all there is to do. Frames leave first: while others write, this node does."""
        if self.stopped:
            return
        self.turns += 1
        try:
            self.appends.submit()
            turn = self.host.take_turn(self.store.has_room())
            for peer, frame in turn.frames:
                send(peer, frame)
            if turn.number:
                self._write(turn)
            for one in turn.applies:
                self._apply(one)
            self.appends.settle()
            _act(self.after_turn)
        except StoreDown as error:
            self.stop(str(error))
            return
        if self.host.broken:
            self._note_broken()
        if self.has_work():
            self._wake()

    def _write(self, turn: Turn) -> None:
        """Let the next record of the journal have what all groups want to be durable."""
        for write in turn.writes:
            try:
                stage(self.replicas[write.group], write.ready)
            except DamageError as error:
                # What it was to forget can't be found. Nothing of this group becomes durable any more.
                self.host.break_group(write.group, error)
        # Whatever is staged now goes with the next record that is taken, whenever that is.
        self._writing.append((self.store.sequence, turn.number))
        self.kick()

    def _apply(self, one: GroupReady) -> None:
        ready = one.ready
        if ready.install is not None:
            self.replay.installed(one.group)
        if ready.install is not None or ready.committed:
            self._on_applied(one.group, ready)
            self.replay.applied(one.group, sum([len(entry.data) for entry in ready.committed]))
        node = self.host.groups.get(one.group)
        if node is not None:
            self._reads.advance(one.group, ready.reads, node.state.applied)

    def committed(self, commit: Commit) -> None:
        """The driver has written a record of the store."""
        if self.stopped:
            return
        number = 0
        while self._writing and self._writing[0][0] <= commit.sequence:
            number = self._writing.pop(0)[1]
        self.host.persisted(number)
        self._unwritten_bytes = 0
        if self.host.has_work():
            self._wake()

    # Ends.

    def stop(self, reason: str) -> None:
        """Take part no more. Publishers that wait for an outcome and readers that wait for an index are told."""
        if self.stopped:
            return
        self.stopped = reason
        self.appends.stop()
        self._reads.stop()
        _act(self.after_turn)
        self._on_stopped(reason)

    def fail(self, error: Exception, trace: str) -> None:
        """A bug: after it the state in memory can't be trusted."""
        self.events.append(("internal_error", {"doing": "consensus", "error": repr(error), "traceback": trace}))
        self.stop(f"Consensus met an error that it should not ({error!r}); report it with the log, restart the node.")

    def _note_broken(self) -> None:
        for group, error in list(self.host.broken.items()):
            if group not in self._broken:
                self._broken.add(group)
                self._reads.close_group(group)
                kind = "safety_broken" if isinstance(error, SafetyError) else "group_stopped"
                self.events.append((kind, {"group": group, "reason": str(error)}))

    def _wake(self) -> None:
        if not self.stopped:
            self.wake()
