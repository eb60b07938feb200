"""Where a persistent session stands, as its former owner tells the next one: places in logs and packet ids, no payload.

```
 standing = format, next packet id | ids being released | places in logs | ranges in flight and waiting, in their order
 range    = partition, first offset, count | QoS, retain | first packet id (0: waits) | subscription ids
```
All these messages were read from logs, so the next owner reads the same records there (``reloading.py``). For ranges
that do not fit, the next owner reads on from the first offset that is left out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.peering.fields import NUMBER_MAX, U16, U32, Reader, malformed, sized
from flockmq.session.outbound import PACKET_IDS, Delivery, LogSource
from flockmq.session.places import LISTED, POSITION, START, LogPlace

if TYPE_CHECKING:
    from flockmq.session.outbound import Outbound

FORMAT: Final = 1
RANGES_MAX: Final = 8_192
"""Ranges that a standing lists."""
PLACES_MAX: Final = 8_192
PROPERTIES_BYTES_MAX: Final = 4_096
_RETAIN: Final = 4
_RANGE: Final = struct.Struct("<QQHBH")
_PLACE: Final = struct.Struct("<BQQ")


class Range:
    """Consecutive records of a partition, in flight from packet id ``first`` on, or waiting (0)."""

    def __init__(
        self, partition: int, offset: int, count: int, qos: int, retain: bool, first: int, properties: bytes
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.count = count
        self.qos = qos
        self.retain = retain
        self.first = first
        self.properties = properties

    def encode(self) -> bytes:
        """For a standing."""
        flags = self.qos | (_RETAIN if self.retain else 0)
        return _RANGE.pack(self.partition, self.offset, self.count, flags, self.first) + sized(self.properties)


class Standing:
    """See the module."""

    def __init__(self, next_pid: int, releasing: list[int], places: list[LogPlace], ranges: list[Range]) -> None:
        self.next_pid = next_pid
        self.releasing = releasing
        """Packet ids whose PUBREL was sent, the oldest first."""
        self.places = places
        self.ranges = ranges
        self.deliveries: list[Delivery] = []
        """The ranges with their messages, once the messages are read again."""

    def encode(self) -> bytes:
        """For the next owner."""
        parts = [bytes((FORMAT,)), U16.pack(self.next_pid), U32.pack(len(self.releasing))]
        parts += [U16.pack(pid) for pid in self.releasing]
        parts.append(U32.pack(len(self.places)))
        parts += [_PLACE.pack(one.kind, one.group, one.offset) + sized(one.topic_filter) for one in self.places]
        parts.append(U32.pack(len(self.ranges)))
        parts += [one.encode() for one in self.ranges]
        return b"".join(parts)

    def read_again(self, missing: list[Range]) -> None:
        """Some ranges could not be read: the session reads on from the first of them."""
        lowest: dict[int, int] = {}
        for one in missing:
            lowest[one.partition] = min(one.offset, lowest.get(one.partition, one.offset))
        for place in self.places:
            if place.kind == POSITION and place.group in lowest:
                place.offset = min(place.offset, lowest.pop(place.group))
        self.places += [LogPlace(POSITION, b"", group, offset) for group, offset in lowest.items()]


def standing_of(outbound: Outbound | None, places: list[LogPlace]) -> Standing:
    """The standing of a session: messages of logs in flight and in its queue, without those of shared groups."""
    if outbound is None:
        return Standing(1, [], places[:PLACES_MAX], [])
    ranges: list[Range] = []
    for delivery in outbound.waiting_runs():
        source = delivery.group
        if isinstance(source, LogSource):
            ranges += ranges_of(delivery, source)
    standing = Standing(outbound.next_pid, list(outbound.releasing), places[:PLACES_MAX], ranges[:RANGES_MAX])
    standing.read_again(ranges[RANGES_MAX:])
    return standing


def ranges_of(delivery: Delivery, source: LogSource) -> list[Range]:
    """The unacknowledged messages of a delivery, as ranges of consecutive records."""
    found: list[Range] = []
    base = source.offset + delivery.skipped + delivery.low
    for place in delivery.unsettled():
        first = delivery.first + place if delivery.first else 0
        last = found[-1] if found else None
        if last is not None and last.offset + last.count == base + place:
            last.count += 1
            continue
        offset = base + place
        found.append(Range(source.partition, offset, 1, delivery.qos, delivery.retain, first, delivery.properties))
    return found


def read_standing(body: bytes) -> Standing:
    """Read ``Standing.encode``; RemoteProtocolError for other bytes."""
    reader = Reader(body)
    if reader.u8() != FORMAT:
        raise malformed("a session in another format")
    next_pid = reader.u16()
    releasing = [reader.u16() for _ in range(reader.count(PACKET_IDS, 2))]
    places = [_read_place(reader) for _ in range(reader.count(PLACES_MAX, _PLACE.size + 2))]
    ranges = [_read_range(reader) for _ in range(reader.count(RANGES_MAX, _RANGE.size + 2))]
    reader.finish()
    if not next_pid or 0 in releasing or len(set(releasing)) < len(releasing):
        raise malformed("a packet id twice, or none")
    _check_ids(next_pid, set(releasing), ranges)
    return Standing(next_pid, releasing, places, ranges)


def _read_place(reader: Reader) -> LogPlace:
    kind, group, offset = _PLACE.unpack_from(reader.data, reader.skip(_PLACE.size))
    topic_filter = reader.sized()
    if kind > LISTED or group > NUMBER_MAX or offset > NUMBER_MAX or (kind == START) != bool(topic_filter):
        raise malformed("a place in a log that can't be")
    return LogPlace(kind, topic_filter, group, offset)


def _read_range(reader: Reader) -> Range:
    partition, offset, count, flags, first = _RANGE.unpack_from(reader.data, reader.skip(_RANGE.size))
    properties = reader.sized()
    qos = flags & 3
    if qos not in (1, 2) or flags >> 3 or not count or offset > NUMBER_MAX or len(properties) > PROPERTIES_BYTES_MAX:
        raise malformed("messages of a session that can't be")
    if first and first + count - 1 > PACKET_IDS:
        raise malformed("messages in flight with ids that do not exist")
    return Range(partition, offset, count, qos, flags & _RETAIN != 0, first, properties)


def _check_ids(next_pid: int, releasing: set[int], ranges: list[Range]) -> None:
    """Check that ids in flight are unique, in the order in which they were given, and before all waiting messages."""
    age = PACKET_IDS + 1
    for one in ranges:
        if not one.first:
            age = 0
            continue
        older = (next_pid - one.first) % PACKET_IDS or PACKET_IDS
        if older >= age or older < one.count or not releasing.isdisjoint(range(one.first, one.first + one.count)):
            raise malformed("messages in flight whose ids are not in their order")
        age = older - one.count + 1
