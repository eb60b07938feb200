"""Makes a batch out of whole columns: for writers that have them already, as Spark does. No record is looked at alone.

```
 names, their indexes, flags, payload offsets and bytes, ... --> assemble() --> header | dictionaries | columns
```
The batch has no place in a log and no time yet: the leader gives it both when it appends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flockmq.log.checksum import crc32c
from flockmq.log.columns import KEY, USER
from flockmq.log.header import BATCH_BYTES_MAX, COVERED, DATA, HEADER_BYTES, VERSION, BatchError, seal
from flockmq.log.layout import put, put_binary


class KeyColumns(NamedTuple):
    """Keys of all records: ``validity`` has one bit per record, set where the record has a key."""

    validity: bytes
    offsets: bytes
    keys: bytes


class UserColumns(NamedTuple):
    """User properties of all records: ``offsets`` says which pairs each record has; little-endian int32 throughout."""

    offsets: bytes
    key_offsets: bytes
    keys: bytes
    value_offsets: bytes
    values: bytes


def assemble(
    topics: Sequence[bytes],
    topic_index: bytes,
    clients: Sequence[bytes],
    client_index: bytes,
    flags: bytes,
    payload_offsets: bytes,
    payload: bytes,
    keys: KeyColumns | None = None,
    user: UserColumns | None = None,
) -> bytes:
    """A batch of as many records as there are ``flags``, neither stamped nor compressed.

    Indexes and offsets are little-endian int32, as Arrow has them; offsets begin at 0. Names are in internal form.
    """
    count = len(flags)
    if not count:
        raise BatchError("A batch needs at least one record.")
    _check_length("topic_index", topic_index, 4 * count)
    _check_length("client_index", client_index, 4 * count)
    columns: list[bytes] = []
    for column in (topic_index, client_index, bytes(4 * count), flags):
        put(columns, column)
    _put_offsets(columns, "payload", payload_offsets, count, payload)
    mask = 0
    if keys is not None:
        mask |= KEY
        _check_length("key_validity", keys.validity, (count + 7) >> 3)
        put(columns, keys.validity)
        _put_offsets(columns, "key", keys.offsets, count, keys.keys)
    if user is not None:
        mask |= USER
        pairs = _last("user", user.offsets, count)
        put(columns, user.offsets)
        _put_offsets(columns, "user.key", user.key_offsets, pairs, user.keys)
        _put_offsets(columns, "user.value", user.value_offsets, pairs, user.values)
    front: list[bytes] = []
    put_binary(front, list(topics))
    put_binary(front, list(clients))
    return _seal(b"".join(front), b"".join(columns), count, mask, len(topics), len(clients))


def _seal(dictionaries: bytes, columns: bytes, count: int, mask: int, topics: int, clients: int) -> bytes:
    body = dictionaries + columns
    size = HEADER_BYTES + len(body)
    if size > BATCH_BYTES_MAX:
        raise BatchError(
            f"A batch may have {BATCH_BYTES_MAX:,} bytes; this one would have {size:,}: take fewer records."
        )
    length = len(columns)
    covered = COVERED.pack(
        VERSION,
        0,
        DATA,
        0,
        crc32c(body),
        size,
        0,
        len(dictionaries),
        length,
        0,
        0,
        0,
        0,
        0,
        count,
        mask,
        topics,
        clients,
        length,
        0,
    )
    return seal(covered) + body


def _put_offsets(columns: list[bytes], name: str, offsets: bytes, count: int, values: bytes) -> None:
    last = _last(name, offsets, count)
    if last != len(values):
        raise BatchError(f"The offsets of column {name} end at {last:,}, but it has {len(values):,} bytes.")
    put(columns, offsets)
    put(columns, values)


def _last(name: str, offsets: bytes, count: int) -> int:
    _check_length(f"{name} offsets", offsets, 4 * (count + 1))
    if offsets[:4] != b"\0\0\0\0":
        raise BatchError(f"The offsets of column {name} don't begin at 0.")
    return int.from_bytes(offsets[-4:], "little", signed=True)


def _check_length(name: str, data: bytes, length: int) -> None:
    if len(data) != length:
        raise BatchError(f"Column {name} has {len(data):,} bytes; {length:,} are needed.")
