"""Columns become Arrow arrays over the batch's own bytes: nothing copied, nothing done per record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from flockmq.log.batch import BatchBuilder, BatchView, Columns

COUNT = 1000
PLAIN = {
    "flags": pa.uint8(),
    "timestamp": pa.int32(),
    "packet_id": pa.uint16(),
    "session_epoch": pa.uint64(),
    "expires_at": pa.timestamp("ms"),
}


def full_batch(*, compress: bool = False) -> bytes:
    builder = BatchBuilder()
    for number in range(COUNT):
        builder.add(
            b"plant/%d/temperature" % (number % 4),
            b"sensor-%d" % (number % 10),
            5000 + number,
            number % 3,
            b"%d" % (number * number),
        )
        builder.mark(
            key=b"key-%d" % number if number % 2 else None,
            packet_id=number,
            session_epoch=number << 40,
            expires_at=10_000 + number,
            properties=b"\x01\x00" * (number % 3),
            user=[(b"unit", b"C")] * (number % 3),
        )
    return builder.build(compress=compress)


class ArrowBatch:
    """How a reader turns a batch into arrays: one ``from_buffers`` per column, whatever the number of records."""

    def __init__(self, view: BatchView) -> None:
        columns = view.columns()
        self.own = pa.py_buffer(view.data)
        self.data = self.own if columns.data is view.data else pa.py_buffer(columns.data)
        self.columns: Columns = columns
        self.view = view

    def buffer(self, name: str) -> pa.Buffer:
        start, length = self.columns.spans[name]
        return self.data.slice(start, length)

    def plain(self, name: str) -> pa.Array:
        return pa.Array.from_buffers(PLAIN[name], self.columns.count, [None, self.buffer(name)])

    def binary(self, name: str, kind: pa.DataType, count: int) -> pa.Array:
        validity = self.buffer(name + ".validity") if name + ".validity" in self.columns else None
        return pa.Array.from_buffers(
            kind, count, [validity, self.buffer(name + ".offsets"), self.buffer(name + ".bytes")]
        )

    def names(self, column: str, dictionary: str) -> pa.DictionaryArray:
        spans = self.view.dictionaries()
        parts = [None] + [self.own.slice(*spans[f"{dictionary}.{part}"]) for part in ("offsets", "bytes")]
        count = spans[f"{dictionary}.offsets"][1] // 4 - 1
        indices = pa.Array.from_buffers(pa.int32(), self.columns.count, [None, self.buffer(column)])
        return pa.DictionaryArray.from_arrays(indices, pa.Array.from_buffers(pa.utf8(), count, parts))

    def user(self) -> pa.Array:
        pairs = self.columns.spans["user.key.offsets"][1] // 4 - 1
        fields = [self.binary("user." + part, pa.utf8(), pairs) for part in ("key", "value")]
        pair = pa.struct([("key", pa.utf8()), ("value", pa.utf8())])
        structs = pa.Array.from_buffers(pair, pairs, [None], children=fields)
        kind = pa.list_(pair)
        return pa.Array.from_buffers(kind, self.columns.count, [None, self.buffer("user.offsets")], children=[structs])

    def arrays(self) -> dict[str, pa.Array]:
        arrays = {name: self.plain(name) for name in PLAIN}
        arrays["topic"] = self.names("topic", "topics")
        arrays["client"] = self.names("client", "clients")
        for name in ("payload", "key", "properties"):
            arrays[name] = self.binary(name, pa.binary(), self.columns.count)
        arrays["user"] = self.user()
        return arrays


@pytest.mark.parametrize("compress", [False, True])
def test_arrow_sees_the_same_records(compress: bool) -> None:
    view = BatchView(full_batch(compress=compress))
    arrays = ArrowBatch(view).arrays()
    for array in arrays.values():
        array.validate(full=True)
    records = view.records()
    assert arrays["topic"].to_pylist() == [one.topic.decode() for one in records]
    assert arrays["client"].to_pylist() == [one.client.decode() for one in records]
    assert [5000 + delta for delta in arrays["timestamp"].to_pylist()] == [one.timestamp_ms for one in records]
    for name in ("flags", "payload", "key", "packet_id", "session_epoch", "properties"):
        assert arrays[name].to_pylist() == [getattr(one, name) for one in records], name
    assert arrays["expires_at"].cast(pa.int64()).to_pylist() == [one.expires_at for one in records]
    pairs = [[(pair["key"].encode(), pair["value"].encode()) for pair in row] for row in arrays["user"].to_pylist()]
    assert pairs == [one.user for one in records]


def test_every_arrow_buffer_lies_inside_the_batch() -> None:
    batch = full_batch()
    arrow = ArrowBatch(BatchView(batch))
    before = pa.total_allocated_bytes()
    arrays = arrow.arrays()
    assert pa.total_allocated_bytes() == before, "Arrow allocated something: a column was copied"
    low = pa.py_buffer(batch).address
    buffers = [buffer for array in arrays.values() for buffer in buffers_of(array)]
    assert len(buffers) == len(arrow.columns.spans) + 4  # and two dictionaries of two buffers
    for buffer in buffers:
        assert low <= buffer.address
        assert buffer.address + buffer.size <= low + len(batch)
        assert (buffer.address - low) % 8 == 0


def buffers_of(array: pa.Array) -> list[pa.Buffer]:
    found = [buffer for buffer in array.buffers() if buffer is not None]
    if isinstance(array, pa.DictionaryArray):
        found += [buffer for buffer in array.dictionary.buffers() if buffer is not None]
    return found


def test_finding_the_columns_does_not_look_at_records() -> None:
    """Bytes that count who takes a piece of them are touched as often for ten records as for ten thousand."""
    assert touches(10) == touches(10_000)


class CountingBytes(bytes):
    """Bytes that count how often somebody takes a piece of them."""

    touched = 0

    def __getitem__(self, key: Any) -> Any:
        CountingBytes.touched += 1
        return super().__getitem__(key)


def touches(count: int) -> int:
    builder = BatchBuilder()
    for number in range(count):
        builder.add(b"a", b"b", 1, 0, b"%d" % number)
        builder.mark(key=b"k", user=[(b"a", b"b")])
    batch = CountingBytes(builder.build())
    CountingBytes.touched = 0
    BatchView(batch).columns()
    return CountingBytes.touched
