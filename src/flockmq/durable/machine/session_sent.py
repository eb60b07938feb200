"""QoS 2 messages on their way from logs to the client of a persistent session, as its record lists them.

```
 SEND2: sent --PUBREC: REC2--> received --PUBCOMP: DONE2--> done --the session's position passes the offset--> gone
        |                      `-- the next owner sends PUBREL
        `-- the next owner reads the record at its offset and sends it again, with the same packet id
```
The record lists each message by its own offset, because records between two of them may not match the session.

SEND2, REC2 and DONE2 are parts of one statement (``SentChange``). An owner has one statement of a session under way at
a time, and numbers them: parts can't overtake each other, and a statement that comes late or twice changes nothing.
A message that is done stays listed while the position is before its offset: the next owner reads from the position on.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.peering.fields import NUMBER_MAX, U16, U32, U64, Reader, malformed

SENT_MAX: Final = 2_048
"""Messages of a session that its record lists, done ones included."""
SENT_IDS: Final = 65_535

_SENT: Final = struct.Struct("<HQQB")
_PLACE: Final = struct.Struct("<QQ")
SENT_BYTES: Final = _SENT.size


class SentMessage:
    """A message of a log under a packet id."""

    def __init__(self, partition: int, offset: int, is_received: bool = False) -> None:
        self.partition = partition
        self.offset = offset
        self.is_received = is_received


class SentChange:
    """One statement of an owner about one session: DONE2, REC2 and SEND2, applied in this order."""

    def __init__(self, stamp: int) -> None:
        self.stamp = stamp
        """Grows by one with each statement of an owner."""
        self.sent: dict[int, SentMessage] = {}
        """By packet id, messages that the owner is about to send."""
        self.received: list[int] = []
        """Packet ids with a PUBREC, whose PUBREL is about to be sent."""
        self.done: list[int] = []
        """Packet ids with a PUBCOMP, or whose message the client does not take."""
        self.floors: dict[int, int] = {}
        """By partition, the first offset that the client may not have acknowledged."""

    def is_empty(self) -> bool:
        """Whether nothing is to be said."""
        return not (self.sent or self.received or self.done)

    def encode(self) -> bytes:
        """For a statement."""
        parts = [U64.pack(self.stamp), _encode_sent(self.sent), _encode_ids(self.received), _encode_ids(self.done)]
        parts.append(_encode_places(list(self.floors.items())))
        return b"".join(parts)


class SentMessages:
    """See the module."""

    def __init__(self) -> None:
        self.stamp = 0
        """The stamp of the last statement that was applied."""
        self.by_id: dict[int, SentMessage] = {}
        """By packet id: sent or received, in the order in which they were sent."""
        self.done: dict[tuple[int, int], None] = {}
        """(partition, offset) of messages that are done, and that the position has not passed."""

    def count(self) -> int:
        """How many messages are listed."""
        return len(self.by_id) + len(self.done)

    def apply(self, change: SentChange) -> bool:
        """Apply a statement; False, without a change: the statement is not new, or lists too many messages."""
        if change.stamp <= self.stamp or self.count() + len(change.sent) > SENT_MAX:
            return False
        self.stamp = change.stamp
        for packet_id in change.done:
            self._end(packet_id)
        for packet_id in change.received:
            if packet_id in self.by_id:
                self.by_id[packet_id].is_received = True
        for packet_id, message in change.sent.items():
            self._end(packet_id)  # a packet id stands for one message at a time
            self.by_id[packet_id] = SentMessage(message.partition, message.offset)
        self.pass_over(change.floors)
        return True

    def _end(self, packet_id: int) -> None:
        message = self.by_id.pop(packet_id, None)
        if message is not None:
            self.done[message.partition, message.offset] = None

    def pass_over(self, floors: dict[int, int]) -> None:
        """Forget done messages before the positions of the session."""
        if self.done:
            self.done = {
                (partition, offset): None for partition, offset in self.done if offset >= floors.get(partition, 0)
            }

    def offsets(self) -> dict[int, list[int]]:
        """By partition, all listed offsets in order; no listed offset may be delivered as a new message."""
        found: dict[int, list[int]] = {}
        for message in self.by_id.values():
            found.setdefault(message.partition, []).append(message.offset)
        for partition, offset in self.done:
            found.setdefault(partition, []).append(offset)
        return {partition: sorted(set(offsets)) for partition, offsets in found.items()}

    def needed(self) -> dict[int, int]:
        """By partition, the first offset that a next owner would have to read in order to send it again."""
        found: dict[int, int] = {}
        for message in self.by_id.values():
            if not message.is_received:
                found[message.partition] = min(message.offset, found.get(message.partition, message.offset))
        return found

    def copy(self) -> SentMessages:
        """A copy for an owner that continues the session."""
        return read_sent(Reader(self.encode()))

    def encode(self) -> bytes:
        """For a checkpoint."""
        return U64.pack(self.stamp) + _encode_sent(self.by_id) + _encode_places(list(self.done))


def read_sent(reader: Reader) -> SentMessages:
    """Read ``SentMessages.encode``."""
    messages = SentMessages()
    messages.stamp = reader.number()
    messages.by_id = _read_sent(reader)
    messages.done = dict.fromkeys(_read_places(reader, SENT_MAX))
    return messages


def read_change(reader: Reader) -> SentChange:
    """Read ``SentChange.encode``."""
    change = SentChange(reader.number())
    change.sent = _read_sent(reader)
    change.received = _read_ids(reader)
    change.done = _read_ids(reader)
    change.floors = dict(_read_places(reader, 2 * SENT_MAX))
    return change


def _encode_sent(messages: dict[int, SentMessage]) -> bytes:
    parts = [U32.pack(len(messages))]
    for packet_id, message in messages.items():
        parts.append(_SENT.pack(packet_id, message.partition, message.offset, message.is_received))
    return b"".join(parts)


def _read_sent(reader: Reader) -> dict[int, SentMessage]:
    found: dict[int, SentMessage] = {}
    for _ in range(reader.count(SENT_MAX, SENT_BYTES)):
        fields: tuple[int, int, int, int] = _SENT.unpack_from(reader.data, reader.skip(SENT_BYTES))
        packet_id, partition, offset, is_received = fields
        if not packet_id or packet_id in found or offset > NUMBER_MAX or is_received > 1:
            raise malformed("a message under way that can't be")
        found[packet_id] = SentMessage(partition, offset, bool(is_received))
    return found


def _encode_ids(packet_ids: list[int]) -> bytes:
    return U32.pack(len(packet_ids)) + b"".join([U16.pack(packet_id) for packet_id in packet_ids])


def _read_ids(reader: Reader) -> list[int]:
    return [reader.u16() for _ in range(reader.count(SENT_IDS, 2))]


def _encode_places(places: list[tuple[int, int]]) -> bytes:
    return U32.pack(len(places)) + b"".join([_PLACE.pack(partition, offset) for partition, offset in places])


def _read_places(reader: Reader, most: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for _ in range(reader.count(most, _PLACE.size)):
        partition = reader.u64()
        found.append((partition, reader.number()))
    return found
