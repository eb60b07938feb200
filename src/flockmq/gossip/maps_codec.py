"""What nodes say to each other about owned maps, as bytes.

```
 STATE     boot, version                          of the sender's own map: "this is me"
 PULL      (owner, boot, version) ...             "of these I have this; send what is newer"
 DELTA     owner, boot, first, last, entries      changes after version first, up to and with last
 FULL      owner, boot, version, index, entries   a piece of the whole map as it was at version
 HAVE      boot, version                          "of YOUR map I have applied this"; zeros: "I have none, don't send"
 PROGRESS  owner, boot, version, index            "that piece is here"; index STOP: "I need no more of these"
 ROOT      a digest                               as in datagrams
 BUCKETS   64 hashes                              "our roots differ; where?"
 CLAIMS    mask, (owner, boot, version) ...       "in the buckets of the mask I have these"; mask 0: "these are newer"
 entry     key length u32, value length u32 (all ones: the key is deleted), key, value
```
Little-endian, the type in front. Nothing is trusted: lengths are held against what is there and against the limits
before anything is made of them, and what is wrong raises MapsError, before any of it has been applied.
"""

from __future__ import annotations

import struct
from typing import Final

from flockmq.errors import FlockError

STATE: Final = 1
PULL: Final = 2
DELTA: Final = 3
FULL: Final = 4
HAVE: Final = 5
PROGRESS: Final = 6
ROOT: Final = 7
BUCKETS: Final = 8
CLAIMS: Final = 9

BUCKET_COUNT: Final = 64
STOP: Final = 0xFFFFFFFF
DELETED: Final = 0xFFFFFFFF
BOOT_MAX: Final = (1 << 64) - 1
DIGEST_VERSION: Final = 1

_DIGEST: Final = struct.Struct("<BQQQ")
_PAIR: Final = struct.Struct("<BQQ")
_LIST: Final = struct.Struct("<BQI")
_CLAIM: Final = struct.Struct("<QQQ")
_DELTA: Final = struct.Struct("<BQQQQI")
_FULL: Final = struct.Struct("<BQQQIBI")
_PROGRESS: Final = struct.Struct("<BQQQI")
_BUCKETS: Final = struct.Struct("<64Q")
_ENTRY: Final = struct.Struct("<II")

ENTRY_BYTES: Final = 8
CLAIM_BYTES: Final = 24
LIST_BYTES: Final = 13
DELTA_BYTES: Final = 37
FULL_BYTES: Final = 34
DIGEST_BYTES: Final = 25

Pairs = list[tuple[bytes, bytes | None]]
Claims = list[tuple[int, int, int]]


class MapsError(FlockError):
    """The other node said what is no message about maps; close the link to it, drop the datagram."""


class Change:
    """One change of another owner's map: the key has this value now, or is gone (None)."""

    def __init__(self, owner: int, key: bytes, value: bytes | None) -> None:
        self.owner = owner
        self.key = key
        self.value = value

    def __repr__(self) -> str:
        return f"Change({self.owner}, {self.key!r}, {self.value!r})"


def encode_pair(kind: int, boot: int, version: int) -> bytes:
    """STATE or HAVE."""
    return _PAIR.pack(kind, boot, version)


def decode_pair(body: bytes) -> tuple[int, int]:
    """Boot and version of STATE or HAVE."""
    if len(body) != 17:
        raise MapsError(f"A statement about a map has {len(body)} bytes instead of 17.")
    _, boot, version = _PAIR.unpack(body)
    return boot, version


def encode_list(kind: int, mask: int, claims: Claims) -> bytes:
    """PULL or CLAIMS."""
    parts = [_LIST.pack(kind, mask, len(claims))]
    for owner, boot, version in claims:
        parts.append(_CLAIM.pack(owner, boot, version))
    return b"".join(parts)


def decode_list(body: bytes) -> tuple[int, Claims]:
    """Mask and claims of PULL or CLAIMS."""
    if len(body) < LIST_BYTES:
        raise MapsError("A list of maps ends within its head.")
    _, mask, count = _LIST.unpack_from(body, 0)
    if count * CLAIM_BYTES != len(body) - LIST_BYTES:
        raise MapsError(f"A list of {count:,} maps can't have {len(body):,} bytes.")
    claims: Claims = []
    for position in range(LIST_BYTES, len(body), CLAIM_BYTES):
        owner, boot, version = _CLAIM.unpack_from(body, position)
        claims.append((owner, boot, version))
    return mask, claims


def encode_delta(owner: int, boot: int, first: int, last: int, pending: dict[bytes, bytes | None]) -> bytes:
    """Changes from one version to another: the last change of each key."""
    parts = [_DELTA.pack(DELTA, owner, boot, first, last, len(pending))]
    for key, value in pending.items():
        if value is None:
            parts.append(_ENTRY.pack(len(key), DELETED))
            parts.append(key)
        else:
            parts.append(_ENTRY.pack(len(key), len(value)))
            parts.append(key)
            parts.append(value)
    return b"".join(parts)


class DeltaHead:
    """What a DELTA says before its entries."""

    def __init__(self, body: bytes) -> None:
        if len(body) < DELTA_BYTES:
            raise MapsError("Changes of a map end within their head.")
        _, owner, boot, first, last, count = _DELTA.unpack_from(body, 0)
        self.owner: int = owner
        self.boot: int = boot
        self.first: int = first
        self.last: int = last
        self.count: int = count
        if last <= first or boot == 0:
            raise MapsError(f"Changes from version {first:,} to {last:,} of boot {boot} don't go forward.")


def encode_full(owner: int, boot: int, version: int, index: int, last: bool, count: int, entries: list[bytes]) -> bytes:
    """A piece of a whole map; the entries are encoded already."""
    return _FULL.pack(FULL, owner, boot, version, index, 1 if last else 0, count) + b"".join(entries)


class FullHead:
    """What a FULL says before its entries."""

    def __init__(self, body: bytes) -> None:
        if len(body) < FULL_BYTES:
            raise MapsError("A piece of a map ends within its head.")
        _, owner, boot, version, index, last, count = _FULL.unpack_from(body, 0)
        self.owner: int = owner
        self.boot: int = boot
        self.version: int = version
        self.index: int = index
        self.last: bool = last != 0
        self.count: int = count
        if boot == 0 or index >= STOP:
            raise MapsError(f"A piece of a map has boot {boot} and index {index:,}.")


def encode_entry(key: bytes, value: bytes) -> bytes:
    """One entry of a whole map."""
    return _ENTRY.pack(len(key), len(value)) + key + value


def decode_entries(body: bytes, position: int, count: int, key_bytes_max: int, value_bytes_max: int) -> Pairs:
    """All entries of a message; there may be nothing after them."""
    end = len(body)
    if count * ENTRY_BYTES > end - position:
        raise MapsError(f"{count:,} entries are announced where {end - position:,} bytes are left.")
    pairs: Pairs = []
    unpack = _ENTRY.unpack_from
    for _ in range(count):
        if end - position < ENTRY_BYTES:
            raise MapsError("The entries of a map end too early.")
        key_bytes, value_bytes = unpack(body, position)
        middle = position + ENTRY_BYTES + key_bytes
        if value_bytes == DELETED:
            value_bytes = -1
        if key_bytes > key_bytes_max or value_bytes > value_bytes_max:
            raise MapsError(f"An entry of a map has a key of {key_bytes:,} bytes and a value of {value_bytes:,}.")
        following = middle if value_bytes < 0 else middle + value_bytes
        if following > end:
            raise MapsError("An entry of a map is longer than its message.")
        key = body[position + ENTRY_BYTES : middle]
        pairs.append((key, None if value_bytes < 0 else body[middle:following]))
        position = following
    if position != end:
        raise MapsError(f"{end - position:,} bytes are left after the entries of a map.")
    return pairs


def encode_progress(owner: int, boot: int, version: int, index: int) -> bytes:
    """The answer to a piece."""
    return _PROGRESS.pack(PROGRESS, owner, boot, version, index)


def decode_progress(body: bytes) -> tuple[int, int, int, int]:
    """Owner, boot, version, index."""
    if len(body) != 29:
        raise MapsError(f"An answer to a piece of a map has {len(body)} bytes instead of 29.")
    _, owner, boot, version, index = _PROGRESS.unpack(body)
    return owner, boot, version, index


def encode_buckets(hashes: list[int]) -> bytes:
    """All bucket hashes."""
    return BUCKETS.to_bytes(1, "little") + _BUCKETS.pack(*hashes)


def decode_buckets(body: bytes) -> list[int]:
    """All bucket hashes."""
    if len(body) != 1 + 8 * BUCKET_COUNT:
        raise MapsError(f"The hashes of {BUCKET_COUNT} buckets can't have {len(body)} bytes.")
    return list(_BUCKETS.unpack_from(body, 1))


def encode_digest(root: int, boot: int, version: int) -> bytes:
    """What goes with datagrams: all maps in one hash, and where the own map stands."""
    return _DIGEST.pack(DIGEST_VERSION, root, boot, version)


def decode_digest(digest: bytes) -> tuple[int, int, int]:
    """Root, boot, version."""
    if len(digest) != DIGEST_BYTES or digest[0] != DIGEST_VERSION:
        raise MapsError(f"A digest of maps has {len(digest)} bytes, or is of another version.")
    _, root, boot, version = _DIGEST.unpack(digest)
    return root, boot, version
