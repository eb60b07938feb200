"""The next owner of a persistent session: asks the former one where the session stands, and reads its messages again.

```
 claim granted, another node had the session --YIELD--> the former owner: closes its client, says where it stands
        |                                    `--> no answer in half a second: the record has to do
        v
 ranges in flight and waiting --> read from their logs --> deliveries, with their packet ids --> restore (restoring.py)
                          `--> could not be read in time: the session reads on from the first of them
                          `--> gone from the log: left out
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import OK
from flockmq.durable.deliver.decoding import BatchDecoder
from flockmq.durable.machine.session_bodies import encode_named
from flockmq.durable.sessions.standing import read_standing
from flockmq.errors import Damaged, OffsetGone, RemoteProtocolError
from flockmq.log.batch import BatchError
from flockmq.peering.kinds import YIELD_CALL
from flockmq.session.outbound import DELIVERY_OVERHEAD_BYTES, Delivery, LogSource
from flockmq.tasks import within

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.logs.logs import Logs
    from flockmq.durable.machine.session_record import SessionRecord
    from flockmq.durable.sessions.standing import Range, Standing
    from flockmq.node.state import NodeState
    from flockmq.tasks import Task

YIELD_MS: Final = 500
"""How long a former owner may take to say where a session stands."""
READ_MS: Final = 1_000
CHUNK_BYTES: Final = 256 * 1_024


class Reloading:
    """See the module."""

    def __init__(self, node: NodeState, calls: PartitionCalls, logs: Logs) -> None:
        self._node = node
        self._calls = calls
        self._logs = logs
        self.taken = 0
        """Sessions that another node has yielded."""

    def take(self, record: SessionRecord) -> Task[Standing | None]:
        """The session's standing, with its messages; None: no other node had the session, or it did not answer."""
        if record.former in (0, self._calls.me):
            return None
        question = encode_named(record.client, record.before)
        reply = yield from self._calls.ask_replica(record.former, YIELD_CALL, question, YIELD_MS)
        if reply.code != OK or not reply.body:
            return None
        try:
            standing = read_standing(reply.body)
        except RemoteProtocolError:
            return None
        self.taken += 1
        yield from self._load(standing, record.version)
        return standing

    def _load(self, standing: Standing, version: int) -> Task[None]:
        by_group: dict[int, list[Range]] = {}
        for one in standing.ranges:
            by_group.setdefault(one.partition, []).append(one)
        found: dict[int, Delivery] = {}
        missing: list[Range] = []
        due_at = self._calls.now + READ_MS
        for group, ranges in by_group.items():
            ranges.sort(key=_offset_of)
            missing += yield from self._read(group, ranges, version, due_at, found)
        standing.read_again(missing)
        standing.deliveries = [found[id(one)] for one in standing.ranges if id(one) in found]

    def _read(
        self, group: int, ranges: list[Range], version: int, due_at: int, found: dict[int, Delivery]
    ) -> Task[list[Range]]:
        """Read ranges of a partition into ``found``; returns the ranges that could not be read in time."""
        at = 0
        while at < len(ranges):
            fetch = self._logs.fetch(group, ranges[at].offset, CHUNK_BYTES)
            fetched = yield from within(fetch, max(due_at - self._calls.now, 0))
            if fetched is None:
                return ranges[at:]
            if isinstance(fetched.error, OffsetGone | Damaged):
                at += 1
                continue
            if not fetched.batches:
                return ranges[at:]
            before = at
            try:
                for batch in fetched.batches:
                    at = self._decode(batch, ranges, at, version, found)
            except BatchError:
                at += 1
            if at == before:
                return ranges[at:]
        return []

    def _decode(self, batch: bytes, ranges: list[Range], at: int, version: int, found: dict[int, Delivery]) -> int:
        """Find the ranges that a batch holds; returns the number of the next range."""
        decoder = BatchDecoder(batch)
        decoder.cuts(False, decoder.end - decoder.base)
        while at < len(ranges) and ranges[at].offset < decoder.end:
            one = ranges[at]
            at += 1
            start = one.offset - decoder.base
            if start < 0 or one.offset + one.count > decoder.end:
                continue
            run = decoder.piece(start, start + one.count, version, self._node.wall_offset_ms).run
            delivery = Delivery(
                run, 0, one.count, one.qos, one.retain, one.properties, LogSource(one.partition, one.offset), one.first
            )
            delivery.held = len(run.wire) + DELIVERY_OVERHEAD_BYTES
            found[id(one)] = delivery
        return at


def _offset_of(one: Range) -> int:
    return one.offset
