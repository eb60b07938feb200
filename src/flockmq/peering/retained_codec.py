"""The parts that nodes exchange about retained messages, as bytes.

```
 CHANGES   entry entry ...            entry = flags 1 | stamp 8 | node 8 | [expires 8] | length 4 | PUBLISH as stored
 ROOT      digest of all buckets 8                             or, deleted:            | length 2 | topic
 BUCKETS   1,024 digests 8
 LIST      section section ...        what is in a range of a bucket: bucket 2 | behind | through | count 4 | versions
 ANSWER    what is unfinished | topics that are wanted
 DONE      the repair is over
```
Numbers are little-endian; a topic has two bytes of length before it; an expiry is in milliseconds since 1970, so that
it means the same moment everywhere. Every field is checked: a part that does not fit is a FlockError.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flockmq.errors import FlockError
from flockmq.mqtt.stored import stored_run
from flockmq.mqtt.topics import check_topic_name
from flockmq.routing.buckets import BUCKETS, ORIGIN_BITS, ORIGIN_MASK, version_of
from flockmq.routing.clock import STAMP_MAX

if TYPE_CHECKING:
    from flockmq.mqtt.run import Run
    from flockmq.routing.retained import RetainedMessage

CHANGES: Final = 1
ROOT: Final = 2
BUCKET_DIGESTS: Final = 3
LIST: Final = 4
ANSWER: Final = 5
DONE: Final = 6

MESSAGE: Final = 1
EXPIRES: Final = 2
VERSION_5: Final = 4

_HEAD: Final = struct.Struct("<BQQ")
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_VERSION: Final = struct.Struct("<QQ")
_DIGESTS: Final = struct.Struct(f"<{BUCKETS}Q")
EXPIRES_MAX: Final = 1 << 53


class Change:
    """A retained message of another node; without a run, a deletion."""

    def __init__(self, topic: bytes, run: Run | None, stamp: int, origin: int) -> None:
        self.topic = topic
        self.run = run
        self.stamp = stamp
        self.origin = origin


class Section:
    """The names of one bucket behind ``after``, up to ``through`` (empty: to the end), with their versions."""

    def __init__(self, bucket: int, after: bytes, through: bytes, versions: dict[bytes, int]) -> None:
        self.bucket = bucket
        self.after = after
        self.through = through
        self.versions = versions


class Reader:
    """Reads a body from front to end."""

    def __init__(self, body: bytes, pos: int = 0) -> None:
        self.body = body
        self.pos = pos
        self.end = len(body)

    def has_more(self) -> bool:
        """Whether the end is not yet reached."""
        return self.pos < self.end

    def take(self, size: int) -> int:
        """Where the next ``size`` bytes begin; they are there."""
        pos = self.pos
        if size > self.end - pos:
            raise FlockError("What another node said about retained messages is cut off.")
        self.pos = pos + size
        return pos

    def u8(self) -> int:
        """One byte."""
        return self.body[self.take(1)]

    def u16(self) -> int:
        """Two bytes."""
        at = self.take(2)
        return self.body[at] | self.body[at + 1] << 8

    def u32(self) -> int:
        """Four bytes."""
        at = self.take(4)
        return int.from_bytes(self.body[at : at + 4], "little")

    def u64(self) -> int:
        """Eight bytes."""
        at = self.take(8)
        return int.from_bytes(self.body[at : at + 8], "little")

    def stamp(self) -> int:
        """A stamp; refused when no node can have made it."""
        stamp = self.u64()
        if not 0 < stamp <= STAMP_MAX:
            raise FlockError(f"A retained message of another node has the stamp {stamp}.")
        return stamp

    def octets(self, size: int) -> bytes:
        """Raw bytes of this length."""
        at = self.take(size)
        return self.body[at : at + size]

    def text(self) -> bytes:
        """Bytes with two bytes of length before them."""
        return self.octets(self.u16())


# --- changes ---


def encode_message(message: RetainedMessage, wall_offset_ms: int) -> bytes:
    """A message as an entry."""
    run = message.run
    flags = MESSAGE | VERSION_5 if run.version == 5 else MESSAGE
    expires = b""
    if run.expires_at:
        flags |= EXPIRES
        expires = _U64.pack(max(run.expires_at + wall_offset_ms, 1))
    return _HEAD.pack(flags, message.stamp, message.origin) + expires + _U32.pack(len(run.wire)) + run.wire


def encode_deletion(topic: bytes, version: int) -> bytes:
    """A deletion as an entry."""
    return _HEAD.pack(0, version >> ORIGIN_BITS, version & ORIGIN_MASK) + _U16.pack(len(topic)) + topic


def decode_change(reader: Reader, wall_offset_ms: int) -> Change:
    """The next entry; its expiry becomes a moment of our clock."""
    flags = reader.u8()
    stamp = reader.stamp()
    origin = reader.u64()
    if flags == 0:
        topic = reader.text()
        check_topic_name(topic)
        check_shared(topic)
        return Change(topic, None, stamp, origin)
    if flags & ~(EXPIRES | VERSION_5) != MESSAGE:
        raise FlockError(f"A retained message of another node has the unknown flags 0x{flags:02X}.")
    expires_at = 0
    if flags & EXPIRES:
        expires = reader.u64()
        if not 0 < expires <= EXPIRES_MAX:
            raise FlockError(f"A retained message of another node expires at {expires}.")
        expires_at = max(expires - wall_offset_ms, 1)
    run = stored_run(5 if flags & VERSION_5 else 4, reader.octets(reader.u32()), expires_at)
    check_shared(run.topic)
    return Change(run.topic, run, stamp, origin)


def check_shared(topic: bytes) -> None:
    """Every node has its own ``$SYS``."""
    if topic.startswith(b"$SYS/"):
        raise FlockError("Another node sent a retained message under $SYS/, where each node has its own.")


# --- digests ---


def encode_root(root: int) -> bytes:
    """The digest of all buckets."""
    return bytes((ROOT,)) + _U64.pack(root)


def pack_digests(digests: list[int]) -> bytes:
    """The digests of all buckets, in order."""
    return _DIGESTS.pack(*digests)


def decode_digests(reader: Reader) -> list[int]:
    """The digests of all buckets."""
    size = reader.end - reader.pos
    if size != _DIGESTS.size:
        raise FlockError(f"{size} bytes where the digests of {BUCKETS} buckets take {_DIGESTS.size}.")
    return list(_DIGESTS.unpack_from(reader.body, reader.pos))


# --- repair ---


def encode_text(text: bytes) -> bytes:
    """Bytes with two bytes of length before them."""
    return _U16.pack(len(text)) + text


def encode_section(section: Section) -> bytes:
    """A section of a LIST."""
    parts = [
        _U16.pack(section.bucket),
        encode_text(section.after),
        encode_text(section.through),
        _U32.pack(len(section.versions)),
    ]
    for topic, version in section.versions.items():
        parts.append(_VERSION.pack(version >> ORIGIN_BITS, version & ORIGIN_MASK))
        parts.append(_U16.pack(len(topic)))
        parts.append(topic)
    return b"".join(parts)


def decode_section(reader: Reader) -> Section:
    """The next section of a LIST."""
    bucket = read_bucket(reader)
    after = reader.text()
    through = reader.text()
    versions: dict[bytes, int] = {}
    for _ in range(reader.u32()):
        stamp = reader.stamp()
        origin = reader.u64()
        versions[reader.text()] = version_of(stamp, origin)
    return Section(bucket, after, through, versions)


def read_bucket(reader: Reader) -> int:
    """The number of a bucket."""
    bucket = reader.u16()
    if bucket >= BUCKETS:
        raise FlockError(f"Another node speaks of bucket {bucket} of {BUCKETS}.")
    return bucket


def encode_answer(unfinished: list[tuple[int, bytes]], wanted: list[bytes]) -> bytes:
    """Where a LIST stopped, and the topics that this node wants of it."""
    parts = [bytes((ANSWER,)), _U32.pack(len(unfinished))]
    for bucket, after in unfinished:
        parts.append(_U16.pack(bucket))
        parts.append(encode_text(after))
    parts.append(_U32.pack(len(wanted)))
    parts.extend([encode_text(topic) for topic in wanted])
    return b"".join(parts)


def decode_answer(reader: Reader) -> tuple[dict[int, bytes], list[bytes]]:
    """By bucket, the name after which to go on; and the wanted topics."""
    unfinished: dict[int, bytes] = {}
    for _ in range(reader.u32()):
        bucket = read_bucket(reader)
        unfinished[bucket] = reader.text()
    wanted = [reader.text() for _ in range(reader.u32())]
    return unfinished, wanted
