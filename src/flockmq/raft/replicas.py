"""Replicas on a real store: how a group's log, its checkpoints and its replica go together.

```
 bootstrap(log, voters)     the first entry of a new group, the same on all its replicas
 open_replica(host, log)    after a start: what the log and its checkpoint hold becomes a replica
 Checkpoints                save(state): a checkpoint of what is applied; sends and takes in those of others
```
The content of a checkpoint: configuration, table of senders, and the state of whatever machine stands behind the group.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.log.batch import CONFIG, control_batch, stamp
from flockmq.log.checksum import crc32c
from flockmq.log.errors import DamageError
from flockmq.raft.configuration import Configuration, decode_configuration
from flockmq.raft.membership import committed_configuration
from flockmq.raft.messages import Checkpoint
from flockmq.raft.ports import BROKEN, SAVED, SAVING
from flockmq.raft.senders import SenderTable, decode_table
from flockmq.raft.state import DAMAGED, FORGOTTEN, SOUND, HardState

if TYPE_CHECKING:
    from flockmq.log.group import GroupLog
    from flockmq.log.state import Snapshot
    from flockmq.raft.host import RaftHost
    from flockmq.raft.messages import SnapshotMeta
    from flockmq.raft.node import RaftNode
    from flockmq.raft.senders import SenderDesk

BOOTSTRAP_TERM: Final = 1
"""No leader is ever elected in it: all replicas of a new group start there."""
CHECKPOINT_BYTES_MAX: Final = 268_435_456
"""A checkpoint that announces more is not taken in."""
_HEAD: Final = struct.Struct("<4sIII")
_MAGIC: Final = b"FLKC"


class CheckpointContent:
    """What a checkpoint holds."""

    def __init__(self, configuration: Configuration, table: SenderTable, state: bytes) -> None:
        self.configuration = configuration
        self.table = table
        self.state = state

    def encode(self) -> bytes:
        """As it is stored and sent."""
        configuration = self.configuration.encode()
        table = self.table.encode()
        head = _HEAD.pack(_MAGIC, len(configuration), len(table), len(self.state))
        return b"".join([head, configuration, table, self.state])


def decode_content(data: bytes) -> CheckpointContent:
    """Read ``CheckpointContent.encode``; ValueError when it is not that."""
    if len(data) < _HEAD.size:
        raise ValueError("A checkpoint is cut off")
    magic, configuration, table, state = _HEAD.unpack_from(data)
    table_at = _HEAD.size + configuration
    state_at = table_at + table
    if magic != _MAGIC or len(data) != state_at + state:
        raise ValueError("These bytes are no checkpoint")
    return CheckpointContent(
        decode_configuration(data[_HEAD.size : table_at]), decode_table(data[table_at:state_at]), data[state_at:]
    )


def bootstrap(log: GroupLog, configuration: Configuration) -> None:
    """Begin a group. All its first replicas must be given the very same configuration; those that join later none."""
    log.append([stamp(control_batch(CONFIG, configuration.encode()), BOOTSTRAP_TERM, 1, 0)])
    log.set_hard_state(BOOTSTRAP_TERM, 0, 1)


class Replica:
    """A group as it runs here."""

    def __init__(self, node: RaftNode, log: GroupLog, checkpoints: Checkpoints, desk: SenderDesk, state: bytes) -> None:
        self.node = node
        self.log = log
        self.checkpoints = checkpoints
        self.desk = desk
        self.state = state
        """State of the machine behind the group, as of the checkpoint; later entries will be applied again."""


def open_replica(host: RaftHost, log: GroupLog, preferred: int = 0, is_new: bool = False) -> Replica:
    """Run what a log holds. ``is_new``: it was created for a group that others speak of; what it was is not known."""
    if is_new or (log.term == 0 and log.last_index() == 0 and log.damage is None):
        # A restart must not take it for a replica that never voted, before it is refilled.
        log.note_forgotten("This replica is new here; what it was before is not known.")
    data = _load(log)
    content = CheckpointContent(Configuration(()), SenderTable(), b"")
    checkpoint = Checkpoint(0, 0, content.configuration)
    checkpoints = Checkpoints(log, b"", None)
    if data is not None and log.snapshot is not None:
        content = decode_content(data)
        checkpoint = Checkpoint(
            log.snapshot.index, log.snapshot.term, content.configuration, log.snapshot.length, log.snapshot.crc
        )
        checkpoints = Checkpoints(log, data, checkpoint)
    while True:
        cut_damage(log)
        hard = HardState(log.term, log.vote, _health(log))
        try:
            node = host.add_group(
                log.group, log, checkpoint, hard, log.commit, preferred, content.table, checkpoints, checkpoints
            )
        except DamageError:
            continue  # more was found, and is cut off in turn
        return Replica(node, log, checkpoints, host.desks[log.group], content.state)


def _load(log: GroupLog) -> bytes | None:
    """The content of a log's checkpoint. One that is damaged is done without, with the whole log or an empty one."""
    try:
        return log.load_snapshot()
    except DamageError:
        if log.first_index() > 1:
            log.reset(0, 0, 0)  # entries are gone that only the checkpoint stood for: begin anew, others have it all
        return None


def cut_damage(log: GroupLog) -> None:
    """Let a log end before what can't be read: all from there on has to come from a leader again."""
    damage = log.damage
    if damage is None or damage.first == 0 or damage.first > log.last_index():
        return
    if damage.first <= log.first_index():
        log.reset(log.first_index() - 1, log.term_at(log.first_index() - 1), log.first_offset)
    else:
        log.truncate_from(damage.first)


def _health(log: GroupLog) -> int:
    if log.damage is None:
        return SOUND
    return FORGOTTEN if log.damage.everything else DAMAGED


class Checkpoints:
    """Checkpoints of one group: its own, and those that arrive."""

    def __init__(self, log: GroupLog, content: bytes, checkpoint: Checkpoint | None) -> None:
        self.log = log
        self._content = content
        self._checkpoint = checkpoint
        self._saving: Snapshot | None = None
        self._next: tuple[bytes, Checkpoint] | None = None
        self._coming: SnapshotMeta | None = None
        self._pieces: list[bytes] = []
        self._received = 0
        self._arrived: Snapshot | None = None
        self._arrived_content = b""

    def save(self, node: RaftNode, table: SenderTable, state: bytes) -> bool:
        """Begin a checkpoint of all that is applied; False while the one before is still being saved."""
        applied = node.state.applied
        if self._saving is not None or self._arrived is not None or applied > node.state.log.last_index:
            return False
        configuration = committed_configuration(node.state)
        content = CheckpointContent(configuration, table, state).encode()
        term = node.state.log.term_at(applied)
        offset = node.state.log.offset_at(applied + 1)
        self._saving = self.log.save_snapshot(content, applied, term, offset)
        self._next = (content, Checkpoint(applied, term, configuration, len(content), crc32c(content)))
        return True

    def use_saved(self) -> bool:
        """Let a checkpoint count once it is saved; True when the log may forget entries up to it."""
        if self._saving is None or self._next is None or not self._saving.saved:
            return False
        self.log.use_snapshot(self._saving)
        self._content, self._checkpoint = self._next
        self._saving = None
        self._next = None
        return True

    def content(self) -> CheckpointContent | None:
        """The present checkpoint."""
        return decode_content(self._content) if self._checkpoint is not None else None

    # SnapshotSource

    def latest(self) -> Checkpoint | None:
        """The present one."""
        return self._checkpoint

    def read(self, meta: SnapshotMeta, position: int, length: int) -> bytes:
        """A piece of the present one, if it is the one that is meant."""
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.index != meta.applied or checkpoint.checksum != meta.checksum:
            return b""
        return self._content[position : position + length]

    # SnapshotSink

    def received(self, meta: SnapshotMeta) -> int:
        """How much of it is here."""
        if self._coming is None or not self._coming.is_same(meta):
            self._drop()
            self._coming = meta
        return self._received

    def write(self, meta: SnapshotMeta, position: int, data: bytes) -> None:
        """The next piece."""
        if self._coming is not None and self._coming.is_same(meta) and position == self._received:
            self._pieces.append(data)
            self._received += len(data)

    def complete(self, meta: SnapshotMeta) -> int:
        """All is here: verify it, save it, say when that is done."""
        if self._arrived is None:
            content = b"".join(self._pieces)
            if len(content) != meta.size or crc32c(content) != meta.checksum or meta.size > CHECKPOINT_BYTES_MAX:
                self._drop()
                return BROKEN
            try:
                decode_content(content)
            except ValueError:
                self._drop()
                return BROKEN
            self._arrived_content = content
            self._arrived = self.log.save_snapshot(content, meta.applied, meta.applied_term, meta.next_offset)
        return SAVED if self._arrived.saved else SAVING

    def install(self, meta: SnapshotMeta) -> CheckpointContent:
        """What came takes the place of our own."""
        assert self._arrived is not None, "complete() said that it is saved"
        self.log.use_snapshot(self._arrived)
        self._content = self._arrived_content
        self._checkpoint = Checkpoint(meta.applied, meta.applied_term, meta.configuration, meta.size, meta.checksum)
        self._saving = None
        self._next = None
        self._drop()
        return decode_content(self._content)

    def _drop(self) -> None:
        self._coming = None
        self._pieces = []
        self._received = 0
        self._arrived = None
        self._arrived_content = b""
