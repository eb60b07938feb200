"""Whether a chunk that came from outside may go into a log: replicas, readers and subscribers will take it as it is.

```
 bytes --> checksums, sizes --> names: valid, in the namespace, of this topic and shard --> columns: indexes within the
                                once per distinct name                                       names, offsets that rise
```
Nothing is done per record but by functions that loop in C. What is wrong is said in a BatchError.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from itertools import islice
from operator import sub
from typing import Final

from flockmq.cluster.filters import NAMESPACE_PREFIX
from flockmq.errors import RemoteProtocolError
from flockmq.log.batch import DATA, BatchError, BatchView
from flockmq.log.columns import KEY, QOS_MASK, RETAIN, USER, Columns
from flockmq.log.header import HEADER_BYTES, aligned, read_header
from flockmq.mqtt.topics import check_topic_name, valid_utf8
from flockmq.routing.durable import BY_CLIENT, BY_TOPIC, shard_of

RECORDS_MAX: Final = 1_048_576
NAMES_MAX: Final = 65_536
"""Distinct topic names in a chunk, and clients."""
NAME_BYTES_MAX: Final = 65_535
_FLAGS: Final = frozenset(qos | retain for qos in range(QOS_MASK) for retain in (0, RETAIN))
_IS_FOREIGN: Final = sys.byteorder != "little"


class ChunkRules:
    """What a chunk for one shard of a topic must fulfil. ``owns``: whether a name (in internal form) is the topic's."""

    def __init__(
        self, prefix: bytes, shard: int, shards: int, key: int, owns: Callable[[bytes], bool], bytes_max: int
    ) -> None:
        self.prefix = prefix
        self.shard = shard
        self.shards = shards
        self.key = key
        self.owns = owns
        self.bytes_max = bytes_max


def names_in(data: bytes) -> int:
    """How many distinct names a chunk says it has: what checking it costs. Nothing is checked yet."""
    if len(data) < HEADER_BYTES:
        return 0
    header = read_header(data)
    return min(header.topics, NAMES_MAX) + min(header.clients, NAMES_MAX)


def check_chunk(data: bytes, rules: ChunkRules) -> None:
    """BatchError says what is wrong."""
    if len(data) > rules.bytes_max:
        raise BatchError(f"A chunk may have {rules.bytes_max:,} bytes; this one has {len(data):,}. Stage smaller ones.")
    view = BatchView(data)
    view.verify()
    header = read_header(data)
    if header.kind != DATA or header.flags or header.note_bytes or header.zero or header.zero_at_end:
        raise BatchError("A chunk is a plain batch of records: without compression, note or flags.")
    if header.size != len(data):
        raise BatchError(f"A chunk is one batch: its header says {header.size:,} bytes, {len(data):,} came.")
    if not 0 < header.record_count <= RECORDS_MAX:
        raise BatchError(f"A chunk has between 1 and {RECORDS_MAX:,} records; this one has {header.record_count:,}.")
    if header.columns & ~(KEY | USER):
        raise BatchError("A chunk may have keys and user properties beside topics, clients, flags and payloads.")
    _check_dictionaries(view, header.dictionary_bytes, header.topics, header.clients)
    _check_names(view, rules)
    _check_columns(view, HEADER_BYTES + header.dictionary_bytes, header.columns_bytes, header.stored_bytes)


def _check_dictionaries(view: BatchView, size: int, topics: int, clients: int) -> None:
    if not topics or not clients or size & 7 or HEADER_BYTES + size > view.size:
        raise BatchError("The names of this chunk do not fit into it.")
    if topics > NAMES_MAX or clients > NAMES_MAX:
        raise BatchError(f"A chunk may have {NAMES_MAX:,} different topics and clients; stage smaller ones.")
    spans = view.dictionaries()
    for name, count in (("topics", topics), ("clients", clients)):
        start, _ = spans[name + ".offsets"]
        _check_offsets(name, _int32(view.data, start, count + 1))
    start, length = spans["clients.bytes"]
    if start + length > HEADER_BYTES + size or HEADER_BYTES + size - start - length > 7:
        raise BatchError("The names of this chunk have another size than its header says.")


def _check_names(view: BatchView, rules: ChunkRules) -> None:
    prefix = rules.prefix
    for topic in view.topics():
        if not topic.startswith(prefix):
            raise BatchError(f"Topic {_shown(topic)} is not of this namespace, which begins with {_shown(prefix)}.")
        try:
            check_topic_name(topic[len(prefix) :])
        except RemoteProtocolError as error:
            raise BatchError(f"{_shown(topic)} can't be a topic name: {error}") from None
        if len(topic) > NAME_BYTES_MAX or not rules.owns(topic):
            raise BatchError(f"{_shown(topic)} is no topic name of this durable topic; see its filters.")
        if rules.key == BY_TOPIC:
            _check_shard(topic, rules)
    for client in view.clients():
        if client and (not client.startswith(prefix) or (not prefix and client.startswith(NAMESPACE_PREFIX))):
            raise BatchError(
                f"Client id {_shown(client)} is not of this namespace, which begins with {_shown(prefix)}."
            )
        if len(client) > NAME_BYTES_MAX or not valid_utf8(client):
            raise BatchError(f"{_shown(client)} can't be a client id.")
        if rules.key == BY_CLIENT:
            _check_shard(client, rules)


def _check_shard(key: bytes, rules: ChunkRules) -> None:
    shard = shard_of(key, rules.shards)
    if shard != rules.shard:
        raise BatchError(
            f"Records of {_shown(key)} belong to shard {shard} of {rules.shards}, not to shard {rules.shard}; "
            "ask for the topic again, it may have more shards by now."
        )


def _check_columns(view: BatchView, begin: int, length: int, stored: int) -> None:
    columns = view.columns()
    end = max([start + size for start, size in columns.spans.values()])
    if length != stored or aligned(end) != begin + stored or begin + stored != view.size:
        raise BatchError("The columns of this chunk have another size than its header says.")
    count = view.count
    data = columns.data
    _check_indexes(columns, "topic", len(view.topics()))
    _check_indexes(columns, "client", len(view.clients()))
    start, size = columns.spans["timestamp"]
    if data.count(0, start, start + size) != size:
        raise BatchError("The records of a chunk have no times of their own: they get that of the commit.")
    start, size = columns.spans["flags"]
    if not _FLAGS.issuperset(data[start : start + size]):
        raise BatchError("The flags of a record are its QoS (0, 1 or 2) and 4 for retain; this chunk has others.")
    _check_binary(columns, "payload", count)
    if "key.offsets" in columns:
        _check_binary(columns, "key", count)
    if "user.offsets" in columns:
        pairs = _int32(data, columns.spans["user.offsets"][0], count + 1)
        _check_offsets("user", pairs)
        _check_texts(columns, "user.key", pairs[count])
        _check_texts(columns, "user.value", pairs[count])


def _check_indexes(columns: Columns, name: str, names: int) -> None:
    start, size = columns.spans[name]
    if columns.data.count(0, start, start + size) == size:
        return  # all have the first name, as most have
    indexes = _int32(columns.data, start, columns.count)
    if min(indexes) < 0 or max(indexes) >= names:
        raise BatchError(f"A record of this chunk names a {name} that the chunk does not have.")


def _check_binary(columns: Columns, name: str, count: int) -> array[int]:
    offsets = _int32(columns.data, columns.spans[name + ".offsets"][0], count + 1)
    _check_offsets(name, offsets)  # the last one is how long the bytes are: that they fit was seen before
    return offsets


def _check_texts(columns: Columns, name: str, count: int) -> None:
    offsets = _check_binary(columns, name, count)
    start, size = columns.spans[name + ".bytes"]
    text = columns.data[start : start + size]
    if count and max(map(sub, islice(offsets, 1, None), offsets)) > NAME_BYTES_MAX:
        raise BatchError(f"A name or value of a user property has more than {NAME_BYTES_MAX:,} bytes.")
    is_cut = not text.isascii() and any(text[at] & 0xC0 == 0x80 for at in offsets if at < size)
    if is_cut or not valid_utf8(text):
        raise BatchError("User properties have to be UTF-8 without control characters that MQTT does not allow.")


def _check_offsets(name: str, offsets: array[int]) -> None:
    plain = offsets.tolist()
    if plain[0] != 0 or plain != sorted(plain):
        raise BatchError(f"The offsets of {name} have to begin at 0 and must not fall.")


def _int32(data: bytes, start: int, count: int) -> array[int]:
    numbers = array("i", data[start : start + 4 * count])
    if _IS_FOREIGN:
        numbers.byteswap()
    return numbers


def _shown(name: bytes) -> str:
    return repr(name[:80].decode("utf-8", "replace"))
