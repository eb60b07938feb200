"""Reads all segment files again and again, at a bounded rate, and compares them between replicas.

```
 suspects (a read met damage) --.
 scrub now (an operator) -------+--> take(now): Inspection --> performed off the loop --> done --> gaps --> Mending
 everything, once in a period --'                                                          `--> digests of blocks
                                                                                                     |
              other replicas <-- DIGESTS: what they have of the same blocks; another digest: told, never mended
```
A block is 32 entries of a log, wherever each replica cuts its segments. Its digest is made of the header checksums of
its batches, which cover everything in them. A replica keeps the digests of what it has read and asks the others for
theirs, so that nothing is read for a comparison: whichever of two reads a block later finds the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import GROUPS_MAX, OK, REFUSED
from flockmq.durable.replicas.mending import Mending
from flockmq.log.checksum import crc32c
from flockmq.log.survey import Inspection
from flockmq.peering.fields import U32, U64
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import DIGESTS_CALL, SCRUB_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls, Replied
    from flockmq.log.group import GroupLog
    from flockmq.log.segment import Segment
    from flockmq.log.settings import StoreSettings
    from flockmq.raft.engine import RaftEngine

BLOCK: Final = 32
"""Entries of a block."""
MARK_BYTES: Final = 4
PIECE_BYTES: Final = 512 * 1024
"""Read at once."""
DAY_MS: Final = 24 * 3_600_000
BYTES_PER_SECOND_MIN: Final = 64 * 1024
DIGESTS_MAX: Final = 4_096
"""Asked for at once."""
RATE_MS: Final = 60_000
"""How often the rate is counted again."""
LOOKS_MAX: Final = 64
"""Logs that are looked at in one turn of the event loop, until one has something to be read."""


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


class Scrubbed:
    """What is known of one log."""

    def __init__(self) -> None:
        self.digests = Digests()
        self.fresh: list[int] = []
        """Blocks that were read since digests were compared."""
        self.marks = bytearray()
        self.marks_first = 0
        """Header checksums of the block that is being read, and its first entry."""
        self.differs: dict[int, int] = {}
        """Blocks that another replica has otherwise, and which."""
        self.finished_ms = 0
        """When all of it had been read last, by the wall clock; 0: not since this log was opened."""


class Scrubbing:
    """See the module."""

    def __init__(self, engine: RaftEngine, calls: PartitionCalls, settings: StoreSettings) -> None:
        self._engine = engine
        self._calls = calls
        self._days = settings.scrub_days
        self._rate_max = settings.scrub_bytes_per_second
        engine.store.leave_to_mender()
        self.mending = Mending(engine, calls, self._look_again)
        self.by_group: dict[int, Scrubbed] = {}
        self.bytes = 0
        """Read since the start."""
        self._urgent: dict[tuple[int, int], None] = {}
        """(group, number of a segment) to be looked at now."""
        self._now_groups: dict[int, None] = {}
        """Groups to be read now, on request."""
        self._group = -1
        self._next = 0
        self._until = 0
        """The group that is being read, its next entry, and the first one that is for the next round."""
        self._round: list[int] = []
        """Groups to be read, the next one last."""
        self._running: Inspection | None = None
        self._begun: Inspection | None = None
        """A segment of which not all was read,"""
        self._resumed: Inspection | None = None
        """and one that is looked at because of a suspicion."""
        self._credit = 0.0
        self._credit_at = 0
        self._rate = BYTES_PER_SECOND_MIN
        self._rate_at = 0
        self._idle_until = 0
        calls.serve_node(DIGESTS_CALL, self._on_digests)
        calls.serve_node(SCRUB_CALL, self._on_scrub)

    # What others want to know or to have done.

    def suspect(self, group: int, index: int) -> None:
        """A reader met a committed entry that can't be read."""
        replica = self._engine.replicas.get(group)
        if replica is None or not replica.log.segments or not replica.log.first <= index <= replica.log.last:
            return
        segment = replica.log.segment_of(index)
        if segment.flushed:
            self._urgent[group, segment.number] = None

    def is_looking_at(self, group: int) -> bool:
        """Whether a suspicion is not settled."""
        for work in (self._running, self._resumed):
            if work is not None and work.is_urgent and work.group == group:
                return True
        return any(one == group for one, _ in [*self._urgent, *self._engine.store.staging.suspects])

    def ask_scrub(self, node: int, groups: list[int], reply: Callable[[int], None], now: int) -> None:
        """Let a node read its logs of these groups (at most 1,024) now; how many it has, -1: it did not answer."""
        chosen = groups[:GROUPS_MAX]
        body = U32.pack(len(chosen)) + b"".join([U64.pack(group) for group in chosen])
        self._calls.ask_node(node, SCRUB_CALL, body, partial(_read_count, reply), now)

    def _on_scrub(self, body: bytes, answer: Replied) -> None:
        fields = Fields(body)
        groups = [fields.u64() for _ in range(fields.count(GROUPS_MAX, 8))]
        fields.finish()
        answer(OK, U32.pack(self.scrub_now(groups)))

    def scrub_now(self, groups: list[int]) -> int:
        """Read the logs of these groups now, as quickly as it may; how many of them are here."""
        self._begun = None
        self._group = -1
        here = [group for group in groups if group in self._engine.replicas]
        self._now_groups.update(dict.fromkeys(here))
        return len(here)

    def is_due(self, group: int) -> bool:
        """Whether a requested read of a group is not finished."""
        return group in self._now_groups

    def of(self, group: int) -> Scrubbed:
        """What is known of a log."""
        return self.by_group.setdefault(group, Scrubbed())

    def finished_ms(self, group: int) -> int:
        """When all of a log had been read; 0: never."""
        known = self.by_group.get(group)
        return known.finished_ms if known is not None else 0

    def differing(self, group: int) -> tuple[int, int]:
        """(blocks that another replica has otherwise, the first entry of the first of them)."""
        known = self.by_group.get(group)
        if known is None or not known.differs:
            return 0, 0
        return len(known.differs), min(known.differs) * BLOCK

    def remember(self) -> dict[str, list[list[int]]]:
        """What a restart should know: when logs were read, and what is damaged."""
        finished = [[group, known.finished_ms] for group, known in self.by_group.items() if known.finished_ms]
        replicas = self._engine.replicas.items()
        damaged = [[group, gap.first] for group, replica in replicas for gap in replica.log.gaps]
        return {"finished": finished, "damaged": damaged}

    def recall(self, known: dict[str, list[list[int]]]) -> None:
        """What ``remember`` gave before the last stop; what is not here any more is left out."""
        for group, finished_ms in known["finished"]:
            if group in self._engine.store.groups:
                self.of(group).finished_ms = finished_ms
        for group, index in known["damaged"]:
            self._engine.store.staging.suspect(group, index)

    def closed(self, group: int) -> None:
        """A replica is gone."""
        self.by_group.pop(group, None)
        self._now_groups.pop(group, None)
        suspects = self._engine.store.staging.suspects
        for key in [key for key in suspects if key[0] == group]:
            del suspects[key]

    # Time, and the driver that reads.

    def tick(self, now: int) -> None:
        """Look after suspicions and repairs."""
        suspects = self._engine.store.staging.suspects
        for group, index in list(suspects):
            log = self._log_of(group)
            if log is not None and index <= log.settled:  # what is not known to be committed yet can't be mended
                del suspects[group, index]
                self.suspect(group, index)
        self.mending.tick(now)

    def take(self, now: int, wall_ms: int) -> Inspection | None:
        """What to read next, if anything is due; ``done`` must follow."""
        if self._running is not None or self._engine.stopped or self._engine.store.down:
            return None
        self._running = self._take_urgent() or self._take_paced(now, wall_ms)
        return self._running

    def _take_urgent(self) -> Inspection | None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            return resumed
        while self._urgent:
            group, number = next(iter(self._urgent))
            log = self._log_of(group)
            if log is not None:
                for segment in log.segments:
                    if segment.number == number and segment.flushed:
                        found = Inspection(log, segment, PIECE_BYTES)
                        found.is_urgent = True
                        del self._urgent[group, number]
                        return found
            del self._urgent[group, number]
        return None

    def _take_paced(self, now: int, wall_ms: int) -> Inspection | None:
        if now < self._idle_until and not self._now_groups:
            return None
        self._count_rate(now)
        rate = self._rate_max if self._now_groups else self._rate
        self._credit = min(self._credit + rate * max(now - self._credit_at, 0) / 1_000, float(max(rate, PIECE_BYTES)))
        self._credit_at = now
        if self._credit <= 0 or not rate:
            return None
        begun = self._begun
        if begun is not None:
            self._begun = None
            log = self._log_of(begun.group)
            if log is not None and begun.is_of(log):
                begun.again()
                return begun
        return self._next_segment(now, wall_ms)

    def _count_rate(self, now: int) -> None:
        """Everything in its time, however much it is."""
        if now < self._rate_at:
            return
        self._rate_at = now + RATE_MS
        self._round = []  # there may be new ones
        total = sum([replica.log.size() for replica in self._engine.replicas.values()])
        wanted = max(total * 1_000 // (self._days * DAY_MS), BYTES_PER_SECOND_MIN) if self._days else 0
        self._rate = min(wanted, self._rate_max)

    def _next_segment(self, now: int, wall_ms: int) -> Inspection | None:
        for _ in range(LOOKS_MAX):
            log = self._log_of(self._group)
            segment = _segment_from(log, self._next) if log is not None and self._next < self._until else None
            if log is not None and segment is not None:
                return Inspection(log, segment, PIECE_BYTES)
            if log is not None:
                self._finish(self._group, self.of(self._group), log, wall_ms)  # nothing of it is in files
            if not self._next_group(wall_ms):
                self._idle_until = now + RATE_MS  # nothing is due: there may be thousands of logs to look at
                return None
        return None

    def _next_group(self, wall_ms: int) -> bool:
        """Whatever an operator waits for, else the log that was not read for longest, if it is time."""
        if self._now_groups:
            self._group = next(iter(self._now_groups))
        elif self._days:
            self._group = self._next_old(wall_ms - self._days * DAY_MS)
        log = self._log_of(self._group)
        if log is None:
            return False
        self._next = log.first
        self._until = max([segment.flushed_index for segment in log.segments], default=0)
        return True

    def _next_old(self, since_ms: int) -> int:
        """The next group that was not read since a time; -1 when there is none."""
        if not self._round:
            old = [group for group in self._engine.replicas if self.finished_ms(group) <= since_ms]
            self._round = sorted(old, key=self.finished_ms, reverse=True)
        while self._round:
            group = self._round.pop()
            if group in self._engine.replicas and self.finished_ms(group) <= since_ms:  # still
                return group
        return -1

    def done(self, work: Inspection, now: int, wall_ms: int) -> None:
        """A piece was read."""
        self._running = None
        self.bytes += work.bytes
        log = self._log_of(work.group)
        if log is None:
            return
        if not work.is_of(log):  # it may be cut: what is in its file now is read from the beginning
            if work.is_urgent:
                self._look_again(work.group, work.number)
            return
        for gap in work.gaps:
            if gap.next - 1 > log.settled:
                self._engine.store.staging.suspect(work.group, gap.next - 1)  # looked at again once it is committed
            else:
                self.mending.note(work.group, gap, now)
        if work.gaps:
            self.mending.tick(now)
        known = self.of(work.group)
        if work.is_urgent:
            if work.error or not work.is_over():
                self._go_on(work)
            return
        self._credit -= max(work.bytes, 4_096)
        self._digest(work, known, log)
        if work.error:
            self._credit = 0.0
            self._begun = work
        elif not work.is_over():
            self._begun = work
        else:
            self._next = work.stop_index
            if self._next >= self._until or _segment_from(log, self._next) is None:
                self._finish(work.group, known, log, wall_ms)
                self._compare(work.group, known, now)
        if len(known.fresh) >= DIGESTS_MAX:
            self._compare(work.group, known, now)

    def _go_on(self, work: Inspection) -> None:
        """The rest of a segment that is looked at now: with the next call of ``take``, before all others."""
        if work.error:
            self._urgent[work.group, work.number] = None
            return
        work.again()
        self._resumed = work

    def _finish(self, group: int, known: Scrubbed, log: GroupLog, wall_ms: int) -> None:
        known.finished_ms = wall_ms
        known.digests.forget_before(log.first // BLOCK)
        known.marks = bytearray()
        self._now_groups.pop(group, None)
        self._group = -1

    def _look_again(self, group: int, number: int) -> None:
        self._urgent[group, number] = None

    # Digests.

    def _digest(self, work: Inspection, known: Scrubbed, log: GroupLog) -> None:
        known.digests.forget_before(log.first // BLOCK)  # a snapshot may have taken the log far ahead
        for run in work.marks:
            del run.data[MARK_BYTES * max(log.settled + 1 - run.first, 0) :]  # others may take the place of the rest
            if not known.marks or run.first != known.marks_first + len(known.marks) // MARK_BYTES:
                known.marks = bytearray()
                known.marks_first = run.first
            known.marks += run.data
            ahead = -known.marks_first % BLOCK
            if ahead:  # a block counts from its first entry on
                ahead = min(ahead, len(known.marks) // MARK_BYTES)
                del known.marks[: MARK_BYTES * ahead]
                known.marks_first += ahead
                if known.marks_first % BLOCK:
                    continue
            while len(known.marks) >= MARK_BYTES * BLOCK:
                block = known.marks_first // BLOCK
                known.digests.set(block, crc32c(bytes(known.marks[: MARK_BYTES * BLOCK])))
                known.fresh.append(block)
                del known.marks[: MARK_BYTES * BLOCK]
                known.marks_first += BLOCK

    def _compare(self, group: int, known: Scrubbed, now: int) -> None:
        blocks = known.fresh
        known.fresh = []
        node = self._engine.host.groups.get(group)
        if not blocks or node is None:
            return
        first, count = blocks[0], min(blocks[-1] - blocks[0] + 1, 2 * DIGESTS_MAX)
        question = U64.pack(group) + U64.pack(first) + U32.pack(count)
        for member in node.state.configuration.members():
            if member != self._calls.me and member not in self._engine.host.unreachable:
                replied = partial(self._on_answer, group, first, member)
                self._calls.ask_node(member, DIGESTS_CALL, question, replied, now)

    def _on_digests(self, body: bytes, answer: Replied) -> None:
        fields = Fields(body)
        group, first, count = fields.u64(), fields.u64(), fields.u32()
        fields.finish()
        known = self.by_group.get(group)
        if known is None or count > 2 * DIGESTS_MAX:
            answer(REFUSED, b"")
            return
        answer(OK, b"".join([U32.pack(known.digests.get(block)) for block in range(first, first + count)]))

    def _on_answer(self, group: int, first: int, member: int, code: int, body: bytes) -> None:
        known = self.by_group.get(group)
        if code != OK or known is None:
            return
        fresh: list[int] = []
        for number in range(len(body) // MARK_BYTES):
            block = first + number
            theirs = int.from_bytes(body[MARK_BYTES * number : MARK_BYTES * (number + 1)], "little")
            ours = known.digests.get(block)
            if theirs and ours and theirs != ours and block not in known.differs:
                known.differs[block] = member
                fresh.append(block)
        if fresh:
            self._tell_difference(group, fresh, member)

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

    def _log_of(self, group: int) -> GroupLog | None:
        replica = self._engine.replicas.get(group)
        return replica.log if replica is not None else None


def _segment_from(log: GroupLog, index: int) -> Segment | None:
    """The segment to read next: the first with entries from ``index`` on in its file."""
    for segment in log.segments:
        if segment.flushed_index > index and segment.flushed_index > segment.first_index:
            return segment
    return None


def _read_count(reply: Callable[[int], None], code: int, body: bytes) -> None:
    reply(int.from_bytes(body, "little") if code == OK else -1)
