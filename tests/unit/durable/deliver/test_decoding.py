"""Batches become runs again: the same messages, in the same order, and nothing that nobody wants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.durable.deliver.decoding import UNWANTED, BatchDecoder, Piece
from flockmq.log.batch import BatchBuilder, BatchError, BatchView, Record, stamp
from flockmq.mqtt.properties import Properties, encode_block
from flockmq.mqtt.run import Run, packet_ends

WALL_MS = 1_000_000
"""What the calendar is ahead of the broker's clock."""


def block(content_type: str = "", user: tuple[str, str] | None = None) -> bytes:
    properties = Properties()
    if content_type:
        properties.content_type = content_type
    if user is not None:
        properties.user = [user]
    return encode_block(properties)


def decode(batch: bytes, low: int = 0, high: int = 1 << 40, version: int = 4, now: int = 0) -> list[Piece]:
    decoder = BatchDecoder(batch)
    return decoder.pieces(low, high, [version] * len(decoder.topics), WALL_MS, now)


def messages(pieces: list[Piece]) -> list[tuple[int, bytes, int, bool, bytes, bytes]]:
    """(offset, topic, QoS, retain, properties, payload) of each message, read out of the wire bytes."""
    found = []
    for piece in pieces:
        run = piece.run
        for index in range(run.count):
            properties, payload = run.parse(index)
            found.append((piece.offset + index, run.topic, run.qos, run.retain, properties, payload))
    return found


def is_well_formed(run: Run) -> bool:
    """Whether the positions that a run names are those of its bytes."""
    if packet_ends(run.wire) != run.ends or len(run.ends) != run.count:
        return False
    return not run.qos or [run.wire[at : at + 2] for at in run.pid_at] == [b"\0\0"] * run.count


def test_records_of_one_publisher_become_one_run() -> None:
    builder = BatchBuilder()
    builder.add_run(b"t/a", b"c1", WALL_MS, 1, [b"1", b"2", b"3"])
    pieces = decode(stamp(builder.build(), 1, 1, 10))
    assert [(piece.offset, piece.end, piece.client) for piece in pieces] == [(10, 13, b"c1")]
    assert [piece.run.payload(1) for piece in pieces] == [b"2"]
    assert is_well_formed(pieces[0].run)


def test_another_topic_begins_another_run() -> None:
    builder = BatchBuilder()
    for topic in (b"a", b"a", b"b", b"a"):
        builder.add(topic, b"c", WALL_MS, 0, topic)
    assert [(piece.offset, piece.run.topic, piece.run.count) for piece in decode(builder.build())] == [
        (0, b"a", 2),
        (2, b"b", 1),
        (3, b"a", 1),
    ]


def test_another_qos_or_retain_begins_another_run() -> None:
    builder = BatchBuilder()
    for flags in (0, 1, 1, 5):
        builder.add(b"a", b"c", WALL_MS, flags, b"")
    found = [(piece.run.qos, piece.run.retain, piece.run.count) for piece in decode(builder.build())]
    assert found == [(0, False, 1), (1, False, 2), (1, True, 1)]


def test_publishers_are_told_apart_where_that_matters() -> None:
    builder = BatchBuilder()
    for client in (b"x", b"x", b"y"):
        builder.add(b"a", client, WALL_MS, 0, b"")
    decoder = BatchDecoder(builder.build())
    assert [piece.run.count for piece in decoder.pieces(0, 3, [4], WALL_MS, 0)] == [3]
    apart = decoder.pieces(0, 3, [4], WALL_MS, 0, by_client=True)
    assert [(piece.client, piece.run.count) for piece in apart] == [(b"x", 2), (b"y", 1)]


def test_topics_that_nobody_wants_are_left_out() -> None:
    builder = BatchBuilder()
    for topic in (b"a", b"b", b"a"):
        builder.add(topic, b"c", WALL_MS, 0, topic)
    decoder = BatchDecoder(builder.build())
    assert decoder.topics == [b"a", b"b"]
    assert [piece.offset for piece in decoder.pieces(0, 3, [UNWANTED, 4], WALL_MS, 0)] == [1]
    assert decoder.pieces(0, 3, [UNWANTED, UNWANTED], WALL_MS, 0) == []


def test_only_a_part_of_a_batch() -> None:
    builder = BatchBuilder()
    builder.add_run(b"a", b"c", WALL_MS, 0, [b"0", b"1", b"2", b"3"])
    batch = stamp(builder.build(), 1, 1, 100)
    assert [(piece.offset, piece.run.count) for piece in decode(batch, 101, 103)] == [(101, 2)]
    assert decode(batch, 104, 110) == []
    assert decode(batch, 0, 100) == []


def test_what_has_expired_is_not_delivered() -> None:
    builder = BatchBuilder()
    builder.add(b"a", b"c", WALL_MS, 0, b"stays")
    builder.add(b"a", b"c", WALL_MS, 0, b"short")
    builder.mark(expires_at=WALL_MS + 50)
    builder.add(b"a", b"c", WALL_MS, 0, b"long")
    builder.mark(expires_at=WALL_MS + 500)
    pieces = decode(builder.build(), now=50)
    assert [(piece.run.payload(0), piece.run.expires_at) for piece in pieces] == [(b"stays", 0), (b"long", 500)]


def test_equal_properties_share_a_run_of_mqtt_5() -> None:
    builder = BatchBuilder()
    for content_type in ("text/plain", "text/plain", "", "image/png"):
        builder.add(b"a", b"c", WALL_MS, 1, b"p")
        builder.mark(properties=block(content_type))
    pieces = decode(builder.build())
    assert [(piece.run.version, piece.run.count) for piece in pieces] == [(5, 2), (4, 1), (5, 1)]
    assert pieces[0].run.parse(1) == (block("text/plain"), b"p")
    assert all(is_well_formed(piece.run) for piece in pieces)


@pytest.mark.parametrize("raw", [block(), block("text/plain")])
def test_user_properties_are_delivered_once(raw: bytes) -> None:
    builder = BatchBuilder()
    builder.add(b"a", b"c", WALL_MS, 0, b"p")
    builder.mark(properties=raw, user=[(b"k", b"v")])
    builder.add(b"a", b"c", WALL_MS, 0, b"p")
    builder.mark(properties=raw + block(user=("k", "v")), user=[(b"k", b"v")])
    pieces = decode(builder.build())
    assert [piece.run.count for piece in pieces] == [2]
    assert pieces[0].run.parse(0)[0] == raw + block(user=("k", "v"))


def test_the_last_retained_record_of_each_topic() -> None:
    builder = BatchBuilder()
    for topic, flags, payload in ((b"a", 5, b"1"), (b"b", 1, b"2"), (b"a", 4, b"3"), (b"c", 6, b"")):
        builder.add(topic, b"x", WALL_MS, flags, payload)
    decoder = BatchDecoder(stamp(builder.build(), 1, 1, 20))
    assert decoder.has_retained()
    assert [(piece.offset, piece.run.topic, piece.run.payload(0)) for piece in decoder.retained(WALL_MS)] == [
        (22, b"a", b"3"),
        (23, b"c", b""),
    ]


def test_a_record_of_an_unknown_topic_is_refused() -> None:
    builder = BatchBuilder()
    builder.add(b"a", b"c", WALL_MS, 0, b"1")
    builder.add(b"b", b"c", WALL_MS, 0, b"2")
    batch = bytearray(builder.build())
    at = BatchView(bytes(batch)).columns().spans["topic"][0]
    batch[at : at + 4] = (9).to_bytes(4, "little")
    with pytest.raises(BatchError):
        decode(bytes(batch))


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b/c"]),
        st.sampled_from([b"x", b"y"]),
        st.sampled_from([0, 1, 2, 5]),
        st.sampled_from([b"", b"p", b"pp", b"q" * 130]),
        st.sampled_from([0, WALL_MS + 5, WALL_MS + 50]),
        st.sampled_from([b"", block("text/plain")]),
    ),
    min_size=1,
    max_size=20,
)


@given(RECORDS, st.integers(0, 20), st.integers(0, 20), st.sampled_from([4, 5]), st.booleans(), st.booleans())
def test_runs_hold_what_the_records_hold(
    records: list[tuple[bytes, bytes, int, bytes, int, bytes]],
    low: int,
    high: int,
    version: int,
    by_client: bool,
    compress: bool,
) -> None:
    builder = BatchBuilder()
    for topic, client, flags, payload, expires_at, properties in records:
        builder.add(topic, client, WALL_MS, flags, payload)
        builder.mark(expires_at=expires_at, properties=properties)
    batch = stamp(builder.build(compress), 1, 1, 0)
    decoder = BatchDecoder(batch)
    versions = [version if topic == b"a" else UNWANTED for topic in decoder.topics]
    pieces = decoder.pieces(low, high, versions, WALL_MS, 10, by_client)

    def wanted(record: Record) -> bool:
        alive = not record.expires_at or record.expires_at > WALL_MS + 10
        return record.topic == b"a" and low <= record.offset < high and alive

    expected = [
        (one.offset, one.topic, one.flags & 3, one.flags & 4 != 0, one.properties, one.payload)
        for one in BatchView(batch).records()
        if wanted(one)
    ]
    assert messages(pieces) == expected
    assert all(is_well_formed(piece.run) for piece in pieces)
