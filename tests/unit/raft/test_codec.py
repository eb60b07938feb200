from __future__ import annotations

import struct

import pytest

from flockmq.raft.codec import (
    FRAME_BYTES_MAX,
    HEAD,
    FrameError,
    decode_frame,
    encode_frame,
    frame_length,
    message_bytes,
)
from flockmq.raft.configuration import Configuration
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
from raft_cluster import batch, entry

META = SnapshotMeta(9, 3, 70, Configuration((1, 2), (2, 3), (4,)), 12, 4, 10, 0xDEADBEEF)
MESSAGES: list[Message] = [
    VoteRequest(7, 1, 2, 5, 11, 4, True, False),
    VoteRequest(7, 1, 2, 5, 11, 4, False, True),
    VoteReply(7, 1, 2, 5, True, False),
    VoteReply(7, 1, 2, 5, False, True),
    Append(7, 1, 2, 5, 11, 4, [entry(12, 4), entry(13, 5)], 10, 13, 99),
    Append(7, 1, 2, 5, 0, 0, [], 0, 0, 0),
    AppendReply(7, 1, 2, 5, True, 11, 0, 0, 99, False),
    AppendReply(7, 1, 2, 5, False, 11, 6, 3, 99, True),
    Heartbeat(7, 1, 2, 5, 10, 13, 99, False),
    Heartbeat(7, 1, 2, 5, 10, 13, 99, True),
    Heartbeat(7, 1, 2, 5, 10, 13, 99, False, True),
    HeartbeatReply(7, 1, 2, 5, 99, 13, 12, 10),
    SnapshotChunk(7, 1, 2, 5, META, 4, b"abc", 13, 99),
    SnapshotReply(7, 1, 2, 5, 9, 7, False),
    SnapshotReply(7, 1, 2, 5, 9, 10, True),
    TimeoutNow(2**64 - 1, 1, 2, 2**64 - 1),
    Forward(7, 1, 2, 9, 3, 4, batch(b"x")),
    ForwardReply(7, 1, 2, 5, 6, 7, 8, 1, 2**63),
]


def plain(value: object) -> object:
    """A message as values that can be compared."""
    if isinstance(value, Message | SnapshotMeta | Entry):
        names = [name for name in dir(value) if not name.startswith("_") and not callable(getattr(value, name))]
        return type(value).__name__, {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def frame(*messages: Message) -> bytes:
    return encode_frame(1, 33, 2, 55, 44, list(messages))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    data = frame(message)
    decoded = decode_frame(data)
    assert plain(decoded.messages[0]) == plain(message)
    assert len(data) <= HEAD.size + message_bytes(message) + 64


def test_messages_keep_their_order() -> None:
    decoded = decode_frame(frame(*MESSAGES))
    assert (decoded.sender, decoded.boot, decoded.receiver, decoded.number) == (1, 33, 2, 44)
    assert decoded.receiver_boot == 55
    assert [plain(message) for message in decoded.messages] == [plain(message) for message in MESSAGES]


def test_an_empty_frame_is_a_beat() -> None:
    assert decode_frame(frame()).messages == []
    assert len(frame()) == HEAD.size


def test_the_length_is_known_from_the_first_bytes() -> None:
    data = frame(*MESSAGES)
    assert [frame_length(data[:length]) for length in (0, 7, 8, 20)] == [0, 0, len(data), len(data)]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_frame_that_is_cut_anywhere_is_refused(message: Message) -> None:
    data = frame(message)
    for length in range(len(data)):
        with pytest.raises(FrameError):
            decode_frame(data[:length])
    for length in range(HEAD.size, len(data)):
        shorter = data[:4] + struct.pack("<I", length) + data[8:length]
        with pytest.raises(FrameError):
            decode_frame(shorter)


def test_bytes_behind_the_last_message_are_refused() -> None:
    data = frame(*MESSAGES) + b"\0"
    with pytest.raises(FrameError, match="behind its last message"):
        decode_frame(data[:4] + struct.pack("<I", len(data)) + data[8:])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no frame"),
        (struct.pack("<HBBI", 0x464B, 9, 0, 100) + bytes(92), "version 9"),
        (struct.pack("<HBBI", 0x464B, 1, 0, 4) + bytes(92), "can't have 4 bytes"),
        (struct.pack("<HBBI", 0x464B, 1, 0, FRAME_BYTES_MAX + 1) + bytes(92), "can't have"),
    ],
)
def test_other_protocols_and_impossible_lengths_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        frame_length(data)


@pytest.mark.parametrize(
    "entries",
    [
        [entry(12, 4), entry(14, 4)],
        [entry(13, 4)],
        [entry(12, 5), entry(13, 4)],
        [entry(12, 3)],
        [entry(12, 6)],
    ],
    ids=["a hole", "not the next", "terms that fall", "older than the one before", "newer than the message"],
)
def test_entries_must_follow_on_each_other(entries: list[Entry]) -> None:
    with pytest.raises(FrameError, match="does not follow"):
        decode_frame(frame(Append(7, 1, 2, 5, 11, 4, entries, 0, 13, 0)))


@pytest.mark.parametrize("position", [20, 50, 100, -1])
def test_a_flipped_bit_in_an_entry_is_refused(position: int) -> None:
    data = bytearray(entry(12, 4).data)
    data[position] ^= 1
    damaged = entry(12, 4)
    damaged.data = bytes(data)
    with pytest.raises(FrameError):
        decode_frame(frame(Append(7, 1, 2, 5, 11, 4, [damaged], 0, 13, 0)))


def test_an_unknown_type_is_refused() -> None:
    data = bytearray(frame(TimeoutNow(7, 1, 2, 5)))
    data[HEAD.size] = 200
    with pytest.raises(FrameError, match="type 200"):
        decode_frame(bytes(data))


def test_a_piece_beyond_the_end_of_its_snapshot_is_refused() -> None:
    with pytest.raises(FrameError, match="beyond its end"):
        decode_frame(frame(SnapshotChunk(7, 1, 2, 5, META, 8, b"abc", 13, 99)))


def test_what_is_no_message_can_not_be_sent() -> None:
    with pytest.raises(TypeError):
        frame(Message(7, 1, 2, 5))
