"""Reads all segment files again and again, at a bounded rate, and compares them between replicas.

```
 suspects (a read met damage) --.
 scrub now (an operator) -------+--> take(now): Inspection --> performed off the loop --> done --> gaps --> Mending
 everything, once in a period --'                                                          `--> digests of blocks
                                                                                                     |
                                            compared with other replicas (``digests.py``)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import GROUPS_MAX, OK, Reply
from flockmq.durable.replicas.digests import DIGESTS_MAX, DigestComparison
from flockmq.durable.replicas.mending import Mending
from flockmq.log.survey import Inspection
from flockmq.peering.fields import U32, U64
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import SCRUB_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.log.group import GroupLog
    from flockmq.log.segment import Segment
    from flockmq.log.settings import StoreSettings
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Promise, Task

PIECE_BYTES: Final = 512 * 1024
"""Read at once."""
DAY_MS: Final = 24 * 3_600_000
BYTES_PER_SECOND_MIN: Final = 64 * 1024
SUSPECTS_MS: Final = 100
RATE_MS: Final = 60_000
"""How often the rate is counted again."""
LOOKS_MAX: Final = 64
"""Logs that are looked at in one turn of the event loop, until one has something to be read."""


class ScrubRate:
    """How much may be read now: all logs within ``days``, within a rate that leaves the disk to others."""

    def __init__(self, engine: RaftEngine, settings: StoreSettings) -> None:
        self.days = settings.scrub_days
        """0: logs are read on request only."""
        self._engine = engine
        self._max = settings.scrub_bytes_per_second
        self._rate = BYTES_PER_SECOND_MIN
        self._counted_at = 0
        self._credit = 0.0
        self._credit_at = 0

    def is_recounted(self, now: int) -> bool:
        """Count the rate again if it is time; True when that was done."""
        if now < self._counted_at:
            return False
        self._counted_at = now + RATE_MS
        total = sum([replica.log.size() for replica in self._engine.replicas.values()])
        wanted = max(total * 1_000 // (self.days * DAY_MS), BYTES_PER_SECOND_MIN) if self.days else 0
        self._rate = min(wanted, self._max)
        return True

    def may_read(self, now: int, is_requested: bool) -> bool:
        """Whether a piece may be read; ``is_requested``: an operator waits, the highest rate counts."""
        rate = self._max if is_requested else self._rate
        self._credit = min(self._credit + rate * max(now - self._credit_at, 0) / 1_000, float(max(rate, PIECE_BYTES)))
        self._credit_at = now
        return self._credit > 0 and rate > 0

    def spend(self, bytes_read: int) -> None:
        """A piece was read."""
        self._credit -= max(bytes_read, 4_096)

    def pause(self) -> None:
        """The disk had an error: wait before the next piece."""
        self._credit = 0.0


class Scrubbing:
    """See the module."""

    def __init__(self, engine: RaftEngine, calls: PartitionCalls, settings: StoreSettings) -> None:
        self._engine = engine
        self._calls = calls
        self._rate = ScrubRate(engine, settings)
        engine.store.leave_to_mender()
        self._urgent: dict[tuple[int, int], None] = {}
        """(group, number of a segment) to be looked at now."""
        self.mending = Mending(engine, calls, self._urgent)
        self.digests = DigestComparison(engine, calls)
        self._finished_ms: dict[int, int] = {}
        """When all of a log had been read last, by the wall clock."""
        self.bytes = 0
        """Read since the start."""
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
        """A segment of the round of which not all was read."""
        self._resumed: Inspection | None = None
        """A suspect segment of which not all was read."""
        self._idle_until = 0
        calls.serve_replica(SCRUB_CALL, self._on_scrub)
        calls.tasks.every("look after suspect segments", SUSPECTS_MS, self._look_at_suspects)

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

    def ask_scrub(self, node_id: int, groups: list[int]) -> Promise[int]:
        """Let a node read its logs of these groups (at most 1,024) now; how many it has, -1: it did not answer."""
        return self._calls.tasks.start("ask a node to scrub", self._ask_scrub(node_id, groups[:GROUPS_MAX]))

    def _ask_scrub(self, node_id: int, groups: list[int]) -> Task[int]:
        question = U32.pack(len(groups)) + b"".join([U64.pack(group) for group in groups])
        code, body = yield from self._calls.ask_replica(node_id, SCRUB_CALL, question)
        return int.from_bytes(body, "little") if code == OK else -1

    def _on_scrub(self, body: bytes) -> Reply:
        fields = Fields(body)
        groups = [fields.u64() for _ in range(fields.count(GROUPS_MAX, 8))]
        fields.finish()
        return Reply(OK, U32.pack(self.scrub_now(groups)))

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

    def finished_ms(self, group: int) -> int:
        """When all of a log had been read; 0: not since this log was opened."""
        return self._finished_ms.get(group, 0)

    def remember(self) -> dict[str, list[list[int]]]:
        """What a restart should know: when logs were read, and what is damaged."""
        finished = [[group, finished_ms] for group, finished_ms in self._finished_ms.items()]
        replicas = self._engine.replicas.items()
        damaged = [[group, gap.first] for group, replica in replicas for gap in replica.log.gaps]
        return {"finished": finished, "damaged": damaged}

    def recall(self, known: dict[str, list[list[int]]]) -> None:
        """What ``remember`` gave before the last stop; what is not here any more is left out."""
        for group, finished_ms in known["finished"]:
            if group in self._engine.store.groups:
                self._finished_ms[group] = finished_ms
        for group, index in known["damaged"]:
            self._engine.store.staging.suspect(group, index)

    def closed(self, group: int) -> None:
        """A replica is gone."""
        self.digests.closed(group)
        self._finished_ms.pop(group, None)
        self._now_groups.pop(group, None)
        suspects = self._engine.store.staging.suspects
        for key in [key for key in suspects if key[0] == group]:
            del suspects[key]

    # Time, and the driver that reads.

    def _look_at_suspects(self) -> bool:
        """Look at segments that a reader suspects, once the entries are committed: others can't be mended."""
        suspects = self._engine.store.staging.suspects
        for group, index in list(suspects):
            log = self._log_of(group)
            if log is not None and index <= log.settled:
                del suspects[group, index]
                self.suspect(group, index)
        return bool(self._engine.stopped)

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
        if self._rate.is_recounted(now):
            self._round = []  # there may be new logs
        if not self._rate.may_read(now, bool(self._now_groups)):
            return None
        begun = self._begun
        if begun is not None:
            self._begun = None
            log = self._log_of(begun.group)
            if log is not None and begun.is_of(log):
                begun.again()
                return begun
        return self._next_segment(now, wall_ms)

    def _next_segment(self, now: int, wall_ms: int) -> Inspection | None:
        for _ in range(LOOKS_MAX):
            log = self._log_of(self._group)
            segment = _segment_from(log, self._next) if log is not None and self._next < self._until else None
            if log is not None and segment is not None:
                return Inspection(log, segment, PIECE_BYTES)
            if log is not None:
                self._finish(self._group, log, wall_ms)  # nothing of it is in files
            if not self._next_group(wall_ms):
                self._idle_until = now + RATE_MS  # nothing is due: there may be thousands of logs to look at
                return None
        return None

    def _next_group(self, wall_ms: int) -> bool:
        """A log that an operator waits for, else the log that was not read for longest, if it is time."""
        if self._now_groups:
            self._group = next(iter(self._now_groups))
        elif self._rate.days:
            self._group = self._next_old(wall_ms - self._rate.days * DAY_MS)
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
                self._urgent[work.group, work.number] = None
            return
        for gap in work.gaps:
            if gap.next - 1 > log.settled:
                self._engine.store.staging.suspect(work.group, gap.next - 1)  # looked at again once it is committed
            else:
                self.mending.note(work.group, gap, now)
        if work.gaps:
            self.mending.go_on()
        if work.is_urgent:
            if work.error or not work.is_over():
                self._go_on(work)
            return
        self._rate.spend(work.bytes)
        known = self.digests.of(work.group)
        known.take(work, log)
        if work.error:
            self._rate.pause()
            self._begun = work
        elif not work.is_over():
            self._begun = work
        else:
            self._next = work.stop_index
            if self._next >= self._until or _segment_from(log, self._next) is None:
                self._finish(work.group, log, wall_ms)
                self.digests.compare(work.group)
        if len(known.fresh) >= DIGESTS_MAX:
            self.digests.compare(work.group)

    def _go_on(self, work: Inspection) -> None:
        """The rest of a segment that is looked at now: with the next call of ``take``, before all others."""
        if work.error:
            self._urgent[work.group, work.number] = None
            return
        work.again()
        self._resumed = work

    def _finish(self, group: int, log: GroupLog, wall_ms: int) -> None:
        self._finished_ms[group] = wall_ms
        self.digests.of(group).finish(log)
        self._now_groups.pop(group, None)
        self._group = -1

    def _log_of(self, group: int) -> GroupLog | None:
        replica = self._engine.replicas.get(group)
        return replica.log if replica is not None else None


def _segment_from(log: GroupLog, index: int) -> Segment | None:
    """The segment to read next: the first with entries from ``index`` on in its file."""
    for segment in log.segments:
        if segment.flushed_index > index and segment.flushed_index > segment.first_index:
            return segment
    return None
