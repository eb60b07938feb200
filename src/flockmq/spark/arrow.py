"""Turns stored batches into Arrow record batches: many small ones become one, and nothing is done per record.

```
 bytes of a fetch: batch batch batch ...
     |  walk: one look at each header, one slice per wanted column
     v
 parts per column --join once--> one buffer per column, offsets of binary columns shifted by whole arrays
     |  names: dictionaries of all batches end to end, indexes shifted; a filter or template sees each name once
     v
 RecordBatch of up to ROWS_MAX rows, cut to [start, end), rows of unwanted names left out
```
Logs written by many small publishes have batches of some tens of records; what costs per batch is kept to a few slices.
Only what the query asked for is cut out at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flockmq.log.columns import EXPIRES_AT, KEY, PACKET_ID, PROPERTIES, QOS_MASK, RETAIN, SESSION_EPOCH, USER
from flockmq.log.header import COVERED, COVERED_AT, DATA, HEADER_BYTES, MAGIC, ZSTD, BatchError, Header, aligned
from flockmq.log.view import BatchView
from flockmq.spark.template import Template

if TYPE_CHECKING:
    from flockmq.spark.planning import Range

ROWS_MAX: Final = 32_768
GROUP_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most bytes of columns in one record batch, one stored batch aside: Arrow's offsets have 31 bits."""
NAMES_MAX: Final = 65_536
"""Names whose verdict is remembered."""
_INT32: Final = struct.Struct("<i")
# Places of fields in a header: a tuple is read faster than its named form, and there are many small batches.
_SIZE, _KIND, _BASE, _COUNT, _TIME, _BATCH_FLAGS, _COLUMNS = [
    Header._fields.index(name)
    for name in ("size", "kind", "base_offset", "record_count", "base_timestamp", "flags", "columns")
]
_NOTE_BYTES, _DICTIONARY_BYTES, _COLUMNS_BYTES, _TOPICS, _CLIENTS = [
    Header._fields.index(name) for name in ("note_bytes", "dictionary_bytes", "columns_bytes", "topics", "clients")
]
_BEHIND_PAYLOAD: Final = frozenset({"key", "headers"})


class _Binary:
    """A binary column in parts: ``count`` offsets and the bytes of each batch."""

    __slots__ = ("_bytes", "_offsets", "_sizes")

    def __init__(self) -> None:
        self._offsets: list[bytes] = []
        self._bytes: list[bytes] = []
        self._sizes: list[int] = []

    def add(self, data: bytes, at: int, count: int) -> int:
        """Take the column that starts at ``at``; where the next one starts."""
        size: int = _INT32.unpack_from(data, at + 4 * count)[0]
        start = at + (4 * count + 11 & -8)  # ``aligned``, here and below, without a call: it is done for each batch
        self._offsets.append(data[at : at + 4 * count])
        self._bytes.append(data[start : start + size])
        self._sizes.append(size)
        return start + (size + 7 & -8)

    def add_empty(self, count: int) -> None:
        """``count`` empty values."""
        self._offsets.append(bytes(4 * count))
        self._bytes.append(b"")
        self._sizes.append(0)

    def buffers(self, counts: np.ndarray[Any, Any]) -> tuple[pa.Buffer, pa.Buffer]:
        """Offsets and bytes of all parts together."""
        sizes = np.array(self._sizes, np.int64)
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        if total > 0x7FFFFFFF:
            raise BatchError(f"{total:,} bytes do not fit into one column of a record batch.")
        parts = np.frombuffer(b"".join(self._offsets), "<i4")
        offsets = np.empty(len(parts) + 1, np.int32)
        np.add(parts, np.repeat((ends - sizes).astype(np.int32), counts), out=offsets[:-1])
        offsets[-1] = total
        return pa.py_buffer(offsets), pa.py_buffer(b"".join(self._bytes))


class _Names:
    """A column of names: the batches' dictionaries, and each record's index into its own."""

    __slots__ = ("_dictionary", "_indexes", "_sizes")

    def __init__(self) -> None:
        self._dictionary = _Binary()
        self._indexes: list[bytes] = []
        self._sizes: list[int] = []

    def add_dictionary(self, data: bytes, at: int, count: int) -> int:
        """Take the dictionary that starts at ``at``; where the next one starts."""
        self._sizes.append(count)
        return self._dictionary.add(data, at, count)

    def add_indexes(self, part: bytes) -> None:
        """Take the indexes of the same batch."""
        self._indexes.append(part)

    def arrays(self, counts: np.ndarray[Any, Any], prefix: int) -> tuple[pa.Array, np.ndarray[Any, Any]]:
        """All names (some maybe twice) without their first ``prefix`` characters, and each record's index into them."""
        sizes = np.array(self._sizes, np.int64)
        ends = np.cumsum(sizes)
        offsets, data = self._dictionary.buffers(sizes)
        total = int(ends[-1]) if len(ends) else 0
        names = pa.Array.from_buffers(pa.utf8(), total, [None, offsets, data])
        if prefix:
            names = pc.utf8_slice_codeunits(names, start=prefix)
        indexes = np.frombuffer(b"".join(self._indexes), "<i4")
        return names, indexes + np.repeat((ends - sizes).astype(np.int32), counts)


class Decoder:
    """Decodes batches of shard after shard. ``schema`` says which columns come out, ``wanted`` which topic names do."""

    def __init__(
        self,
        schema: pa.Schema,
        topic: str = "",
        shard: int = 0,
        *,
        prefix: bytes = b"",
        wanted: Callable[[str], bool] | None = None,
        template: Template | None = None,
    ) -> None:
        self.schema = schema
        self.topic = topic
        self.shard = shard
        self.wanted = wanted
        self.template = template
        self.prefix = len(prefix.decode())
        self.asked = frozenset(schema.names)
        self.template_fields = [] if template is None else [one for one in template.fields if one.name in self.asked]
        self.needs_topics = "mqtt_topic" in self.asked or wanted is not None or bool(self.template_fields)
        self.needs_clients = "client_id" in self.asked
        self.needs_rest = bool(self.asked & (_BEHIND_PAYLOAD | {"payload"}))
        self._verdicts: dict[str, bool] = {}
        self._parsed: dict[str, tuple[Any, ...] | None] = {}

    def decode(self, data: bytes, start: int, end: int, place: Range | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of these batches whose offsets are in [start, end); batches are whole and verified.

        ``place``: the shard that these batches and those after them are of.
        """
        if place is not None:
            self.topic, self.shard = place.topic, place.shard
        if start >= end:
            return  # a batch around both would have less than no rows
        position = 0
        group = _Group(self)
        while position < len(data):
            if not data.startswith(MAGIC, position):
                raise BatchError("These bytes are no batch: they don't start with its magic.")
            header: tuple[int, ...] = COVERED.unpack_from(data, position + COVERED_AT)
            base, count = header[_BASE], header[_COUNT]
            if header[_KIND] == DATA and count and base + count > start and base < end:
                size = group.bytes + header[_COLUMNS_BYTES]
                if group.rows and (group.rows + count > ROWS_MAX or size > GROUP_BYTES_MAX):
                    yield from group.record_batches(start, end)
                    group = _Group(self)
                group.add(data, position, header)
            position += header[_SIZE]
        if group.rows:
            yield from group.record_batches(start, end)

    def verdict(self, name: str) -> bool:
        """Whether rows with that topic name come out."""
        found = self._verdicts.get(name)
        if found is None:
            if len(self._verdicts) >= NAMES_MAX:
                self._verdicts.clear()
            found = self._verdicts[name] = self.wanted is None or self.wanted(name)
        return found

    def parse(self, name: str) -> tuple[Any, ...] | None:
        """What the template finds in a name; None when it does not fit."""
        if name not in self._parsed:
            if len(self._parsed) >= NAMES_MAX:
                self._parsed.clear()
            self._parsed[name] = None if self.template is None else self.template.parse(name)
        return self._parsed[name]


class _Group:
    """Stored batches that become one record batch."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.rows = 0
        self.bytes = 0
        self._bases: list[int] = []
        self._times: list[int] = []
        self._counts: list[int] = []
        self._deltas: list[bytes] = []
        self._flags: list[bytes] = []
        self._validity: list[np.ndarray[Any, Any]] = []
        self._pairs: list[int] = []
        self._topics = _Names()
        self._clients = _Names()
        self._payload = _Binary()
        self._keys = _Binary()
        self._user: list[bytes] = []
        self._user_keys = _Binary()
        self._user_values = _Binary()
        self._rare: list[tuple[bytes, int, int, int]] = []
        self._rare_mask = 0

    def add(self, data: bytes, position: int, header: tuple[int, ...]) -> None:
        """Take the parts of the batch that starts at ``position``; ``header`` has the fields of ``Header``."""
        decoder = self._decoder
        count = header[_COUNT]
        self._bases.append(header[_BASE])
        self._times.append(header[_TIME])
        self._counts.append(count)
        self.rows += count
        self.bytes += header[_COLUMNS_BYTES]
        at = position + HEADER_BYTES + (header[_NOTE_BYTES] + 7 & -8)
        if decoder.needs_topics or decoder.needs_clients:
            clients_at = self._topics.add_dictionary(data, at, header[_TOPICS])
            if decoder.needs_clients:
                self._clients.add_dictionary(data, clients_at, header[_CLIENTS])
        at += header[_DICTIONARY_BYTES]
        if header[_BATCH_FLAGS] & ZSTD:
            data, at = BatchView(data, position).columns().data, 0
        step = 4 * count + 7 & -8
        if decoder.needs_topics:
            self._topics.add_indexes(data[at : at + 4 * count])
        if decoder.needs_clients:
            self._clients.add_indexes(data[at + step : at + step + 4 * count])
        at += 2 * step
        self._deltas.append(data[at : at + 4 * count])
        at += step
        self._flags.append(data[at : at + count])
        if decoder.needs_rest:
            at = self._payload.add(data, at + aligned(count), count)
            if decoder.asked & _BEHIND_PAYLOAD:
                self._rare.append((data, at, count, header[_COLUMNS]))
                self._rare_mask |= header[_COLUMNS]

    def _rare_columns(self) -> None:
        """Cut out columns that only some batches have; those without them have nothing but empty ones."""
        for data, start, count, mask in self._rare:
            at = start
            if mask & KEY:
                bits = np.frombuffer(data, np.uint8, (count + 7) >> 3, at)
                self._validity.append(np.unpackbits(bits, count=count, bitorder="little").astype(bool))
                at = self._keys.add(data, at + aligned((count + 7) >> 3), count)
            else:
                self._validity.append(np.zeros(count, bool))
                self._keys.add_empty(count)
            for bit, width in ((PACKET_ID, 2), (SESSION_EPOCH, 8), (EXPIRES_AT, 8)):
                if mask & bit:
                    at += aligned(width * count)
            if mask & PROPERTIES:
                size: int = _INT32.unpack_from(data, at + 4 * count)[0]
                at += aligned(4 * count + 4) + aligned(size)
            if mask & USER:
                pairs: int = _INT32.unpack_from(data, at + 4 * count)[0]
                self._user.append(data[at : at + 4 * count])
                self._pairs.append(pairs)
                at = self._user_keys.add(data, at + aligned(4 * count + 4), pairs)
                self._user_values.add(data, at, pairs)
            else:
                self._user.append(bytes(4 * count))
                self._pairs.append(0)
                self._user_keys.add_empty(0)
                self._user_values.add_empty(0)

    def record_batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows in [start, end) with names that are wanted; large groups in several batches."""
        decoder = self._decoder
        counts = np.array(self._counts, np.int64)
        names, name_indexes, mask = self._topic_names(counts)
        if mask is not None and not mask.any():
            return
        if self._rare_mask & (KEY | USER):
            self._rare_columns()
        arrays = [self._column(field, counts, names, name_indexes) for field in decoder.schema]
        found = pa.RecordBatch.from_arrays(arrays, schema=decoder.schema)
        low = max(0, start - self._bases[0])
        high = self.rows - max(0, self._bases[-1] + self._counts[-1] - end)
        if low or high < self.rows:
            found = found.slice(low, high - low)
        if mask is not None and not mask.all():
            found = found.filter(pa.array(mask[low:high]))
        for first in range(0, found.num_rows, ROWS_MAX):
            yield found.slice(first, ROWS_MAX) if found.num_rows > ROWS_MAX else found

    def _topic_names(self, counts: np.ndarray[Any, Any]) -> tuple[Any, Any, Any]:
        """Topic names, each record's index into them, and which records are wanted: None for all."""
        decoder = self._decoder
        if not decoder.needs_topics:
            return None, None, None
        names, indexes = self._topics.arrays(counts, decoder.prefix)
        if decoder.wanted is None and not decoder.template_fields:
            return names, indexes, None
        encoded = names.dictionary_encode()  # each name once, however many batches name it
        names = encoded.dictionary
        indexes = encoded.indices.to_numpy()[indexes]
        if decoder.wanted is None:
            return names, indexes, None
        verdicts = np.array([decoder.verdict(name) for name in names.to_pylist()], bool)
        return names, indexes, verdicts[indexes]

    def _column(self, field: pa.Field, counts: np.ndarray[Any, Any], names: Any, indexes: Any) -> pa.Array:
        name = field.name
        decoder = self._decoder
        rows = self.rows
        if name == "payload":
            return pa.Array.from_buffers(field.type, rows, [None, *self._payload.buffers(counts)])
        if name == "mqtt_topic":
            return names.take(pa.array(indexes))
        if name == "client_id":
            clients, client_indexes = self._clients.arrays(counts, decoder.prefix)
            return clients.take(pa.array(client_indexes))
        if name == "offset":
            bases = np.array(self._bases, np.int64)
            return pa.array(np.arange(rows) + np.repeat(bases - (np.cumsum(counts) - counts), counts))
        if name == "timestamp":
            deltas = np.frombuffer(b"".join(self._deltas), "<i4")
            times = (np.repeat(np.array(self._times, np.int64), counts) + deltas) * 1000
            return pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(times)])
        if name == "topic":
            return pa.repeat(decoder.topic, rows)
        if name == "partition":
            return pa.array(np.full(rows, decoder.shard, np.int32))
        if name in {"qos", "retain"}:
            flags = np.frombuffer(b"".join(self._flags), np.uint8)
            return pa.array((flags & QOS_MASK).astype(np.int32) if name == "qos" else (flags & RETAIN) != 0)
        if name == "key":
            return self._key_column(field, counts)
        if name == "headers":
            return self._header_column(field, counts)
        return self._template_column(field, names, indexes)

    def _key_column(self, field: pa.Field, counts: np.ndarray[Any, Any]) -> pa.Array:
        if not self._rare_mask & KEY:
            return pa.nulls(self.rows, field.type)
        bits = pa.py_buffer(np.packbits(np.concatenate(self._validity), bitorder="little"))
        return pa.Array.from_buffers(field.type, self.rows, [bits, *self._keys.buffers(counts)])

    def _header_column(self, field: pa.Field, counts: np.ndarray[Any, Any]) -> pa.Array:
        """User properties; null where a message has none, whatever its neighbours in the batch have."""
        if not self._rare_mask & USER:
            return pa.nulls(self.rows, field.type)
        pairs = np.array(self._pairs, np.int64)
        total = int(pairs.sum())
        starts = np.frombuffer(b"".join(self._user), "<i4") + np.repeat(np.cumsum(pairs) - pairs, counts)
        offsets = np.append(starts, total).astype(np.int32)
        bits = pa.py_buffer(np.packbits(np.diff(offsets) > 0, bitorder="little"))
        kind = field.type.value_type
        children = [
            pa.Array.from_buffers(kind.field(place).type, total, [None, *part.buffers(pairs)])
            for place, part in enumerate((self._user_keys, self._user_values))
        ]
        structs = pa.Array.from_buffers(kind, total, [None], children=children)
        return pa.Array.from_buffers(field.type, self.rows, [bits, pa.py_buffer(offsets)], children=[structs])

    def _template_column(self, field: pa.Field, names: Any, indexes: Any) -> pa.Array:
        decoder = self._decoder
        assert decoder.template is not None
        place = decoder.template.names.index(field.name)
        parsed = [decoder.parse(name) for name in names.to_pylist()]
        values = pa.array([None if one is None else one[place] for one in parsed], field.type)
        return values.take(pa.array(indexes))
