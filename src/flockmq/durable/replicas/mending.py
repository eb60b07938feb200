"""Brings back committed entries that a segment file of this node does not give back: from another replica.

```
 Scrubbing: Gap --> noted on the log, told (event, status, metric): never served, never sent from here
                      |
                ENTRIES to one replica after the other --> each batch verified: checksum, entry, term, offset, length
                      |                                          ` does not fit: told, never written
                Store.repair (a chore) --> inspected once more --> gap gone, the group goes on
```
Entries are committed, so that every replica that has applied them has the same bytes. The replica goes on voting: its
log's metadata has the entries, so that no candidate without them gets its vote (docs/decisions/damage-and-scrub.md).
"""

from __future__ import annotations

import struct
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import ANSWER_BYTES_MAX, OK, REFUSED, Reply
from flockmq.log.batch import HEADER_BYTES, BatchError, BatchView
from flockmq.log.errors import DamageError, EntryGone
from flockmq.log.work import Repair
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import ENTRIES_CALL
from flockmq.tasks import Sleep

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.log.group import GroupLog
    from flockmq.log.segment import Segment
    from flockmq.log.state import Gap
    from flockmq.raft.engine import RaftEngine
    from flockmq.tasks import Task

LOOK_MS: Final = 100
RETRY_MS: Final = 1_000
AGAIN_MS: Final = 60_000
"""Before a segment is written once more that was written and is damaged again."""
REPAIR_BYTES_MAX: Final = 8 * 1_048_576
"""Fetched before it is written; a longer gap is filled in several steps."""
MENDS_MAX: Final = 16
"""Gaps that are filled at once; the others wait. One that no replica could fill makes room for them."""
_ASK: Final = struct.Struct("<QQQI")
"""Group, first entry, the one behind the last, bytes of the first entry that the asking node has."""


class _Fetched:
    """What another replica gave of a gap."""

    def __init__(self, gap: Gap) -> None:
        self.gap = gap
        self.data = bytearray()
        """Verified batches, from the beginning of the gap on."""
        self.rest = bytearray()
        """The beginning of the next batch."""
        self.index = gap.first
        self.offset = gap.first_offset

    def take(self, body: bytes, log: GroupLog) -> None:
        """Take whole batches; BatchError unless each is exactly the one that was lost."""
        rest = bytes(self.rest) + body
        gap = self.gap
        position = 0
        while len(rest) - position >= HEADER_BYTES and self.index < gap.next:
            view = BatchView(rest, position)
            if view.end > len(rest):
                break
            view.verify()
            if view.index != self.index or view.term != log.term_at(self.index) or view.base_offset != self.offset:
                raise BatchError(f"entry {view.index} of term {view.term} has offset {view.base_offset}")
            if gap.start + len(self.data) + view.size > gap.stop:
                raise BatchError(f"entry {view.index} is longer than its place in the log of this node")
            self.data += view.whole()
            self.index += 1
            self.offset = view.next_offset
            position = view.end
        self.rest = bytearray(rest[position:])
        is_all = self.index == gap.next
        if is_all and (len(self.data) != gap.stop - gap.start or self.offset != gap.end_offset):
            raise BatchError(f"entries {gap.first} to {self.index - 1} do not fill their place in the log")


class Mending:
    """See the module. ``urgent``: segments, by group and number, to be inspected next."""

    def __init__(self, engine: RaftEngine, calls: PartitionCalls, urgent: dict[tuple[int, int], None]) -> None:
        self._engine = engine
        self._calls = calls
        self._urgent = urgent
        self._mends: set[tuple[int, int]] = set()
        """Gaps that are being filled, by group and first entry."""
        self._groups: set[int] = set()
        """Those with gaps."""
        self._repaired_at: dict[tuple[int, int], int] = {}
        """By group and segment, of the last minute."""
        self.found = 0
        """Batches that were found to be damaged since the start."""
        self.repaired = 0
        """Batches that were brought back since the start."""
        calls.serve_replica(ENTRIES_CALL, self._on_entries)
        calls.tasks.every("mend logs", LOOK_MS, self.go_on)

    def damaged(self, group: int) -> tuple[int, int, int]:
        """(batches, first offset, end offset) of what a replica here can't give back."""
        replica = self._engine.replicas.get(group)
        gaps = replica.log.gaps if replica is not None else []
        if not gaps:
            return 0, 0, 0
        return sum([gap.next - gap.first for gap in gaps]), gaps[0].first_offset, gaps[-1].end_offset

    def damaged_batches(self) -> int:
        """Batches of all replicas here that are damaged now."""
        return sum([self.damaged(group)[0] for group in self._groups])

    def note(self, group: int, gap: Gap, now: int) -> None:
        """Damage was found among committed entries."""
        log = self._log_of(group)
        if log is None or not log.add_gap(gap):
            return
        self._groups.add(group)
        if (group, gap.number) in self._repaired_at:  # a disk that does not keep it: not again and again
            gap.retry_at = now + AGAIN_MS
        segment = _segment_of(log, gap)
        self.found += gap.next - gap.first
        others = self._others(group)
        what = "They are fetched from another replica and written back; until then other replicas serve them."
        if not others:
            what = "There is no other replica: these records are lost, all others can be read."
        self._event(
            "log_damaged",
            group,
            gap,
            file=log.path(segment.file_name()) if segment is not None else "",
            message=f"Batches of this log can't be read: {gap.reason}. {what}",
        )

    def go_on(self) -> bool:
        """Begin to fill gaps that are due."""
        now = self._calls.now
        for group in list(self._groups):
            log = self._log_of(group)
            if log is not None:
                log.drop_stale_gaps()
            if log is None or not log.gaps:
                self._groups.discard(group)
        for key in [key for key, at in self._repaired_at.items() if at + AGAIN_MS <= now]:
            del self._repaired_at[key]
        for group, gap in self._due(now):
            self._calls.tasks.start("mend a gap", self._mend(group, gap))
        return bool(self._engine.stopped)

    def _due(self, now: int) -> list[tuple[int, Gap]]:
        """The gaps that have waited for longest, as many as may be filled at once."""
        due = []
        for group in self._groups:
            log = self._log_of(group)
            if log is not None and self._others(group):
                waiting = [gap for gap in log.gaps if gap.retry_at <= now and (group, gap.first) not in self._mends]
                due += [(gap.retry_at, group, gap.first, gap) for gap in waiting]
        return [(group, gap) for _, group, _, gap in nsmallest(MENDS_MAX - len(self._mends), due)]

    # The replica that lacks something.

    def _mend(self, group: int, gap: Gap) -> Task[None]:
        """Ask one replica after the other, and write what one of them has."""
        key = (group, gap.first)
        self._mends.add(key)
        try:
            for node_id in self._others(group):
                fetched = yield from self._fetch(group, gap, node_id)
                if fetched is not None:
                    yield from self._write(group, gap, fetched)
                    return
                if self._log_with(group, gap) is None:
                    return
            gap.retry_at = self._calls.now + RETRY_MS
        finally:
            self._mends.discard(key)

    def _fetch(self, group: int, gap: Gap, node_id: int) -> Task[_Fetched | None]:
        """The entries of a gap from one replica; None: it does not have them."""
        fetched = _Fetched(gap)
        while fetched.index < gap.next and len(fetched.data) < REPAIR_BYTES_MAX:
            question = _ASK.pack(group, fetched.index, gap.next, len(fetched.rest))
            code, body = yield from self._calls.ask_replica(node_id, ENTRIES_CALL, question)
            log = self._log_with(group, gap)
            if log is None or code != OK or not body:
                return None
            try:
                fetched.take(body, log)
            except BatchError as error:
                self._event("log_differs", group, gap, node=f"{node_id:016x}", message=_DIFFERS.format(error))
                return None
        return fetched

    def _write(self, group: int, gap: Gap, fetched: _Fetched) -> Task[None]:
        log = self._log_with(group, gap)
        segment = _segment_of(log, gap) if log is not None else None
        if log is None or segment is None:
            return
        repair = Repair(log, segment, gap.start, bytes(fetched.data))
        self._engine.store.repair(repair)
        self._engine.kick()
        while not repair.is_over:
            yield Sleep(LOOK_MS)
            if self._log_with(group, gap) is None:
                return
        if repair.error:
            self._event("log_not_repaired", group, gap, message=f"The segment can't be written: {repair.error}.")
            gap.retry_at = self._calls.now + RETRY_MS
            return
        self._written(group, log, gap, fetched)

    def _written(self, group: int, log: GroupLog, gap: Gap, fetched: _Fetched) -> None:
        count = fetched.index - gap.first
        self.repaired += count
        message = "Damaged batches were fetched from another replica and written back."
        self._event("log_repaired", group, gap, batches=count, message=message)
        if fetched.index < gap.next:  # the rest of a long one
            gap.first, gap.start, gap.first_offset = fetched.index, gap.start + len(fetched.data), fetched.offset
        else:
            log.gaps = [one for one in log.gaps if one is not gap]
        self._repaired_at[group, gap.number] = self._calls.now
        self._urgent[group, gap.number] = None
        self._engine.host.mended(group)
        self._engine.wake()

    def _others(self, group: int) -> list[int]:
        node = self._engine.host.groups.get(group)
        if node is None:
            return []
        state = node.state
        others = [member for member in state.configuration.members() if member != self._calls.me]
        return sorted(others, key=lambda member: member in self._engine.host.unreachable)

    def _log_of(self, group: int) -> GroupLog | None:
        replica = self._engine.replicas.get(group)
        return replica.log if replica is not None else None

    def _log_with(self, group: int, gap: Gap) -> GroupLog | None:
        """The log, while it has this gap."""
        log = self._log_of(group)
        return log if log is not None and gap in log.gaps else None

    def _event(self, kind: str, group: int, gap: Gap, **fields: object) -> None:
        where: dict[str, object] = {
            "partition": group,
            "first_offset": gap.first_offset,
            "end_offset": gap.end_offset,
            "first_entry": gap.first,
        }
        self._engine.events.append((kind, {**where, **fields}))

    # The replica that has it.

    def _on_entries(self, body: bytes) -> Reply:
        fields = Fields(body)
        group, first, behind, skip = _ASK.unpack_from(body, fields.skip(_ASK.size))
        fields.finish()
        log = self._log_of(group)
        if log is None or group in self._engine.host.broken or not log.first <= first < behind <= log.settled + 1:
            return Reply(REFUSED)
        try:
            found = b"".join(log.entries(first, behind, skip + ANSWER_BYTES_MAX))
        except (DamageError, EntryGone, OSError):
            return Reply(REFUSED)
        return Reply(OK, found[skip : skip + ANSWER_BYTES_MAX])


def _segment_of(log: GroupLog, gap: Gap) -> Segment | None:
    for segment in log.segments:
        if segment.number == gap.number:
            return segment
    return None


_DIFFERS: Final = (
    "Another replica has something else in the place of damaged batches, with checksums that fit: {}. Nothing was "
    "written. Replicas must be the same byte for byte; report this with the logs of all its nodes."
)
