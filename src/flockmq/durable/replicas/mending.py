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
from collections.abc import Callable
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import ANSWER_BYTES_MAX, OK, REFUSED
from flockmq.log.batch import HEADER_BYTES, BatchError, BatchView
from flockmq.log.errors import DamageError, EntryGone
from flockmq.log.work import Repair
from flockmq.peering.fields import Reader as Fields
from flockmq.peering.kinds import ENTRIES_CALL

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls, Replied
    from flockmq.log.group import GroupLog
    from flockmq.log.segment import Segment
    from flockmq.log.state import Gap
    from flockmq.raft.engine import RaftEngine

RETRY_MS: Final = 1_000
AGAIN_MS: Final = 60_000
"""Before a segment is written once more that was written and is damaged again."""
REPAIR_BYTES_MAX: Final = 8 * 1_048_576
"""Fetched before it is written; a longer gap is filled in several steps."""
MENDS_MAX: Final = 16
"""Gaps that are filled at once; the others wait. One that no replica could fill makes room for them."""
_ASK: Final = struct.Struct("<QQQI")
"""Group, first entry, the one behind the last, bytes of the first entry that the asking node has."""

Refilled = Callable[[int, int], None]
"""(group, number of the segment): look at it once more."""


class _Mend:
    """A gap that is being filled."""

    def __init__(self, group: int, gap: Gap, offset: int) -> None:
        self.group = group
        self.gap = gap
        self.data = bytearray()
        """What has come and is verified, from the beginning of the gap on,"""
        self.rest = bytearray()
        """and the beginning of the next batch."""
        self.index = gap.first
        self.offset = offset
        self.asked = 0
        self.is_out = False
        self.repair: Repair | None = None


class Mending:
    """See the module."""

    def __init__(self, engine: RaftEngine, calls: PartitionCalls, refilled: Refilled) -> None:
        self._engine = engine
        self._calls = calls
        self._refilled = refilled
        self._mends: dict[tuple[int, int], _Mend] = {}
        """By group and first entry."""
        self._groups: set[int] = set()
        """Those with gaps."""
        self._repaired_at: dict[tuple[int, int], int] = {}
        """By group and segment, of the last minute."""
        self.found = 0
        """Batches that were found to be damaged since the start,"""
        self.repaired = 0
        """and batches that were brought back."""
        calls.serve_node(ENTRIES_CALL, self._on_entries)

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

    def tick(self, now: int) -> None:
        """Begin to fill gaps, ask again, finish what was written."""
        if not self._groups and not self._mends:
            return
        for group in list(self._groups):
            log = self._log_of(group)
            if log is not None:
                log.drop_stale_gaps()
            if log is None or not log.gaps:
                self._groups.discard(group)
        if len(self._mends) < MENDS_MAX:
            self._begin(now)
        for mend in list(self._mends.values()):
            self._look_at(mend, now)
        for key in [key for key, at in self._repaired_at.items() if at + AGAIN_MS <= now]:
            del self._repaired_at[key]

    def _begin(self, now: int) -> None:
        """Fill the gaps next that have waited for longest."""
        due = []
        for group in self._groups:
            log = self._log_of(group)
            if log is not None and self._others(group):
                waiting = [gap for gap in log.gaps if gap.retry_at <= now and (group, gap.first) not in self._mends]
                due += [(gap.retry_at, group, gap.first, gap) for gap in waiting]
        for _, group, first, gap in nsmallest(MENDS_MAX - len(self._mends), due):
            self._mends[group, first] = _Mend(group, gap, gap.first_offset)

    def _look_at(self, mend: _Mend, now: int) -> None:
        log = self._log_of(mend.group)
        if log is None or mend.gap not in log.gaps:
            self._forget(mend)
        elif mend.repair is not None:
            if mend.repair.is_over:
                self._written(mend, log, now)
        elif not mend.is_out:
            self._ask(mend, now)

    # The replica that lacks something.

    def _ask(self, mend: _Mend, now: int) -> None:
        others = self._others(mend.group)
        if not others:
            self._forget(mend)
            return
        node = others[mend.asked % len(others)]
        question = _ASK.pack(mend.group, mend.index, mend.gap.next, len(mend.rest))
        mend.is_out = True
        self._calls.ask_node(node, ENTRIES_CALL, question, partial(self._on_answer, mend, node), now)

    def _on_answer(self, mend: _Mend, node: int, code: int, body: bytes) -> None:
        mend.is_out = False
        now = self._calls.now
        log = self._log_of(mend.group)
        if log is None or mend.gap not in log.gaps:
            return
        if code != OK or not body:
            self._try_another(mend, now)
            return
        mend.rest += body
        try:
            self._take(mend, log)
        except BatchError as error:
            self._event("log_differs", mend.group, mend.gap, node=f"{node:016x}", message=_DIFFERS.format(error))
            self._try_another(mend, now)
            return
        if mend.index < mend.gap.next and len(mend.data) < REPAIR_BYTES_MAX:
            self._ask(mend, now)
            return
        segment = _segment_of(log, mend.gap)
        if segment is not None:
            mend.repair = Repair(log, segment, mend.gap.start, bytes(mend.data))
            self._engine.store.repair(mend.repair)
            self._engine.kick()

    def _take(self, mend: _Mend, log: GroupLog) -> None:
        """Whole batches, if each is exactly the one that was lost."""
        rest = bytes(mend.rest)
        position = 0
        while len(rest) - position >= HEADER_BYTES and mend.index < mend.gap.next:
            view = BatchView(rest, position)
            if view.end > len(rest):
                break
            view.verify()
            fits = mend.gap.start + len(mend.data) + view.size <= mend.gap.stop
            if view.index != mend.index or view.term != log.term_at(mend.index) or view.base_offset != mend.offset:
                raise BatchError(f"entry {view.index} of term {view.term} has offset {view.base_offset}")
            if not fits:
                raise BatchError(f"entry {view.index} is longer than its place in the log of this node")
            mend.data += view.whole()
            mend.index += 1
            mend.offset = view.next_offset
            position = view.end
        mend.rest = bytearray(rest[position:])
        is_all = mend.index == mend.gap.next
        if is_all and (len(mend.data) != mend.gap.stop - mend.gap.start or mend.offset != mend.gap.end_offset):
            raise BatchError(f"entries {mend.gap.first} to {mend.index - 1} do not fill their place in the log")

    def _try_another(self, mend: _Mend, now: int) -> None:
        mend.asked += 1
        mend.data = bytearray()
        mend.rest = bytearray()
        mend.index = mend.gap.first
        mend.offset = mend.gap.first_offset
        if mend.asked >= len(self._others(mend.group)):
            self._put_off(mend, now)

    def _put_off(self, mend: _Mend, now: int) -> None:
        mend.gap.retry_at = now + RETRY_MS
        self._forget(mend)

    def _written(self, mend: _Mend, log: GroupLog, now: int) -> None:
        assert mend.repair is not None
        error = mend.repair.error
        mend.repair = None
        if error:
            self._event("log_not_repaired", mend.group, mend.gap, message=f"The segment can't be written: {error}.")
            self._put_off(mend, now)
            return
        count = mend.index - mend.gap.first
        self.repaired += count
        self._event(
            "log_repaired",
            mend.group,
            mend.gap,
            batches=count,
            message="Damaged batches were fetched from another replica and written back.",
        )
        gap = mend.gap
        self._forget(mend)
        if mend.index < gap.next:  # the rest of a long one
            gap.first, gap.start, gap.first_offset = mend.index, gap.start + len(mend.data), mend.offset
        else:
            log.gaps = [one for one in log.gaps if one is not gap]
        self._repaired_at[mend.group, gap.number] = now
        self._refilled(mend.group, gap.number)
        self._engine.host.mended(mend.group)
        self._engine.wake()

    def _forget(self, mend: _Mend) -> None:
        for key in [key for key, one in self._mends.items() if one is mend]:
            del self._mends[key]

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

    def _event(self, kind: str, group: int, gap: Gap, **fields: object) -> None:
        where: dict[str, object] = {
            "partition": group,
            "first_offset": gap.first_offset,
            "end_offset": gap.end_offset,
            "first_entry": gap.first,
        }
        self._engine.events.append((kind, {**where, **fields}))

    # The replica that has it.

    def _on_entries(self, body: bytes, answer: Replied) -> None:
        fields = Fields(body)
        group, first, behind, skip = _ASK.unpack_from(body, fields.skip(_ASK.size))
        fields.finish()
        log = self._log_of(group)
        if log is None or group in self._engine.host.broken or not log.first <= first < behind <= log.settled + 1:
            answer(REFUSED, b"")
            return
        try:
            found = b"".join(log.entries(first, behind, skip + ANSWER_BYTES_MAX))
        except (DamageError, EntryGone, OSError):
            answer(REFUSED, b"")
            return
        answer(OK, found[skip : skip + ANSWER_BYTES_MAX])


def _segment_of(log: GroupLog, gap: Gap) -> Segment | None:
    for segment in log.segments:
        if segment.number == gap.number:
            return segment
    return None


_DIFFERS: Final = (
    "Another replica has something else in the place of damaged batches, with checksums that fit: {}. Nothing was "
    "written. Replicas must be the same byte for byte; report this with the logs of all its nodes."
)
