"""Many stored batches become Arrow at once; each row is what the plain, record-by-record reader finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from flockmq.log.batch import BatchBuilder, BatchView, control_batch, stamp
from flockmq.log.columns import QOS_MASK, RETAIN
from flockmq.log.header import NOOP
from flockmq.mqtt.topics import matches
from flockmq.spark import arrow
from flockmq.spark.arrow import Decoder
from flockmq.spark.schema import arrow_schema, full_schema
from flockmq.spark.template import Template

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEMPLATE = Template("plant/{site}/{line:int}/#")

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0+#/"), max_size=4)
names = st.one_of(
    st.builds("plant/{}/{}/t".format, texts, st.integers(-5, 5)),
    st.builds("{}/{}".format, texts, texts),
)
records = st.fixed_dictionaries(
    {
        "topic": names,
        "client": texts,
        "time": st.integers(0, 5000),
        "flags": st.integers(0, 7),
        "payload": st.binary(max_size=20),
        "key": st.none() | st.binary(max_size=5),
        "packet_id": st.sampled_from([0, 0, 7]),
        "epoch": st.sampled_from([0, 0, 9]),
        "expires_at": st.sampled_from([0, 0, 99]),
        "properties": st.sampled_from([b"", b"", b"\x01\x00"]),
        "user": st.lists(st.tuples(texts, texts), max_size=2),
    }
)
batches = st.lists(st.tuples(st.lists(records, max_size=5), st.booleans()), max_size=6)
Drawn = list[tuple[list[dict[str, Any]], bool]]


def stored(drawn: Drawn, prefix: bytes = b"", first: int = 100) -> bytes:
    """A log as nodes serve it; a batch without records is a control batch."""
    parts: list[bytes] = []
    offset = first
    for rows, compress in drawn:
        builder = BatchBuilder()
        for row in rows:
            builder.add(
                prefix + row["topic"].encode(),
                prefix + row["client"].encode(),
                10_000 + row["time"],
                row["flags"],
                row["payload"],
            )
            builder.mark(
                key=row["key"],
                packet_id=row["packet_id"],
                session_epoch=row["epoch"],
                expires_at=row["expires_at"],
                properties=row["properties"],
                user=[(key.encode(), value.encode()) for key, value in row["user"]],
            )
        batch = builder.build(compress=compress) if rows else control_batch(NOOP, b"nothing", 1)
        parts.append(stamp(batch, 1, len(parts) + 1, offset))
        offset += len(rows)
    return b"".join(parts)


def plain_rows(data: bytes, start: int, end: int, prefix: bytes) -> list[dict[str, Any]]:
    """The obvious way."""
    found: list[dict[str, Any]] = []
    position = 0
    while position < len(data):
        view = BatchView(data, position)
        position = view.end
        for record in view.records() if view.count else []:
            if not start <= record.offset < end:
                continue
            name = record.topic[len(prefix) :].decode()
            parsed = TEMPLATE.parse(name) or (None, None)
            found.append(
                {
                    "topic": "plant",
                    "partition": 3,
                    "offset": record.offset,
                    "timestamp": EPOCH + timedelta(milliseconds=record.timestamp_ms),
                    "mqtt_topic": name,
                    "client_id": record.client[len(prefix) :].decode(),
                    "key": record.key,
                    "payload": record.payload,
                    "qos": record.flags & QOS_MASK,
                    "retain": bool(record.flags & RETAIN),
                    "headers": [{"key": key.decode(), "value": value.decode()} for key, value in record.user] or None,
                    "site": parsed[0],
                    "line": parsed[1],
                }
            )
    return found


@settings(max_examples=100, deadline=None)
@given(
    batches,
    st.integers(95, 130),
    st.integers(95, 130),
    st.sampled_from([b"", b"$ns/acme/"]),
    st.sampled_from([(), ("plant/#",), ("plant/+/1/t", "+/a")]),
    st.sets(st.sampled_from(full_schema(TEMPLATE).names), min_size=1),
)
def test_rows_are_those_of_a_reader_that_takes_one_record_after_the_other(
    drawn: Drawn, start: int, end: int, prefix: bytes, filters: tuple[str, ...], columns: set[str]
) -> None:
    data = stored(drawn, prefix)

    def wanted(name: str) -> bool:
        return any(matches(one.encode(), name.encode()) for one in filters)

    schema = arrow_schema(StructType([field for field in full_schema(TEMPLATE) if field.name in columns]))
    decoder = Decoder(schema, "plant", 3, prefix=prefix, wanted=wanted if filters else None, template=TEMPLATE)
    found = list(decoder.decode(data, start, end))
    for one in found:
        one.validate(full=True)
        assert one.schema.equals(schema)
    expected = [row for row in plain_rows(data, start, end, prefix) if not filters or wanted(row["mqtt_topic"])]
    rows = [row for one in found for row in one.to_pylist()]
    assert rows == [{name: row[name] for name in schema.names} for row in expected]


@pytest.mark.parametrize("limit", ["ROWS_MAX", "GROUP_BYTES_MAX"])
def test_groups_stay_within_their_bounds(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"topic": "a", "client": "", "time": 0, "flags": 0, "payload": b"x" * 50, "key": None, "packet_id": 0}
    row |= {"epoch": 0, "expires_at": 0, "properties": b"", "user": []}
    data = stored([([row] * 10, False)] * 10)
    monkeypatch.setattr(arrow, limit, 25 if limit == "ROWS_MAX" else 2000)
    found = list(Decoder(arrow_schema(full_schema(None)), "t", 0).decode(data, 0, 1000))
    assert sum(one.num_rows for one in found) == 100
    assert all(one.num_rows <= 25 for one in found)
    assert len(found) == 5


def test_one_long_batch_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ROWS_MAX", 30)
    builder = BatchBuilder()
    for number in range(100):
        builder.add(b"a", b"", 1, 0, b"%d" % number)
    found = list(Decoder(arrow_schema(full_schema(None)), "t", 0).decode(stamp(builder.build(), 1, 1, 0), 0, 100))
    assert [one.num_rows for one in found] == [30, 30, 30, 10]
    assert pa.Table.from_batches(found).column("offset").to_pylist() == list(range(100))


def test_a_name_is_judged_once_however_many_batches_have_it() -> None:
    asked: list[str] = []

    def wanted(name: str) -> bool:
        asked.append(name)
        return name == "a"

    builder = BatchBuilder()
    for number in range(100):
        builder.add(b"a" if number % 2 else b"b", b"", 1, 0, b"")
    data = b"".join(stamp(builder.build(), 1, index, 100 * index) for index in range(20))
    found = list(Decoder(arrow_schema(full_schema(None)), "t", 0, wanted=wanted).decode(data, 0, 10_000))
    assert sum(one.num_rows for one in found) == 1000
    assert sorted(asked) == ["a", "b"]
