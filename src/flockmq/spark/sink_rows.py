"""Turns Arrow record batches into chunks: batches as a log stores them, each for one shard of one durable topic.

```
 record batch --> columns as a log has them: name | flags | payload | key | headers | size      whole arrays at a time
     |  topic names: each distinct one is looked up once; keys, if a topic goes by them: each distinct one hashed once
     v
 one take per shard --> pending slices per shard --> about CHUNK_BYTES together --> assemble --> Chunk
```
Nothing is done per row in Python; what is done per chunk, per shard and per distinct name is all there is. Rows of one
shard stay in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flockmq.admin.durable_sinks_model import STAGE_BYTES_MAX
from flockmq.errors import FlockError
from flockmq.log.assembling import KeyColumns, UserColumns, assemble
from flockmq.log.columns import RETAIN
from flockmq.routing.durable import shard_of
from flockmq.spark.sink_options import SinkColumns
from flockmq.spark.sink_topics import BY_KEY, Directory, Home

CHUNK_BYTES: Final = 1024 * 1024
PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of all shards together; then the largest chunk goes before it is full."""
NAMES_MAX: Final = 100_000
QOS_USUAL: Final = 1
TEXT_BYTES_MAX: Final = 65_535
"""Longest string in MQTT."""
_RECORD_BYTES: Final = 32
"""What a record takes besides its texts, at most."""
_ROW_BYTES_MAX: Final = STAGE_BYTES_MAX - 4_096

Array = Any
"""Arrow's and NumPy's have no types of use here."""


class Chunk(NamedTuple):
    """A batch for a shard."""

    topic: str
    shard: int
    rows: int
    data: bytes


class Names:
    """The topic names of a record batch, each once: their numbers, and which of them each row has."""

    def __init__(self, numbers: list[int], indexes: Array) -> None:
        self.numbers = numbers
        self.indexes = indexes


class Pending:
    """Rows of one shard that are no chunk yet."""

    def __init__(self, topic: str, shard: int) -> None:
        self.topic = topic
        self.shard = shard
        self.bytes = 0
        self.parts: list[pa.RecordBatch] = []

    def add(self, part: pa.RecordBatch, size: int) -> None:
        """Put rows behind those that are there."""
        self.parts.append(part)
        self.bytes += size


class RowSink:
    """The rows of one task on their way into chunks."""

    def __init__(
        self, columns: SinkColumns, fixed_topic: str, directory: Directory, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self._columns = columns
        self._fixed_topic = fixed_topic
        self._directory = directory
        self._chunk_bytes = chunk_bytes
        self._pending: dict[int, Pending] = {}
        """By destination."""
        self._forget()

    def _forget(self) -> None:
        """Names and destinations have numbers; after very many of them they begin anew."""
        self._numbers: dict[str, int] = {}
        self._names: list[bytes] = []
        self._homes: list[Home] = []
        self._destinations: dict[tuple[str, int], int] = {}
        self._places: list[tuple[str, int]] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        """Take rows; the chunks that are full."""
        if not batch.num_rows:
            return
        if len(self._numbers) >= NAMES_MAX:
            yield from self.rest()
            self._forget()
        part, destinations = self._shaped(batch)
        first = int(destinations[0])
        if (destinations == first).all():
            yield from self._put(first, part)
        else:
            order = np.argsort(destinations, kind="stable")
            found, starts = np.unique(destinations[order], return_index=True)
            ends = [*starts[1:].tolist(), len(order)]
            for destination, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
                yield from self._put(destination, part.take(pa.array(order[start:end])))
        while sum(one.bytes for one in self._pending.values()) > PENDING_BYTES_MAX:
            yield self._build(max(self._pending.values(), key=lambda one: one.bytes))

    def rest(self) -> Iterator[Chunk]:
        """The chunks that are not full, when no more rows come."""
        for pending in list(self._pending.values()):
            if pending.parts:
                yield self._build(pending)
        self._pending.clear()

    # --- from Spark's columns to a log's ------------------------------------------------------------------------------

    def _shaped(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Array]:
        """The same rows with the columns of a log, and the destination of each."""
        rows = batch.num_rows
        names = self._named(batch)
        payload = _binary(_column(batch, self._columns.payload))
        numbers = np.array(names.numbers, np.int32)[names.indexes]
        arrays = {"name": pa.array(numbers), "flags": pa.array(self._flags(batch)), "payload": payload}
        lengths = np.array([len(self._names[number]) for number in names.numbers], np.int64)
        sizes = lengths[names.indexes] + pc.binary_length(payload).to_numpy() + _RECORD_BYTES
        if self._columns.headers:
            arrays["headers"], more = _headers(_column(batch, self._columns.headers))
            sizes += more
        destinations, key = self._placed(batch, names, arrays.get("headers"))
        arrays["key"] = pa.nulls(rows, pa.binary()) if key is None else key
        if key is not None:
            sizes += pc.binary_length(key).fill_null(0).to_numpy()
        if int(sizes.max()) > _ROW_BYTES_MAX:
            raise FlockError(
                f"A row takes {int(sizes.max()):,} bytes; a message may have {_ROW_BYTES_MAX:,}: make payloads smaller"
            )
        arrays["size"] = pa.array(sizes)
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)), destinations

    def _named(self, batch: pa.RecordBatch) -> Names:
        if self._fixed_topic:
            return Names([self._number(self._fixed_topic)], np.zeros(batch.num_rows, np.int32))
        column = _column(batch, self._columns.topic)
        if column.null_count:
            raise FlockError(f"{column.null_count} rows have no topic: column {self._columns.topic} is null there")
        encoded = column.dictionary_encode()
        return Names([self._number(name) for name in encoded.dictionary.to_pylist()], encoded.indices.to_numpy())

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            home = self._directory.home(name)
            number = self._numbers[name] = len(self._names)
            self._names.append(self._directory.prefix + name.encode())
            self._homes.append(home)
        return number

    def _flags(self, batch: pa.RecordBatch) -> Array:
        flags = np.full(batch.num_rows, QOS_USUAL, np.uint8)
        if self._columns.qos:
            qos = _column(batch, self._columns.qos).fill_null(QOS_USUAL).to_numpy()
            wrong = qos[(qos < 0) | (qos > 2)]
            if len(wrong):
                raise FlockError(f"Column {self._columns.qos} has {int(wrong[0])}; QoS is 0, 1 or 2")
            flags = qos.astype(np.uint8)
        if self._columns.retain:
            retain = _column(batch, self._columns.retain).fill_null(False).to_numpy(zero_copy_only=False)
            flags |= retain.astype(np.uint8) * np.uint8(RETAIN)
        return flags

    # --- where rows go ------------------------------------------------------------------------------------------------

    def _placed(self, batch: pa.RecordBatch, names: Names, headers: Array) -> tuple[Array, Array]:
        """The destination of each row, and their keys: None when no topic here goes by keys."""
        homes = [self._homes[number] for number in names.numbers]
        places = [BY_KEY if one.shard == BY_KEY else self._destination(one.topic, one.shard) for one in homes]
        destinations = np.array(places, np.int64)[names.indexes]
        keyed = {one.topic: one for one in homes if one.shard == BY_KEY}
        if not keyed:
            return destinations, None
        without = np.array([one.shard_without for one in homes], np.int64)[names.indexes]
        all_keys = pa.nulls(batch.num_rows, pa.binary())
        for home in keyed.values():  # few: durable topics, not names
            own = np.array([one.topic == home.topic for one in homes], bool)[names.indexes]
            keys = self._keys(batch, headers, home.key_property)
            encoded = keys.dictionary_encode()
            shards = [shard_of(one, home.shards) for one in encoded.dictionary.to_pylist()]
            by_key = np.array([*shards, 0], np.int64)[encoded.indices.fill_null(len(shards)).to_numpy()]
            shard = np.where(keys.is_valid().to_numpy(zero_copy_only=False), by_key, without)
            lookup = np.array([self._destination(home.topic, one) for one in range(home.shards)], np.int64)
            destinations[own] = lookup[shard[own]]
            all_keys = pc.if_else(pa.array(own), keys, all_keys)
        return destinations, all_keys

    def _destination(self, topic: str, shard: int) -> int:
        place = (topic, shard)
        number = self._destinations.get(place)
        if number is None:
            number = self._destinations[place] = len(self._places)
            self._places.append(place)
        return number

    def _keys(self, batch: pa.RecordBatch, headers: Array, key_property: str) -> Array:
        """Column key, else the user property that a topic goes by, else null."""
        found = pa.nulls(batch.num_rows, pa.binary())
        if headers is not None:
            pairs = headers.flatten().flatten()
            hits = np.flatnonzero(pc.equal(pairs[0], key_property.encode()).to_numpy(zero_copy_only=False))
            if len(hits):
                rows, firsts = np.unique(pc.list_parent_indices(headers).to_numpy()[hits], return_index=True)
                places = np.full(batch.num_rows, -1, np.int64)
                places[rows] = hits[firsts]
                found = pairs[1].take(pa.array(places, mask=places < 0))
        if self._columns.key:
            found = pc.coalesce(_plain_binary(_column(batch, self._columns.key)), found)
        return found

    # --- chunks -------------------------------------------------------------------------------------------------------

    def _put(self, destination: int, part: pa.RecordBatch) -> Iterator[Chunk]:
        """Rows of one shard: fill its chunk, and further ones."""
        pending = self._pending.get(destination)
        if pending is None:
            pending = self._pending[destination] = Pending(*self._places[destination])
        ends = np.cumsum(part.column("size").to_numpy())
        low, before = 0, 0
        while True:
            high = int(np.searchsorted(ends, before + self._chunk_bytes - pending.bytes, side="right"))
            if high <= low and not pending.parts:
                high = low + 1  # one that is larger than a chunk usually is
            if high > low:
                pending.add(part.slice(low, high - low), int(ends[high - 1]) - before)
                low, before = high, int(ends[high - 1])
            if low == part.num_rows:
                return
            yield self._build(pending)

    def _build(self, pending: Pending) -> Chunk:
        parts, pending.parts, pending.bytes = pending.parts, [], 0
        numbers = np.concatenate([part.column("name").to_numpy() for part in parts])
        rows = len(numbers)
        own, indexes = np.unique(numbers, return_inverse=True)
        keys = _joined(parts, "key")
        valid = keys.is_valid().to_numpy(zero_copy_only=False)
        stored = KeyColumns(np.packbits(valid, bitorder="little").tobytes(), *_buffers(keys.fill_null(b"")))
        data = assemble(
            [self._names[number] for number in own.tolist()],
            indexes.astype("<i4").tobytes(),
            [self._directory.client],
            bytes(4 * rows),
            np.concatenate([part.column("flags").to_numpy() for part in parts]).tobytes(),
            *_buffers(_joined(parts, "payload")),
            stored if valid.any() else None,
            _user_columns(_joined(parts, "headers")) if self._columns.headers else None,
        )
        return Chunk(pending.topic, pending.shard, rows, data)


def _column(batch: pa.RecordBatch, name: str) -> Array:
    return batch.column(batch.schema.get_field_index(name))


def _plain_binary(column: Array) -> Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _binary(column: Array) -> Array:
    """As bytes; MQTT knows no null, only an empty payload."""
    return _plain_binary(column).fill_null(b"") if column.null_count else _plain_binary(column)


def _headers(column: Array) -> tuple[Array, Array]:
    """User properties without any nulls, and the bytes that those of each row take."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    keys, values = (_plain_binary(one) for one in column.flatten().flatten())
    if keys.null_count:
        raise FlockError("A header has no key; it is the name of an MQTT user property and must be there")
    values = values.fill_null(b"")
    for part in (keys, values):
        if len(part) and pc.max(pc.binary_length(part)).as_py() > TEXT_BYTES_MAX:
            raise FlockError(f"A header is longer than {TEXT_BYTES_MAX:,} bytes, the most that MQTT can carry")
        if len(part) and pc.any(pc.match_substring(part, "\0")).as_py():
            raise FlockError("A header holds the character U+0000, which MQTT does not allow")
    pairs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
    sizes = pc.binary_length(keys).to_numpy() + pc.binary_length(values).to_numpy() + 8
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs), ends[offsets[1:]] - ends[offsets[:-1]]


def _joined(parts: list[pa.RecordBatch], name: str) -> Array:
    arrays = [part.column(name) for part in parts]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _buffers(array: Array) -> tuple[bytes, bytes]:
    """Offsets from 0 on, and the bytes that they are for, of a binary array without nulls."""
    _validity, offsets_buffer, values = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(array) + 1, 4 * array.offset)
    start, end = int(offsets[0]), int(offsets[-1])
    own = b"" if values is None or start == end else values.slice(start, end - start).to_pybytes()
    return (offsets - start).astype("<i4").tobytes(), own


def _user_columns(headers: Array) -> UserColumns | None:
    lengths = pc.list_value_length(headers).to_numpy()
    ends = np.cumsum(lengths)
    if not int(ends[-1]):
        return None
    keys, values = headers.flatten().flatten()
    offsets = np.concatenate([[0], ends]).astype("<i4").tobytes()
    return UserColumns(offsets, *_buffers(keys), *_buffers(values))
