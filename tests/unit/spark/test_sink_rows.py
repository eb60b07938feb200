"""Chunks of whole columns hold just the records that a walk row by row puts into each shard, in its order."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flockmq.admin.durable_model import DataTopic
from flockmq.admin.durable_sinks_model import STAGE_BYTES_MAX
from flockmq.errors import FlockError
from flockmq.log.batch import BatchView
from flockmq.routing.durable import shard_of
from flockmq.spark import sink_rows
from flockmq.spark.sink_options import SinkColumns
from flockmq.spark.sink_rows import Chunk, RowSink
from flockmq.spark.sink_topics import Directory

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
SCHEMA = pa.schema(
    [
        ("mqtt_topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("headers", HEADERS),
        ("key", pa.binary()),
    ]
)
COLUMNS = SinkColumns(payload="payload", topic="mqtt_topic", qos="qos", retain="retain", headers="headers", key="key")
Pairs = list[tuple[str, str]]
RowTuple = tuple[str, bytes | None, int | None, bool | None, Pairs | None, bytes | None]


class Kept(NamedTuple):
    """A record as far as a sink decides about it."""

    name: bytes
    client: bytes
    flags: int
    payload: bytes
    key: bytes | None
    user: list[tuple[bytes, bytes]]


def durable(name: str, *, shards: int = 1, key: str = "topic", namespace: str = "default") -> DataTopic:
    return DataTopic(
        namespace=namespace,
        name=name,
        filters=[f"{name}/#"],
        shards=shards,
        replication_factor=1,
        copies_possible=1,
        retention_ms=None,
        retention_bytes=None,
        ack="quorum",
        key=key,
        exchange="fanout",
        created_at="2026-01-01T00:00:00Z",
        changed_index=1,
        groups=list(range(shards)),
    )


TOPICS = {
    one.name: one
    for one in (
        durable("plant", shards=4),
        durable("device", shards=3, key="client"),
        durable("order", shards=5, key="customer"),
        durable("parcel", shards=2, key="van"),
    )
}


def directory(namespace: str = "default") -> Directory:
    topics = [durable(one.name, shards=one.shards, key=one.key, namespace=namespace) for one in TOPICS.values()]
    return Directory(namespace, "spark", lambda: topics)


def place_of(prefix: bytes, row: RowTuple) -> tuple[tuple[str, int], Kept]:
    """What becomes of a row, the obvious way."""
    name, payload, qos, retain, headers, key = row
    topic = TOPICS[name.split("/")[0]]
    user = [(one.encode(), value.encode()) for one, value in headers or []]
    hashed = prefix + name.encode()
    stored = None
    if topic.key == "client":
        hashed = prefix + b"spark"
    elif topic.key != "topic":
        own = [value for one, value in user if one == topic.key.encode()]
        stored = key if key is not None else own[0] if own else None
        hashed = stored if stored is not None else hashed
    flags = (1 if qos is None else qos) | (4 if retain else 0)
    kept = Kept(prefix + name.encode(), prefix + b"spark", flags, payload or b"", stored, user)
    return (topic.name, shard_of(hashed, topic.shards)), kept


def records(chunks: list[Chunk]) -> dict[tuple[str, int], list[Kept]]:
    found: dict[tuple[str, int], list[Kept]] = {}
    for chunk in chunks:
        view = BatchView(chunk.data)
        view.verify()
        kept = [view.record(index) for index in range(view.count)]
        assert len(kept) == chunk.rows
        found.setdefault((chunk.topic, chunk.shard), []).extend(
            Kept(one.topic, one.client, one.flags, one.payload, one.key, one.user) for one in kept
        )
    return found


def record_batch(rows: list[RowTuple]) -> pa.RecordBatch:
    named: list[dict[str, Any]] = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    for one in named:
        if one["headers"] is not None:
            one["headers"] = [{"key": key, "value": value} for key, value in one["headers"]]
    return pa.RecordBatch.from_pylist(named, schema=SCHEMA)


names = st.sampled_from(
    ["plant/1", "plant/2", "plant/3/x", "device/a", "device/b", "order/new", "order/old", "parcel/7"]
)
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
pairs = st.lists(st.tuples(st.sampled_from(["customer", "van", "unit"]) | text, text), max_size=3)
row = st.tuples(
    names,
    st.none() | st.binary(max_size=40),
    st.none() | st.integers(0, 2),
    st.none() | st.booleans(),
    st.none() | pairs,
    st.none() | st.binary(max_size=4),
)


@given(st.lists(st.lists(row, max_size=25), max_size=5), st.integers(1, 400), st.sampled_from(["default", "acme"]))
def test_same_as_row_by_row(batches: list[list[RowTuple]], chunk_bytes: int, namespace: str) -> None:
    known = directory(namespace)
    sink = RowSink(COLUMNS, "", known, chunk_bytes)
    chunks: list[Chunk] = []
    for rows in batches:
        chunks += sink.add(record_batch(rows))
    chunks += sink.rest()
    expected: dict[tuple[str, int], list[Kept]] = {}
    for one in (one for batch in batches for one in batch):
        place, kept = place_of(known.prefix, one)
        expected.setdefault(place, []).append(kept)
    assert records(chunks) == expected


@given(st.lists(row, min_size=2, max_size=25), st.data())
def test_slices_are_taken_as_they_are(rows: list[RowTuple], data: st.DataObject) -> None:
    low = data.draw(st.integers(0, len(rows) - 1))
    high = data.draw(st.integers(low + 1, len(rows)))
    whole, part = RowSink(COLUMNS, "", directory()), RowSink(COLUMNS, "", directory())
    expected = [*whole.add(record_batch(rows[low:high])), *whole.rest()]
    assert [*part.add(record_batch(rows).slice(low, high - low)), *part.rest()] == expected


def written(columns: SinkColumns, batch: pa.RecordBatch, topic: str = "") -> list[Chunk]:
    sink = RowSink(columns, topic, directory())
    return [*sink.add(batch), *sink.rest()]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_payloads_of_any_text_or_bytes_go_to_a_fixed_topic(kind: pa.DataType) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["ä", None, "c"], pa.string()).cast(kind)], names=["value"])
    (kept,) = records(written(SinkColumns(payload="value"), batch, "plant/1")).values()
    assert [(one.name, one.payload, one.flags) for one in kept] == [
        (b"plant/1", "ä".encode(), 1),
        (b"plant/1", b"", 1),
        (b"plant/1", b"c", 1),
    ]


def test_chunks_are_about_as_large_as_wanted() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([bytes(1_000)] * 5_000)], names=["value"])
    chunks = written(SinkColumns(payload="value"), batch, "plant/1")
    assert sum(one.rows for one in chunks) == 5_000
    sizes = [len(one.data) for one in chunks]
    assert max(sizes) <= sink_rows.CHUNK_BYTES
    assert min(sizes[:-1]) > 0.9 * sink_rows.CHUNK_BYTES


def test_many_shards_do_not_wait_for_full_chunks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_rows, "PENDING_BYTES_MAX", 10_000)
    names_column = [f"plant/{number % 97}" for number in range(1_000)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(names_column), pa.array([bytes(100)] * 1_000)], names=["topic", "value"]
    )
    sink = RowSink(SinkColumns(payload="value", topic="topic"), "", directory())
    early = list(sink.add(batch))
    late = list(sink.rest())
    assert early
    assert sum(len(one.data) for one in late) <= 10_000 + 4_096
    assert sum(one.rows for one in early + late) == 1_000


def test_names_without_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_rows, "NAMES_MAX", 10)
    sink = RowSink(SinkColumns(payload="value", topic="topic"), "", directory())
    chunks: list[Chunk] = []
    for start in range(0, 100, 5):
        texts = [f"plant/{number}" for number in range(start, start + 5)]
        chunks += sink.add(pa.RecordBatch.from_arrays([pa.array(texts), pa.array(texts)], names=["topic", "value"]))
    chunks += sink.rest()
    kept = [one for part in records(chunks).values() for one in part]
    assert sorted(one.payload for one in kept) == sorted(b"plant/%d" % number for number in range(100))
    assert all(one.name == one.payload for one in kept)


def test_a_row_may_be_as_long_as_a_chunk_and_no_longer() -> None:
    columns = SinkColumns(payload="value")
    (chunk,) = written(columns, pa.RecordBatch.from_arrays([pa.array([bytes(3_500_000)])], names=["value"]), "plant/1")
    assert len(chunk.data) < STAGE_BYTES_MAX
    with pytest.raises(FlockError, match="make payloads smaller"):
        written(columns, pa.RecordBatch.from_arrays([pa.array([bytes(5_000_000)])], names=["value"]), "plant/1")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"mqtt_topic": None}, "1 rows have no topic"),
        ({"mqtt_topic": "plant/+"}, "can't be published to"),
        ({"mqtt_topic": "nobody/1"}, "flockmq topic create NAME --filter 'nobody/1'"),
        ({"mqtt_topic": "$ns/acme/plant/1"}, "No durable topic"),
        ({"qos": 3}, "QoS is 0, 1 or 2"),
        ({"qos": -1}, "QoS is 0, 1 or 2"),
        ({"headers": [{"key": None, "value": "x"}]}, "has no key"),
        ({"headers": [{"key": "x", "value": "a\0b"}]}, "U\\+0000"),
        ({"headers": [{"key": "x", "value": "v" * 65_536}]}, "longer than 65,535 bytes"),
    ],
)
def test_rows_that_no_message_can_be_made_of(changed: dict[str, object], sentence: str) -> None:
    values: dict[str, object] = {"mqtt_topic": "plant/1", "payload": b"x", "qos": 1, "retain": False}
    values |= {"headers": [], "key": None} | changed
    batch = pa.RecordBatch.from_pylist([values], schema=SCHEMA)
    with pytest.raises(FlockError, match=sentence):
        written(COLUMNS, batch)


def test_a_topic_that_is_new_is_found() -> None:
    answers = [[durable("plant")], [durable("plant"), durable("alert")]]
    known = Directory("default", "spark", lambda: answers.pop(0))
    known.refresh()
    assert known.home("plant/1").topic == "plant"
    assert known.home("alert/1").topic == "alert"
    assert not answers
