"""The batch against a list of records: what goes in comes out, compressed or not, whatever it is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flockmq.log.batch import BatchBuilder, BatchView, Record, stamp

names = st.sampled_from([b"", b"a", b"a/b", b"plant/7/temperature", "straße/東京".encode()])
small = st.binary(max_size=40)
records = st.fixed_dictionaries(
    {
        "topic": names,
        "client": names,
        "timestamp_ms": st.integers(1_700_000_000_000 - 2**29, 1_700_000_000_000 + 2**29),
        "flags": st.integers(0, 255),
        "payload": small,
    },
    optional={
        "key": st.none() | small,
        "packet_id": st.integers(0, 2**16 - 1),
        "session_epoch": st.integers(0, 2**64 - 1),
        "expires_at": st.integers(0, 2**63 - 1),
        "properties": small,
        "user": st.lists(st.tuples(small, small), max_size=3),
    },
)
DEFAULTS: dict[str, Any] = {
    "key": None,
    "packet_id": 0,
    "session_epoch": 0,
    "expires_at": 0,
    "properties": b"",
    "user": [],
}


def add(builder: BatchBuilder, fields: dict[str, Any]) -> None:
    builder.add(**{name: value for name, value in fields.items() if name not in DEFAULTS})
    builder.mark(**{name: value for name, value in fields.items() if name in DEFAULTS})


def as_dict(record: Record) -> dict[str, Any]:
    names_ = ["topic", "client", "timestamp_ms", "flags", "payload", *DEFAULTS]
    return {name: getattr(record, name) for name in names_}


@given(st.lists(records, min_size=1, max_size=30), st.booleans(), small, st.integers(0, 2**40))
def test_a_batch_is_a_list_of_records(wanted: list[dict[str, Any]], compress: bool, note: bytes, offset: int) -> None:
    builder = BatchBuilder()
    for fields in wanted:
        add(builder, fields)
    view = BatchView(stamp(builder.build(compress, note), 7, 9, offset))
    view.verify()
    found = view.records()
    assert [as_dict(record) for record in found] == [DEFAULTS | fields for fields in wanted]
    assert [record.offset for record in found] == list(range(offset, offset + len(wanted)))
    assert view.note() == note
    assert view.latest_timestamp == max(fields["timestamp_ms"] for fields in wanted)
    assert view.timestamps() == [fields["timestamp_ms"] for fields in wanted]


@given(st.lists(records, min_size=1, max_size=30), st.sets(names))
def test_selection_is_filtering(given_: list[dict[str, Any]], wanted: set[bytes]) -> None:
    builder = BatchBuilder()
    for fields in given_:
        add(builder, fields)
    expected = [position for position, fields in enumerate(given_) if fields["topic"] in wanted]
    assert BatchView(builder.build()).select(lambda topic: topic in wanted) == expected
