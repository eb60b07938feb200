"""The cluster state on one node: commands go in on any node, come back when they are applied here.

```
 submit(command) --> a replica of group 0 here: into its log (``engine.appends``: once, to whoever leads)
                 `-> none here: META_SUBMIT to a peer that has one
 committed commands --> Ledger --> watchers, once a turn --> replies to whoever waited
        ^--- group 0's log, here     or     peers that are ahead (``pulling.py``)
```
A node gets a replica of group 0 in two ways: it mints the cluster (``begin``), or the leader adds it (``invited``). A
node that was taken out, and so hears no leader any more, asks and removes its replica.

*Current*: everything that was committed before this start of the node is applied. Until then state may name groups to
this node that it left long ago; nobody begins a log on the word of such a state.

*In doubt*: the log here has changes behind what is known to be committed, and somebody may have been told that they are
made. A node that served clients without them would acknowledge messages of a new topic that no log has.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.cluster.commands import (
    INVALID,
    AlterTopic,
    Ban,
    Command,
    CreateTopic,
    DeleteAcl,
    DeleteClient,
    DeleteNamespace,
    PutAcl,
    PutClient,
    RefusedError,
    Result,
    SetClusterId,
    decode_command,
    decode_envelope,
    encode_envelope,
)
from flockmq.durable.state.confirming import CONFIRM_MS, Confirmation
from flockmq.durable.state.ledger import Ledger
from flockmq.durable.state.parting import Parting, is_lonely
from flockmq.durable.state.pulling import Puller
from flockmq.durable.state.waiting import BUSY, TIMEOUT_MS, Pending, Waiting, unavailable, unknown
from flockmq.durable.state.wire import COMMAND_BYTES_MAX, DONE, NOT_DONE, decode_answer
from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.log.batch import DATA, BatchView
from flockmq.log.errors import DamageError
from flockmq.mqtt import reasons
from flockmq.peering.kinds import META_SUBMIT
from flockmq.raft.appends import COMMITTED, REFUSED, OpenBatch, Outcome
from flockmq.tasks import Promise

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.cluster.state import ClusterState
    from flockmq.durable.state.facts import Facts
    from flockmq.peering.calls import Calls
    from flockmq.raft.engine import RaftEngine
    from flockmq.raft.ready import Ready
    from flockmq.raft.state import RaftState
    from flockmq.tasks import Task

GROUP: Final = 0
TOPIC: Final = b"$cluster"
KEEP_MS: Final = 1_000
"""How often a node keeps a copy of a state that changes, at the most."""
DOUBTFUL: Final = (CreateTopic, AlterTopic, PutClient, DeleteClient, PutAcl, DeleteAcl, DeleteNamespace, Ban)
"""Without these a node would take in messages, or clients, otherwise than it was promised."""
READ_BYTES: Final = 1_048_576
OFFER_MS: Final = 200
WHY_NOBODY_DECIDES: Final = (
    "Nobody leads the group that decides about the cluster state: most of its voters must run, and `flockmq doctor` "
    "says which are missing."
)


def is_doubtful(envelope: bytes) -> bool:
    """Whether a change must be known to be made, or not, before clients are served."""
    try:
        return isinstance(decode_command(decode_envelope(envelope).command), DOUBTFUL)
    except RefusedError:
        return False  # nobody applies what nobody can read


def _keep_nothing(data: bytes) -> None:
    """Nowhere to keep it."""


def _tell_no_part(state: ClusterState) -> None:
    """No part of this node follows the state."""


def _close_nothing(group: int) -> None:
    """No part of this node has anything of a group."""


class _Append:
    """Waits for the outcome of one command in a batch."""

    def __init__(self, meta: Meta, pending: Pending, position: int) -> None:
        self._meta = meta
        self._pending = pending
        self._position = position

    def settled(self, batch: OpenBatch, count: int, outcome: Outcome) -> None:  # noqa: ARG002
        """The batch is in the log, or not, or nobody knows."""
        self._meta.settled(self._pending, self._position, outcome)


class Meta:
    """See the module. ``wall_ms`` turns the node's own time into wall time; ``keep`` saves a copy for a restart."""

    def __init__(
        self,
        engine: RaftEngine,
        calls: Calls,
        facts: Facts,
        rng: random.Random,
        wall_ms: Callable[[int], int],
        keep: Callable[[bytes], None] = _keep_nothing,
        changed: Callable[[ClusterState], None] = _tell_no_part,
        closed: Callable[[int], None] = _close_nothing,
    ) -> None:
        """``changed`` is called at most once a turn when the state has changed; ``closed`` with a group whose replica
        was taken out of it and removed here."""
        self.engine = engine
        self.calls = calls
        self.facts = facts
        self.ledger = Ledger()
        self.parting = Parting(engine, calls, facts, rng, self._was_taken_out)
        self.cluster_id = 0
        """The cluster that this node founded, until the state says so itself."""
        self.is_current = False
        """See the module."""
        self.groups_at_start = 0
        """Groups from this number on were made after this start of the node; 0 while that is not known."""
        self._node = engine.host.node
        self._boot = engine.host.boot
        self._rng = rng
        self.wall_ms = wall_ms
        self._keep = keep
        self._waiting = Waiting()
        self._puller = Puller(self.ledger, calls, facts, rng, self._applied)
        self._changed = changed
        self._closed = closed
        self._number = 0
        self._told_index = -1
        self._told_replica = False
        self._kept_index = 0
        self._keep_at = 0
        self._doubt = 0
        """The index that the last such change in the log here would have."""
        self._doubts_all = False
        self._offer_at = 0
        self._confirmation = Confirmation(GROUP, self.ledger, engine, calls, facts, rng)
        self._is_founding = False
        self._now = 0
        calls.serve_task(META_SUBMIT, self._serve_submit)

    @property
    def state(self) -> ClusterState:
        """What is known here now."""
        return self.ledger.state

    @property
    def has_replica(self) -> bool:
        """Whether this node has a replica of group 0 that works. If it has stopped, others are asked instead."""
        engine = self.engine
        return GROUP in engine.replicas and GROUP not in engine.host.broken and not engine.stopped

    @property
    def is_leader(self) -> bool:
        """Whether this node decides what goes into group 0's log."""
        return self.engine.is_leader(GROUP)

    # Replicas of group 0.

    def start(self) -> None:
        """Run the replica that the store has, if it has one. Call it once, before anything else."""
        if GROUP in self.engine.store.groups:
            self._open(None)
            self._doubt = self._find_doubt()
        self.calls.tasks.repeat("confirm the committed state", self._confirmation.confirm, CONFIRM_MS)

    @property
    def is_in_doubt(self) -> bool:
        """See the module."""
        return not self.is_current and (self._doubts_all or self._doubt > self.ledger.index)

    def _find_doubt(self) -> int:
        replica = self.engine.replicas[GROUP]
        checkpoint = replica.checkpoints.latest()
        log = replica.log
        index = max(log.first_index(), checkpoint.index + 1 if checkpoint is not None else 0)
        found = 0
        while index <= log.last_index():
            try:
                batches = log.entries(index, log.last_index() + 1, READ_BYTES)
            except DamageError:
                return self.ledger.index + 1  # nobody can say
            for batch in batches:
                index += 1
                view = BatchView(batch)
                if view.kind != DATA or view.next_offset <= self.ledger.index:
                    continue
                for position, record in enumerate(view.records()):
                    if is_doubtful(record.payload):
                        found = view.base_offset + position + 1
        return found

    def begin(self, cluster_id: int) -> None:
        """This node minted the cluster: found its state. Harmless when that was done before.

        Only in a store that nothing was ever written to: a second group 0 would be a second truth. A founder that was
        taken out of it, or lost it, has to wait until the others fill it again.
        """
        self.cluster_id = cluster_id
        store = self.engine.store
        if GROUP in self.engine.replicas or self.ledger.index or store.sequence > 1 or store.groups or store.notes:
            return
        self._open((self._node,))

    def invited(self) -> None:
        """Others speak of group 0 as if it were here: their leader wants a replica on this node."""
        if GROUP not in self.engine.replicas and not self.engine.stopped:
            self._open(None)

    def _open(self, founders: tuple[int, ...] | None) -> None:
        replica = self.engine.open(GROUP, founders)
        if replica.state:
            self.ledger.replace(replica.state)

    def applied(self, ready: Ready) -> None:
        """Group 0 has something to apply."""
        if ready.install is not None and ready.restores:
            content = self.engine.replicas[GROUP].checkpoints.content()
            if content is not None and content.state:
                self.ledger.replace(content.state)
        for entry in ready.committed:
            if entry.kind != DATA or entry.next_offset <= self.ledger.index:
                continue
            view = BatchView(entry.data)
            for position in range(entry.count):
                index = entry.base_offset + position + 1
                if index > self.ledger.index:
                    data = view.record(position).payload
                    result = self.ledger.feed(index, data)
                    if result is not None:
                        self._applied(index, data, result)

    def state_bytes(self) -> bytes:
        """For a checkpoint of group 0."""
        return self.state.encode()

    def restore(self, data: bytes) -> None:
        """A copy that ``keep`` saved; FlockError when it can't be read. Whatever is newer stays."""
        if self.ledger.replace(data):
            self._kept_index = self.ledger.index

    def doubt_all(self) -> None:
        """A copy that ``keep`` saved is lost: which topics there are is not known here before state is current."""
        self._doubts_all = True

    # Commands.

    def submit(self, command: Command, reply: Callable[[Result], None], now: int) -> None:
        """Change the state. ``reply`` comes once: with the result after the command was applied here; or with a code
        that says that it was certainly not done (``unavailable``, ``busy``) or that nobody can say (``unknown``).
        """
        self._now = now
        self._number += 1
        envelope = encode_envelope(self._node, self._boot, self._number, self.wall_ms(now), command)
        if len(envelope) > COMMAND_BYTES_MAX:
            text = f"This change has {len(envelope):,} bytes, {COMMAND_BYTES_MAX:,} are the most; make smaller ones."
            reply(Result(False, text, None, INVALID))
            return
        pending = Pending((self._node, self._boot, self._number), envelope, now + TIMEOUT_MS, reply, None)
        if self._accept(pending):
            self._offer(pending)

    def _accept(self, pending: Pending) -> bool:
        if not self._waiting.has_room():
            pending.tell(Result(False, "Too many changes wait here; try again in a moment.", None, BUSY))
            return False
        self._waiting.add(pending)
        return True

    def _offer(self, pending: Pending) -> None:
        """Give a command to group 0, here or elsewhere."""
        if not self.has_replica:
            self._ask_peer(pending)
            return
        try:
            batch = self.engine.appends.open_batch(GROUP)
        except FlockError as error:
            self._waiting.finish(pending, unavailable(str(error)))
            return
        pending.is_out = True
        batch.waiting[_Append(self, pending, batch.builder.count)] = 1
        batch.builder.add(TOPIC, b"", self.wall_ms(self._now), 0, pending.envelope)

    def settled(self, pending: Pending, position: int, outcome: Outcome) -> None:
        """A batch with a command has this outcome."""
        if outcome.kind == COMMITTED:
            pending.index = outcome.base_offset + position + 1
            if self.ledger.index >= pending.index:  # no result was seen: a whole state took its place
                self._waiting.finish(
                    pending, unknown("This node caught up in one leap and did not see what came of it.")
                )
        elif outcome.kind == REFUSED:
            self._waiting.finish(pending, unavailable(WHY_NOBODY_DECIDES))
        else:
            self._waiting.finish(pending, unknown("No majority of the nodes that decide confirmed the change in time."))

    def _applied(self, index: int, data: bytes, result: Result) -> None:
        """A command took effect here."""
        if not self._waiting.by_key:
            return
        try:
            envelope = decode_envelope(data)
        except RefusedError:
            return
        pending = self._waiting.by_key.get((envelope.origin, envelope.boot, envelope.number))
        if pending is not None:
            pending.index = index
            self._waiting.finish(pending, result)

    def _ask_peer(self, pending: Pending) -> None:
        """Without a replica here: let a peer that has one submit it."""
        able = [node for node, head in self.facts.heads().items() if head.has_replica and node not in pending.tried]
        if not able:
            pending.tried.clear()  # and again in a moment
            return
        peer = able[int(self._rng.random() * len(able))]
        pending.is_out = True
        left = max(pending.due_at - self._now, 1)
        self.calls.ask(peer, META_SUBMIT, pending.envelope, left).then(partial(self._answered, pending, peer))

    def _answered(self, pending: Pending, peer: int, body: bytes | None) -> None:
        if body is None:
            return  # maybe it was taken: if so it will be seen here in time
        answer = decode_answer(body)
        if answer.status == NOT_DONE:
            pending.is_out = False
            pending.tried.add(peer)
        elif answer.status == DONE:
            pending.index = answer.index
            pending.result = answer.result
            if self.ledger.index < answer.index:
                self._puller.pull_from(peer, self._now)

    def _serve_submit(self, peer: int, body: bytes) -> Task[bytes | None]:
        """A peer without a replica has a command."""
        answer: Promise[bytes | None] = Promise()
        try:
            envelope = decode_envelope(body)
        except RefusedError as error:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, str(error)) from error
        key = (envelope.origin, envelope.boot, envelope.number)
        pending = Pending(key, body, self._now + TIMEOUT_MS, None, answer.set)
        if not self.has_replica or envelope.origin != peer or key in self._waiting.by_key:
            pending.tell(unavailable("This node does not take it."))
        elif self._accept(pending):
            self._offer(pending)
        return (yield from answer)

    # Time and turns.

    def tick(self, now: int) -> None:
        """Time passes; called about every 100 ms."""
        self._now = now
        self._found()
        self._pull(now)
        if now >= self._offer_at:
            self._offer_at = now + OFFER_MS
            for pending in self._waiting.not_out(now):
                self._offer(pending)
        self._waiting.expire(now)
        if self.has_replica:
            self.parting.consider(GROUP, now)
        self.parting.tick()
        if now >= self._keep_at and self.save():
            self._keep_at = now + KEEP_MS
        self.flush(now)

    def flush(self, now: int) -> None:
        """A turn of the engine, or of the links, ends: tell watchers what changed, then those who waited."""
        self._now = now
        if self._puller.is_told:
            self._pull(now)
        index = self.ledger.index
        has_replica = self.has_replica
        if index != self._told_index or has_replica != self._told_replica:
            self._told_index = index
            self._told_replica = has_replica
            self.facts.tell(index, has_replica)
            self.engine.wake()  # maps have had their part of this turn, and somebody may wait for this node
            self._changed(self.state)
            self._waiting.reached(index)
        if not self.is_current and self._confirmation.is_reached():
            self.is_current = True
            self.groups_at_start = self.state.next_group
            self._changed(self.state)
        if self._waiting.has_finished():
            self._waiting.tell_finished()

    def peer_told(self) -> None:
        """Another node has told how far it is."""
        self._puller.told()

    def _pull(self, now: int) -> None:
        self._puller.tick(now, self.has_replica and self._is_served(self.engine.host.groups[GROUP].state))

    def _is_served(self, state: RaftState) -> bool:
        """Whether a leader brings what is decided: it is there, and has brought something to a replica that is new."""
        return state.applied > 0 and not is_lonely(state)

    def _found(self) -> None:
        """A cluster that this node minted gets its id into the state, as its first command."""
        if self.cluster_id and not self.state.cluster_id and self.is_leader and not self._is_founding:
            self._is_founding = True
            self.submit(SetClusterId(self.cluster_id), self._founded, self._now)

    def _founded(self, result: Result) -> None:  # noqa: ARG002
        self._is_founding = False

    # What is on the disk.

    def save(self) -> bool:
        """A copy for a restart, if there is something new. Who has a replica needs one as well: only a leader can tell
        how much of a log is committed, and clients must not be served meanwhile as if there were no topics.
        """
        replica = self.engine.replicas.get(GROUP)
        if self.engine.stopped:
            return False  # the disk may be what failed
        if replica is not None:
            checkpoint = replica.checkpoints.latest()
            if checkpoint is not None and replica.log.first_index() <= checkpoint.index:
                replica.log.compact_to(checkpoint.index)
        if self._kept_index == self.ledger.index:
            return False
        self._kept_index = self.ledger.index
        self._keep(self.state.encode())
        return True

    def _was_taken_out(self, group: int) -> None:
        """The replica here is gone: what it knew must not be, or this node would not know that it ever had one."""
        if group == GROUP and self.ledger.index:
            self.save()
        self._closed(group)
