"""Counts what a client receives and answers it, many packets at a time: the receiving half of a load generator.

```
 bytes as read --> Tally.feed --> acknowledgements to write back (PUBACK, PUBREC, PUBREL, PUBCOMP)
                      |---------> publishes, duplicates, completed, refused: numbers
                      |---------> stamps: the first 8 payload bytes of each PUBLISH, when latency is measured
                      `---------> others: whole packets that are not part of the flow (CONNACK, SUBACK, DISCONNECT ...)
```
Load looks alike: thousands of packets in a row with the same first byte, length and topic length. Such a row is
found by comparing *columns* of the buffer (every ``stride``-th byte) and is counted and acknowledged at once, so
the work per packet is a few bytes copied. Whatever is not alike is walked packet by packet.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.reasons import MALFORMED_PACKET

FAILURE: Final = 0x80

PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7

ANSWERS: Final = (b"", b"\x40\x02", b"\x50\x02", b"")
"""How the answer to a PUBLISH begins, by its QoS."""

ROW_FIRST: Final = 16
ROW_MAX: Final = 65_536


class Tally:
    """What one connection has received so far."""

    def __init__(self, version: int, timed: bool = False) -> None:
        self.version = version
        self.timed = timed
        self.publishes = 0
        self.duplicates = 0
        self.completed = 0
        """Messages of our own that the broker has finished: PUBACK or PUBCOMP came, or a refusal."""
        self.refused = 0
        self.stamps: list[int] = []
        self.others: list[bytes] = []
        self._rest = b""
        self._row_max = ROW_FIRST

    def feed(self, data: bytes) -> bytes:
        """Count the packets in ``data``, however split, and return the acknowledgements they ask for."""
        if self._rest:
            data = self._rest + data
        size = len(data)
        offset = 0
        answers: list[bytes] = []
        while offset + 2 <= size:
            length = data[offset + 1]
            header = 2
            if length >= 128:
                header = header_bytes(data, offset, size)
                if header == 0:
                    break
                length = remaining_length(data, offset, header)
            stride = header + length
            if offset + stride > size:
                break
            first = data[offset]
            kind = first >> 4
            count = 1
            if kind == PUBLISH:
                if length < 2:
                    raise RemoteProtocolError(MALFORMED_PACKET, "A PUBLISH without a topic came from the broker")
                if self.timed:
                    self._stamp(data, offset + header, first, offset + stride)
                elif offset + 3 * stride <= size and twice(data, offset, stride):
                    count = self._row(data, offset, stride, header + 2, size)
                if first & 0x0E:
                    self._published(data, offset, header, stride, count, answers)
                self.publishes += count
            elif PUBACK <= kind <= PUBCOMP and length >= 2:
                if length == 2 and offset + 12 <= size and twice(data, offset, 4):
                    count = self._row(data, offset, 4, 2, size)
                self._acknowledged(data, offset + header, kind, length, count, answers)
            else:
                self.others.append(data[offset : offset + stride])
            offset += stride * count
        self._rest = data[offset:] if offset else data
        return b"".join(answers)

    def _row(self, data: bytes, start: int, stride: int, columns: int, size: int) -> int:
        """How many packets from ``start`` on are alike. A broken row makes the next look shorter, so that looking
        ahead never costs much more than what it finds."""
        count = min((size - start) // stride, self._row_max)
        found = alike(data, start, stride, columns, count)
        if found < count:
            self._row_max = ROW_FIRST
        elif found < ROW_MAX:
            self._row_max = found * 4 if found * 4 > ROW_FIRST else ROW_FIRST
        return found

    def _published(self, data: bytes, offset: int, header: int, stride: int, count: int, answers: list[bytes]) -> None:
        first = data[offset]
        if first & 0x08:
            self.duplicates += count
        qos = (first >> 1) & 3
        if qos == 0:
            return
        at = offset + header + 2 + (data[offset + header] << 8 | data[offset + header + 1])
        if at + 2 > offset + stride:
            raise RemoteProtocolError(MALFORMED_PACKET, "A PUBLISH without a packet id came from the broker")
        if count == 1:
            answers.append(ANSWERS[qos] + data[at : at + 2])
            return
        end = offset + stride * count
        answers.append(acknowledge(0x40 if qos == 1 else 0x50, data[at:end:stride], data[at + 1 : end : stride]))

    def _acknowledged(self, data: bytes, at: int, kind: int, length: int, count: int, answers: list[bytes]) -> None:
        """``at`` is where the first packet id stands; only packets of four bytes come in rows."""
        failed = length > 2 and data[at + 2] >= FAILURE
        if failed:
            self.refused += 1
        if kind in {PUBACK, PUBCOMP} or (failed and kind == PUBREC):
            self.completed += count
            return
        answer = 0x62 if kind == PUBREC else 0x70
        end = at + 4 * count - 2
        answers.append(acknowledge(answer, data[at:end:4], data[at + 1 : end : 4]))

    def _stamp(self, data: bytes, at: int, first: int, end: int) -> None:
        at += 2 + (data[at] << 8 | data[at + 1])
        if first & 0x06:
            at += 2
        if self.version == 5 and at < end:
            width = header_bytes(data, at - 1, end) - 1
            if width <= 0:
                return
            at += width + remaining_length(data, at - 1, width + 1)
        if at + 8 <= end:
            self.stamps.append(int.from_bytes(data[at : at + 8], "big"))


def twice(data: bytes, offset: int, stride: int) -> bool:
    """Whether the packet at ``offset`` and the two behind it share type and length: worth looking for a row."""
    first = data[offset]
    length = data[offset + 1]
    after = offset + stride
    if data[after] != first or data[after + 1] != length:
        return False
    after += stride
    return data[after] == first and data[after + 1] == length


def alike(data: bytes, start: int, stride: int, columns: int, count: int) -> int:
    """How many of ``count`` packets, ``stride`` apart, begin with the same ``columns`` bytes as the first one."""
    for column in range(start, start + columns):
        row = data[column : start + stride * count : stride]
        one = row[:1]
        if row != one * count:
            count -= len(row.lstrip(one))
    return count


def acknowledge(first: int, high: bytes, low: bytes) -> bytes:
    """Packets of two bytes body, one for each packet id, whose bytes are given as two columns."""
    count = len(low)
    block = bytearray(4 * count)
    block[0::4] = bytes((first,)) * count
    block[1::4] = b"\x02" * count
    block[2::4] = high
    block[3::4] = low
    return bytes(block)


def header_bytes(data: bytes, offset: int, size: int) -> int:
    """How many bytes first byte and remaining length take; 0 while they are not all there."""
    for width in range(1, 5):
        if offset + width >= size:
            return 0
        if data[offset + width] < 128:
            return width + 1
    raise RemoteProtocolError(MALFORMED_PACKET, "A remaining length of more than four bytes came from the broker")


def remaining_length(data: bytes, offset: int, header: int) -> int:
    """The variable byte integer behind the first byte of a packet whose header takes ``header`` bytes."""
    value = 0
    for position in range(offset + header - 1, offset, -1):
        value = value << 7 | (data[position] & 127)
    return value
