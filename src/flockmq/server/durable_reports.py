"""Answers between nodes for the admin API alone: segments, and the node that leads group 0.

```
 SEGMENTS  after which group? --> up to ``REPORTS_MAX`` segments of the groups behind it, whole groups
 DECIDERS  -------------------> leader, voters and learners of group 0, from a node that has a replica of it
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from flockmq.cluster.dump import SegmentReport
from flockmq.durable.state.group0 import GROUP
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import reasons

if TYPE_CHECKING:
    from flockmq.durable.node import DurableNode

REPORTS_MAX: Final = 4_096


class Deciders(msgspec.Struct, frozen=True, array_like=True):
    """The node that decides about cluster state."""

    leader: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]


_segments: Final = msgspec.msgpack.Decoder(list[SegmentReport])
_deciders: Final = msgspec.msgpack.Decoder(Deciders | None)


class Reports:
    """Answers for this node."""

    def __init__(self, node: DurableNode) -> None:
        self._node = node

    @staticmethod
    def ask_segments(after: int) -> bytes:
        """The question for segments of groups behind this one."""
        return after.to_bytes(8, "little")

    def segments(self, question: bytes) -> bytes:
        """Segments here, in the order of their groups."""
        if len(question) != 8:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A question for segments names a group")
        after = int.from_bytes(question, "little")
        node = self._node
        me = node.node_id
        found: list[SegmentReport] = []
        for group in sorted(node.engine.replicas):
            if group <= after or group == GROUP:
                continue
            log = node.engine.replicas[group].log
            if not log.segments:
                continue
            ends = [segment.base_offset for segment in log.segments[1:]] + [log.next_offset()]
            found += [
                SegmentReport(me, group, segment.base_offset, end, segment.length)
                for segment, end in zip(log.segments, ends, strict=True)
            ]
            if len(found) >= REPORTS_MAX:
                break
        return msgspec.msgpack.encode(found)

    @staticmethod
    def read_segments(body: bytes) -> list[SegmentReport]:
        """An answer to SEGMENTS; nothing when it makes no sense."""
        try:
            return _segments.decode(body)
        except msgspec.DecodeError:
            return []

    def deciders(self, question: bytes) -> bytes:  # noqa: ARG002
        """The node that decides, as far as this node knows."""
        return msgspec.msgpack.encode(self.deciders_here())

    def deciders_here(self) -> Deciders | None:
        """The node that decides, from the replica of group 0 on this node; None without one."""
        status = self._node.partitions.status(GROUP)
        return None if status is None else Deciders(status.leader, status.replicas, status.learners)

    @staticmethod
    def read_deciders(body: bytes) -> Deciders | None:
        """An answer to DECIDERS."""
        try:
            found: Deciders | None = _deciders.decode(body)
        except msgspec.DecodeError:
            return None
        return found
