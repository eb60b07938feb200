"""Batches made of whole columns are those that a builder makes of records."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.log.assembling import KeyColumns, UserColumns, assemble
from flockmq.log.batch import BatchBuilder, BatchError

NAMES = [b"plant/1", b"plant/2", b"$ns/acme/x"]
CLIENTS = [b"spark", b"other"]

rows = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 1),
        st.sampled_from([0, 1, 2, 4, 5, 6]),
        st.binary(max_size=20),
        st.none() | st.binary(max_size=5),
        st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=2),
    ),
    min_size=1,
    max_size=30,
)


def int32(values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def ends(values: list[bytes]) -> bytes:
    found = [0]
    for value in values:
        found.append(found[-1] + len(value))
    return int32(found)


@given(rows)
def test_a_builder_makes_the_same_bytes(rows: list[Any]) -> None:
    builder = BatchBuilder()
    topics: dict[bytes, int] = {}
    clients: dict[bytes, int] = {}
    for topic, client, flags, payload, key, user in rows:
        builder.add(NAMES[topic], CLIENTS[client], 0, flags, payload)
        builder.mark(key=key, user=user)
        topics.setdefault(NAMES[topic], len(topics))
        clients.setdefault(CLIENTS[client], len(clients))
    payloads = [row[3] for row in rows]
    keys = [row[4] for row in rows]
    bits = bytearray((len(rows) + 7) >> 3)
    for position, key in enumerate(keys):
        if key is not None:
            bits[position >> 3] |= 1 << (position & 7)
    has_key = any(key is not None for key in keys)
    pairs = [pair for row in rows for pair in row[5]]
    counts = [0]
    for row in rows:
        counts.append(counts[-1] + len(row[5]))
    user = UserColumns(
        int32(counts),
        ends([name for name, _ in pairs]),
        b"".join(name for name, _ in pairs),
        ends([value for _, value in pairs]),
        b"".join(value for _, value in pairs),
    )
    stored = KeyColumns(bytes(bits), ends([key or b"" for key in keys]), b"".join(key or b"" for key in keys))
    made = assemble(
        list(topics),
        int32([topics[NAMES[row[0]]] for row in rows]),
        list(clients),
        int32([clients[CLIENTS[row[1]]] for row in rows]),
        bytes(row[2] for row in rows),
        ends(payloads),
        b"".join(payloads),
        stored if has_key else None,
        user if pairs else None,
    )
    assert made == builder.build()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"flags": b""}, "at least one record"),
        ({"topic_index": b"\0" * 4}, "Column topic_index has 4 bytes; 8 are needed"),
        ({"payload_offsets": int32([0, 1, 3])}, "end at 3, but it has 2 bytes"),
        ({"payload_offsets": int32([1, 1, 2])}, "don't begin at 0"),
        ({"keys": KeyColumns(b"\3", int32([0, 1]), b"")}, "key offsets has 8 bytes; 12"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(change: dict[str, Any], sentence: str) -> None:
    columns: dict[str, Any] = {
        "topics": [b"t"],
        "topic_index": int32([0, 0]),
        "clients": [b"c"],
        "client_index": int32([0, 0]),
        "flags": b"\0\0",
        "payload_offsets": int32([0, 1, 2]),
        "payload": b"ab",
    }
    with pytest.raises(BatchError, match=sentence):
        assemble(**{**columns, **change})
