"""Digests of what replicas have read of their logs, compared between replicas.

```
 take(piece read) --> header checksums of its batches --> a digest for each block of 32 entries
 compare(group)   --> DIGESTS to the other replicas: theirs of the same blocks; a difference is told, never mended
```
A block is 32 entries of a log, wherever each replica cuts its segments. Header checksums cover everything in a batch. A
replica keeps the digests of what it has read, so that nothing is read for a comparison: the replica that reads a block
later finds the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import OK, REFUSED, Reply
from flockmq.log.checksum import crc32c
from flockmq.peering.fields import U32, U64
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import DIGESTS_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.log.group import GroupLog
    from flockmq.log.survey import Inspection
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

BLOCK: Final = 32
"""Entries of a block."""
MARK_BYTES: Final = 4
DIGESTS_MAX: Final = 4_096
"""Asked for at once."""


class Digests:
    """Digests of the blocks of one log that were read, from a first one on."""

    def __init__(self) -> None:
        self.first = 0
        self._data = bytearray()

    def set(self, block: int, digest: int) -> None:
        """A block was read."""
        if not self._data:
            self.first = block
        if block < self.first:
            self._data[:0] = bytes(MARK_BYTES * (self.first - block))
            self.first = block
        at = MARK_BYTES * (block - self.first)
        if at + MARK_BYTES > len(self._data):
            self._data += bytes(at + MARK_BYTES - len(self._data))
        self._data[at : at + MARK_BYTES] = U32.pack(digest or 1)

    def get(self, block: int) -> int:
        """0: it was not read."""
        at = MARK_BYTES * (block - self.first)
        if at < 0 or at >= len(self._data):
            return 0
        return int.from_bytes(self._data[at : at + MARK_BYTES], "little")

    def forget_before(self, block: int) -> None:
        """Retention took the entries of earlier blocks."""
        if block > self.first:
            del self._data[: MARK_BYTES * (block - self.first)]
            self.first = block


class LogDigests:
    """What was read of one log."""

    def __init__(self) -> None:
        self.digests = Digests()
        self.fresh: list[int] = []
        """Blocks that were read since digests were compared."""
        self.differs: dict[int, int] = {}
        """Blocks that another replica has otherwise, and which replica."""
        self._marks = bytearray()
        """Header checksums of the block that is being read."""
        self._marks_first = 0
        """The entry of the first of ``_marks``."""

    def take(self, work: Inspection, log: GroupLog) -> None:
        """A piece was read."""
        self.digests.forget_before(log.first // BLOCK)  # a snapshot may have taken the log far ahead
        for run in work.marks:
            del run.data[MARK_BYTES * max(log.settled + 1 - run.first, 0) :]  # others may take the place of the rest
            if not self._marks or run.first != self._marks_first + len(self._marks) // MARK_BYTES:
                self._marks = bytearray()
                self._marks_first = run.first
            self._marks += run.data
            ahead = -self._marks_first % BLOCK
            if ahead:  # a block counts from its first entry on
                ahead = min(ahead, len(self._marks) // MARK_BYTES)
                del self._marks[: MARK_BYTES * ahead]
                self._marks_first += ahead
                if self._marks_first % BLOCK:
                    continue
            self._close_blocks()

    def _close_blocks(self) -> None:
        while len(self._marks) >= MARK_BYTES * BLOCK:
            block = self._marks_first // BLOCK
            self.digests.set(block, crc32c(bytes(self._marks[: MARK_BYTES * BLOCK])))
            self.fresh.append(block)
            del self._marks[: MARK_BYTES * BLOCK]
            self._marks_first += BLOCK

    def finish(self, log: GroupLog) -> None:
        """All of the log was read."""
        self.digests.forget_before(log.first // BLOCK)
        self._marks = bytearray()

    def differing_from(self, first: int, theirs: bytes) -> list[int]:
        """Blocks, not told before, that another replica has otherwise; ``theirs`` are its digests from ``first`` on."""
        found: list[int] = []
        for number in range(len(theirs) // MARK_BYTES):
            block = first + number
            other = int.from_bytes(theirs[MARK_BYTES * number : MARK_BYTES * (number + 1)], "little")
            ours = self.digests.get(block)
            if other and ours and other != ours and block not in self.differs:
                found.append(block)
        return found


class DigestComparison:
    """See the module."""

    def __init__(self, engine: RaftEngine, calls: PartitionCalls) -> None:
        self._engine = engine
        self._calls = calls
        self._by_group: dict[int, LogDigests] = {}
        calls.serve_replica(DIGESTS_CALL, self._on_digests)

    def of(self, group: int) -> LogDigests:
        """What was read of a log."""
        return self._by_group.setdefault(group, LogDigests())

    def closed(self, group: int) -> None:
        """A replica is gone."""
        self._by_group.pop(group, None)

    def differing(self, group: int) -> tuple[int, int]:
        """(blocks that another replica has otherwise, the first entry of the first of them)."""
        known = self._by_group.get(group)
        if known is None or not known.differs:
            return 0, 0
        return len(known.differs), min(known.differs) * BLOCK

    def compare(self, group: int) -> None:
        """Ask the other replicas for their digests of the blocks that were read since the last comparison."""
        known = self.of(group)
        blocks, known.fresh = known.fresh, []
        node = self._engine.host.groups.get(group)
        if not blocks or node is None:
            return
        first, count = blocks[0], min(blocks[-1] - blocks[0] + 1, 2 * DIGESTS_MAX)
        for member in node.state.configuration.members():
            if member != self._calls.me and member not in self._engine.host.unreachable:
                self._calls.tasks.start("compare digests", self._compare_with(member, group, first, count))

    def _compare_with(self, member: int, group: int, first: int, count: int) -> Task[None]:
        question = U64.pack(group) + U64.pack(first) + U32.pack(count)
        code, body = yield from self._calls.ask_replica(member, DIGESTS_CALL, question)
        known = self._by_group.get(group)
        if code != OK or known is None:
            return
        blocks = known.differing_from(first, body)
        if blocks:
            known.differs.update(dict.fromkeys(blocks, member))
            self._tell_difference(group, blocks, member)

    def _on_digests(self, body: bytes) -> Reply:
        fields = Fields(body)
        group, first, count = fields.u64(), fields.u64(), fields.u32()
        fields.finish()
        known = self._by_group.get(group)
        if known is None or count > 2 * DIGESTS_MAX:
            return Reply(REFUSED)
        found = [U32.pack(known.digests.get(block)) for block in range(first, first + count)]
        return Reply(OK, b"".join(found))

    def _tell_difference(self, group: int, blocks: list[int], member: int) -> None:
        fields: dict[str, object] = {
            "partition": group,
            "first_entry": blocks[0] * BLOCK,
            "last_entry": blocks[-1] * BLOCK + BLOCK - 1,
            "blocks": len(blocks),
            "node": f"{member:016x}",
            "message": "Two replicas have different entries, and checksums fit on both: a promise of consensus or of a "
            "disk is broken. Nothing is changed. Keep both stores, and report this with the logs of both nodes.",
        }
        self._engine.events.append(("log_differs", fields))
