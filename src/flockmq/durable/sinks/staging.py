"""Chunks of sinks at the leader of a partition: pieces are put together, then go into the log; stale ones leave.

```
 piece 0, 1, 2 ... --> all of it --> STAGE in the log --> applied: STAGED
    KEPT  <-- more    FROM_THE_FRONT <-- this leader has not got the pieces before
```
What is under way is bounded in bytes and time. Stages that are too old, or that keep a log beyond its bound, are
dropped through the log: as long as a chunk is known, each replica has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import LATER, OK, REFUSED, Reply
from flockmq.durable.machine.sink_bodies import SinkBody, drop_body, read_stage_name, stage_body, sweep_body
from flockmq.log.batch import SINK, BatchError, BatchView
from flockmq.peering.fields import Reader, malformed

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.machine.control import Control
    from flockmq.durable.machine.machine import PartitionMachine
    from flockmq.durable.machine.machines import Machines
    from flockmq.durable.sinks.committing import Committing
    from flockmq.tasks import Task

CHUNK_BYTES_MAX: Final = 8 * 1024 * 1024
"""More than an entry may have anywhere; what really fits is asked of the leader's settings."""
ENTRY_OVERHEAD: Final = 2_048
"""What a chunk has around it in the log, at most."""
UPLOADS_BYTES_MAX: Final = 64 * 1024 * 1024
UPLOAD_MS: Final = 10_000
"""How long pieces wait for the next one."""
SWEEP_MS: Final = 10_000

KEPT: Final = 1
STAGED: Final = 2
FROM_THE_FRONT: Final = 3
"""What a leader says to a piece."""

UploadKey = tuple[int, int, int]
"""(group, node that sends, number that the node gave it)."""


class _Upload:
    """Pieces of a chunk at its leader."""

    def __init__(self, name: bytes, total: int, due_at: int) -> None:
        self.name = name
        self.total = total
        self.due_at = due_at
        self.pieces: list[bytes] = []
        self.size = 0
        self.is_proposed = False


class Staging:
    """See the module."""

    def __init__(self, calls: PartitionCalls, control: Control, machines: Machines, committing: Committing) -> None:
        self._calls = calls
        self._control = control
        self._machines = machines
        self._committing = committing
        self._uploads: dict[UploadKey, _Upload] = {}
        self._upload_bytes = 0
        calls.tasks.every("sweep staged chunks", SWEEP_MS, self._sweep_all)

    def on_piece(self, group: int, reader: Reader) -> Task[Reply]:
        """A piece of a chunk has come."""
        key = (group, reader.u64(), reader.u64())
        at = reader.u32()
        total = reader.u32()
        body = SinkBody(0, 0)
        name_at = reader.pos
        read_stage_name(reader, body)
        name = reader.data[name_at : reader.pos]
        piece = reader.data[reader.pos :]
        machine = self._machines.by_group.get(group)
        if total > CHUNK_BYTES_MAX or at + len(piece) > total or not piece:
            raise malformed("a piece of a chunk that can't be")
        if machine is None or not self._committing.is_current(group):
            return Reply(LATER)
        refusal = self._refusal(machine, body, total)
        if refusal:
            return Reply(REFUSED, refusal.encode())
        if self._is_staged(machine, body):
            return Reply(OK, bytes((STAGED,)))
        reply = self._take_piece(key, at, total, name, piece)
        if reply is not None:
            return reply
        entry = stage_body(self._control.wall.at(self._calls.now), name, self._whole(key))
        is_done = yield from self._control.put(group, SINK, entry, self._calls.now)
        self._forget_upload(key)
        if is_done and self._is_staged(machine, body):
            return Reply(OK, bytes((STAGED,)))
        return Reply(LATER)  # asked again, the leader says why

    def _refusal(self, machine: PartitionMachine, body: SinkBody, total: int) -> str:
        most = self._calls.engine.host.settings.entry_bytes_max - ENTRY_OVERHEAD
        if total > most:
            return f"A chunk may have {most:,} bytes; this one has {total:,}. Stage smaller ones."
        key = (body.query, body.batch, body.task, body.attempt)
        if machine.sinks.has_room(total + ENTRY_OVERHEAD) or machine.sinks.index_of(key, body.sequence):
            return ""
        return (
            f"This partition has {machine.sinks.chunks:,} chunks of {machine.sinks.bytes:,} bytes staged and takes no "
            "more: commit smaller batches, or drop stages that no query needs."
        )

    def _is_staged(self, machine: PartitionMachine, body: SinkBody) -> bool:
        """Whether nothing needs to be done: it is here, or its batch is committed."""
        if machine.sinks.has_passed(body.query, body.batch):
            return True
        index = machine.sinks.index_of((body.query, body.batch, body.task, body.attempt), body.sequence)
        node = self._calls.engine.host.groups[machine.group]
        return index > 0 and index >= node.state.log.first_index()

    def _take_piece(self, key: UploadKey, at: int, total: int, name: bytes, piece: bytes) -> Reply | None:
        """Keep a piece; None: it was the last one."""
        upload = self._uploads.get(key)
        if upload is None:
            if at:
                return Reply(OK, bytes((FROM_THE_FRONT,)))
            if self._upload_bytes + total > UPLOADS_BYTES_MAX:
                return Reply(LATER)
            upload = self._uploads[key] = _Upload(name, total, 0)
            self._upload_bytes += total
        upload.due_at = self._calls.now + UPLOAD_MS
        if upload.total != total or upload.name != name or at > upload.size:
            self._forget_upload(key)
            return Reply(OK, bytes((FROM_THE_FRONT,)))
        if at == upload.size:
            upload.pieces.append(piece)
            upload.size += len(piece)
        if upload.size < total:
            return Reply(OK, bytes((KEPT,)))
        return Reply(LATER) if upload.is_proposed else None  # said twice: the first time is under way

    def _whole(self, key: UploadKey) -> bytes:
        upload = self._uploads[key]
        chunk = b"".join(upload.pieces)
        if not _is_whole(chunk):
            self._forget_upload(key)
            raise malformed("a chunk that is damaged")
        upload.is_proposed = True
        return chunk

    def _forget_upload(self, key: UploadKey) -> None:
        upload = self._uploads.pop(key, None)
        if upload is not None:
            self._upload_bytes -= upload.total

    # Time.

    def closed(self, group: int) -> None:
        """There is no replica here any more."""
        for key in [key for key in self._uploads if key[0] == group]:
            self._forget_upload(key)

    def _sweep_all(self) -> bool:
        """Forget pieces that wait in vain, and stages that are too old."""
        now = self._calls.now
        for key in [key for key, one in self._uploads.items() if one.due_at <= now and not one.is_proposed]:
            self._forget_upload(key)
        self._sweep(now)
        return bool(self._calls.engine.stopped)

    def _sweep(self, now: int) -> None:
        """Tell partitions the time where a stage is too old and nothing else tells it."""
        wall_ms = self._control.wall.at(now)
        for group, machine in self._machines.by_group.items():
            oldest = machine.sinks.oldest_stage()
            if oldest is None or not self._committing.is_current(group):
                continue
            if machine.sinks.expires_ms() <= wall_ms:
                self._control.put(group, SINK, sweep_body(wall_ms), now)
            elif self._is_overrun(machine):
                self._control.put(group, SINK, drop_body(wall_ms, oldest[0], oldest[1]), now)

    def _is_overrun(self, machine: PartitionMachine) -> bool:
        """Whether the log is beyond its bound and can't get smaller because of what is staged."""
        rule = self._calls.layout.retention_of(machine.group)
        log = self._calls.engine.replicas[machine.group].log
        if rule is None or len(log.segments) < 2 or not 0 < rule.bytes_bound <= log.size() - log.segments[0].length:
            return False
        return machine.sinks.held_index() < log.segments[0].next_index


def _is_whole(chunk: bytes) -> bool:
    try:
        view = BatchView(chunk)
        view.verify()
    except BatchError:
        return False
    return view.size == len(chunk)
