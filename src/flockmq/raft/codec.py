"""Frames between nodes: many messages of many groups, from one node to another, in the order they were said.

```
 frame    magic u16 | version u8 | zero u8 | length u32 (all of it) | sender u64 | boot u64 | receiver u64 | number u64
          | message count u32 | zero u32 | messages
 message  type u8 | group u64 | term u64 | fields of its type | entries or data
```
Little-endian. The decoder trusts nothing: lengths are checked against what is there before anything is made of
them, entries must be sound batches that follow on each other, and what is wrong raises FrameError.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import FlockError
from flockmq.log.batch import HEADER_BYTES, BatchError, BatchView, size_of
from flockmq.raft.configuration import decode_configuration
from flockmq.raft.entry import Entry
from flockmq.raft.messages import (
    Append,
    AppendReply,
    Forward,
    ForwardReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

MAGIC: Final = 0x464B
VERSION: Final = 1
FRAME_BYTES_MAX: Final = 134_217_728
"""No frame is larger; a link that announces more is closed."""
HEAD: Final = struct.Struct("<HBBIQQQQQII")
LENGTH_BYTES: Final = 8
"""So much of a frame tells its length."""

_LENGTH: Final = struct.Struct("<HBBI")
_COMMON: Final = struct.Struct("<BQQ")
_VOTE_REQUEST: Final = struct.Struct("<QQB")
_VOTE_REPLY: Final = struct.Struct("<B")
_APPEND: Final = struct.Struct("<QQQQQI")
_APPEND_REPLY: Final = struct.Struct("<BQQQQ")
_HEARTBEAT: Final = struct.Struct("<QQQB")
_HEARTBEAT_REPLY: Final = struct.Struct("<QQQQ")
_CHUNK: Final = struct.Struct("<QQQQQQIQQQII")
_SNAPSHOT_REPLY: Final = struct.Struct("<QQB")
_FORWARD: Final = struct.Struct("<QQI")
_FORWARD_REPLY: Final = struct.Struct("<QQQBQ")

_T_VOTE_REQUEST: Final = 1
_T_VOTE_REPLY: Final = 2
_T_APPEND: Final = 3
_T_APPEND_REPLY: Final = 4
_T_HEARTBEAT: Final = 5
_T_HEARTBEAT_REPLY: Final = 6
_T_CHUNK: Final = 7
_T_SNAPSHOT_REPLY: Final = 8
_T_TIMEOUT_NOW: Final = 9
_T_FORWARD: Final = 10
_T_FORWARD_REPLY: Final = 11


class FrameError(FlockError):
    """The other node sent what is no frame of this version; close the link to it."""


class Frame:
    """What a node said in one turn."""

    def __init__(
        self, sender: int, boot: int, receiver: int, receiver_boot: int, number: int, messages: list[Message]
    ) -> None:
        self.sender = sender
        self.boot = boot
        self.receiver = receiver
        self.receiver_boot = receiver_boot
        """Which life of the receiver the sender had heard from; 0: none."""
        self.number = number
        """Rises with each frame of a boot to a receiver."""
        self.messages = messages


def encode_frame(
    sender: int, boot: int, receiver: int, receiver_boot: int, number: int, messages: list[Message]
) -> bytes:
    """One frame with all these messages."""
    parts: list[bytes] = [b""]
    for message in messages:
        _encode(parts, message)
    length = HEAD.size + sum([len(part) for part in parts])
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"A frame may have {FRAME_BYTES_MAX:,} bytes, this one would have {length:,}")
    parts[0] = HEAD.pack(MAGIC, VERSION, 0, length, sender, boot, receiver, receiver_boot, number, len(messages), 0)
    return b"".join(parts)


def message_bytes(message: Message) -> int:
    """About how much a message takes in a frame."""
    size = 64
    if isinstance(message, Append):
        for entry in message.entries:
            size += len(entry.data)
    elif isinstance(message, SnapshotChunk):
        size += len(message.data) + 128
    elif isinstance(message, Forward):
        size += len(message.batch)
    return size


def frame_length(data: bytes) -> int:
    """Length of the frame that begins here, 0 when more bytes are needed to tell."""
    if len(data) < LENGTH_BYTES:
        return 0
    magic, version, _, length = _LENGTH.unpack_from(data)
    if magic != MAGIC:
        raise FrameError("These bytes are no frame of a FlockMQ node.")
    if version != VERSION:
        raise FrameError(f"The other node speaks version {version} of the node protocol, this one {VERSION}.")
    if length < HEAD.size or length > FRAME_BYTES_MAX:
        raise FrameError(f"A frame can't have {length:,} bytes.")
    return int(length)


def decode_frame(data: bytes) -> Frame:
    """Read one whole frame."""
    if len(data) < HEAD.size or frame_length(data) != len(data):
        raise FrameError(f"A frame of {len(data):,} bytes announces another length.")
    _, _, _, _, sender, boot, receiver, receiver_boot, number, count, _ = HEAD.unpack_from(data)
    reader = _Reader(data, HEAD.size, sender, receiver)
    try:
        messages = [reader.message() for _ in range(count)]
    except struct.error as error:
        raise FrameError("A message in a frame is cut off.") from error
    except (BatchError, ValueError) as error:
        raise FrameError(f"A message in a frame can't be read: {error}") from error
    if reader.position != len(data):
        raise FrameError("A frame has bytes behind its last message.")
    return Frame(sender, boot, receiver, receiver_boot, number, messages)


def _encode(parts: list[bytes], message: Message) -> None:
    if isinstance(message, Append):
        _put_append(parts, message)
    elif isinstance(message, AppendReply):
        flags = int(message.ok) | int(message.impaired) << 1
        fields = _APPEND_REPLY.pack(flags, message.index, message.hint_index, message.hint_term, message.lease_round)
        parts.append(_COMMON.pack(_T_APPEND_REPLY, message.group, message.term) + fields)
    elif isinstance(message, Heartbeat):
        flags = int(message.quiet) | int(message.is_news) << 1
        fields = _HEARTBEAT.pack(message.commit, message.last_index, message.lease_round, flags)
        parts.append(_COMMON.pack(_T_HEARTBEAT, message.group, message.term) + fields)
    elif isinstance(message, HeartbeatReply):
        fields = _HEARTBEAT_REPLY.pack(message.lease_round, message.matched, message.durable, message.commit)
        parts.append(_COMMON.pack(_T_HEARTBEAT_REPLY, message.group, message.term) + fields)
    elif isinstance(message, Forward):
        fields = _FORWARD.pack(message.previous, message.attempt, len(message.batch))
        parts.append(_COMMON.pack(_T_FORWARD, message.group, message.term) + fields)
        parts.append(message.batch)
    elif isinstance(message, ForwardReply):
        fields = _FORWARD_REPLY.pack(message.boot, message.sequence, message.attempt, message.outcome, message.value)
        parts.append(_COMMON.pack(_T_FORWARD_REPLY, message.group, message.term) + fields)
    else:
        _encode_rare(parts, message)


def _encode_rare(parts: list[bytes], message: Message) -> None:
    if isinstance(message, VoteRequest):
        flags = int(message.pre) | int(message.transfer) << 1
        fields = _VOTE_REQUEST.pack(message.last_index, message.last_term, flags)
        parts.append(_COMMON.pack(_T_VOTE_REQUEST, message.group, message.term) + fields)
    elif isinstance(message, VoteReply):
        fields = _VOTE_REPLY.pack(int(message.pre) | int(message.granted) << 1)
        parts.append(_COMMON.pack(_T_VOTE_REPLY, message.group, message.term) + fields)
    elif isinstance(message, SnapshotChunk):
        _put_chunk(parts, message)
    elif isinstance(message, SnapshotReply):
        fields = _SNAPSHOT_REPLY.pack(message.index, message.position, int(message.is_durable))
        parts.append(_COMMON.pack(_T_SNAPSHOT_REPLY, message.group, message.term) + fields)
    elif isinstance(message, TimeoutNow):
        parts.append(_COMMON.pack(_T_TIMEOUT_NOW, message.group, message.term))
    else:
        raise TypeError(f"{type(message).__name__} has no place in a frame")


def _put_append(parts: list[bytes], message: Append) -> None:
    fields = _APPEND.pack(
        message.prev_index,
        message.prev_term,
        message.commit,
        message.last_index,
        message.lease_round,
        len(message.entries),
    )
    parts.append(_COMMON.pack(_T_APPEND, message.group, message.term) + fields)
    parts += [entry.data for entry in message.entries]


def _put_chunk(parts: list[bytes], message: SnapshotChunk) -> None:
    meta = message.meta
    configuration = meta.configuration.encode()
    fields = _CHUNK.pack(
        meta.index,
        meta.term,
        meta.next_offset,
        meta.applied,
        meta.applied_term,
        meta.size,
        meta.checksum,
        message.position,
        message.last_index,
        message.lease_round,
        len(configuration),
        len(message.data),
    )
    parts.append(_COMMON.pack(_T_CHUNK, message.group, message.term) + fields + configuration)
    parts.append(message.data)


class _Reader:
    """Walks over the messages of a frame."""

    def __init__(self, data: bytes, position: int, sender: int, receiver: int) -> None:
        self.data = data
        self.position = position
        self.sender = sender
        self.receiver = receiver

    def message(self) -> Message:
        """The next one."""
        kind, group, term = _COMMON.unpack_from(self.data, self.position)
        self.position += _COMMON.size
        if kind == _T_APPEND:
            return self._append(group, term)
        if kind == _T_APPEND_REPLY:
            flags, index, hint_index, hint_term, lease_round = self._fields(_APPEND_REPLY)
            return AppendReply(
                group,
                self.sender,
                self.receiver,
                term,
                flags & 1 == 1,
                index,
                hint_index,
                hint_term,
                lease_round,
                flags & 2 == 2,
            )
        if kind == _T_HEARTBEAT:
            commit, last_index, lease_round, flags = self._fields(_HEARTBEAT)
            return Heartbeat(
                group,
                self.sender,
                self.receiver,
                term,
                commit,
                last_index,
                lease_round,
                flags & 1 == 1,
                flags & 2 == 2,
            )
        if kind == _T_HEARTBEAT_REPLY:
            lease_round, matched, durable, commit = self._fields(_HEARTBEAT_REPLY)
            return HeartbeatReply(group, self.sender, self.receiver, term, lease_round, matched, durable, commit)
        if kind == _T_FORWARD:
            return self._forward(group, term)
        if kind == _T_FORWARD_REPLY:
            boot, sequence, attempt, outcome, value = self._fields(_FORWARD_REPLY)
            return ForwardReply(group, self.sender, self.receiver, term, boot, sequence, attempt, outcome, value)
        return self._rare(kind, group, term)

    def _rare(self, kind: int, group: int, term: int) -> Message:
        if kind == _T_VOTE_REQUEST:
            last_index, last_term, flags = self._fields(_VOTE_REQUEST)
            pre = flags & 1 == 1
            return VoteRequest(group, self.sender, self.receiver, term, last_index, last_term, pre, flags & 2 == 2)
        if kind == _T_VOTE_REPLY:
            flags = self._fields(_VOTE_REPLY)[0]
            return VoteReply(group, self.sender, self.receiver, term, flags & 1 == 1, flags & 2 == 2)
        if kind == _T_CHUNK:
            return self._chunk(group, term)
        if kind == _T_SNAPSHOT_REPLY:
            index, position, is_durable = self._fields(_SNAPSHOT_REPLY)
            return SnapshotReply(group, self.sender, self.receiver, term, index, position, is_durable == 1)
        if kind == _T_TIMEOUT_NOW:
            return TimeoutNow(group, self.sender, self.receiver, term)
        raise FrameError(f"A frame has a message of type {kind}, which this version does not know.")

    def _fields(self, layout: struct.Struct) -> tuple[int, ...]:
        fields: tuple[int, ...] = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return fields

    def _bytes(self, length: int) -> bytes:
        end = self.position + length
        if end > len(self.data):
            raise FrameError("A message in a frame is cut off.")
        data = self.data[self.position : end]
        self.position = end
        return data

    def _batch(self) -> BatchView:
        """The batch that begins here, cut out and verified."""
        view = BatchView(self._bytes(size_of(self.data, self.position)))
        view.verify()
        return view

    def _append(self, group: int, term: int) -> Append:
        prev_index, prev_term, commit, last_index, lease_round, count = self._fields(_APPEND)
        if count * HEADER_BYTES > len(self.data) - self.position:
            raise FrameError("An append announces more entries than its frame can hold.")
        entries: list[Entry] = []
        index = prev_index
        latest = prev_term
        for _ in range(count):
            view = self._batch()
            index += 1
            if view.index != index or view.term < latest or view.term > term:
                raise FrameError(f"Entry {view.index} of term {view.term} does not follow on entry {index - 1}.")
            latest = view.term
            entries.append(Entry(view))
        return Append(
            group,
            self.sender,
            self.receiver,
            term,
            prev_index,
            prev_term,
            entries,
            commit,
            last_index,
            lease_round,
        )

    def _chunk(self, group: int, term: int) -> SnapshotChunk:
        fields = self._fields(_CHUNK)
        configuration = decode_configuration(self._bytes(fields[10]))
        data = self._bytes(fields[11])
        meta = SnapshotMeta(fields[0], fields[1], fields[2], configuration, fields[3], fields[4], fields[5], fields[6])
        position = fields[7]
        if position + len(data) > meta.size:
            raise FrameError("A piece of a snapshot reaches beyond its end.")
        return SnapshotChunk(group, self.sender, self.receiver, term, meta, position, data, fields[8], fields[9])

    def _forward(self, group: int, term: int) -> Forward:
        previous, attempt, length = self._fields(_FORWARD)
        view = self._batch()
        if view.size != length:
            raise FrameError("A forwarded run has another length than announced.")
        return Forward(group, self.sender, self.receiver, term, previous, attempt, view.data)
