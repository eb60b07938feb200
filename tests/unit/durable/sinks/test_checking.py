"""Chunks from outside: what may go into a log, and what may not, whatever the bytes are."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.durable.deliver.decoding import BatchDecoder
from flockmq.durable.sinks.checking import NAMES_MAX, ChunkRules, check_chunk, names_in
from flockmq.log.assembling import KeyColumns, UserColumns, assemble
from flockmq.log.batch import BatchBuilder, BatchError, control_batch
from flockmq.log.checksum import crc32c
from flockmq.log.header import COVERED, HEADER_BYTES, seal
from flockmq.routing.durable import BY_CLIENT, BY_PROPERTY, BY_TOPIC, shard_of

BYTES_MAX = 100_000


def rules(prefix: bytes = b"", shard: int = 0, shards: int = 1, key: int = BY_TOPIC) -> ChunkRules:
    return ChunkRules(prefix, shard, shards, key, lambda name: name.startswith(prefix + b"plant/"), BYTES_MAX)


def int32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def columns(**change: object) -> dict[str, Any]:
    return {
        "topics": [b"plant/1", b"plant/2"],
        "topic_index": int32(0, 1, 0),
        "clients": [b"spark"],
        "client_index": int32(0, 0, 0),
        "flags": b"\0\1\6",
        "payload_offsets": int32(0, 2, 2, 5),
        "payload": b"abcde",
        "keys": KeyColumns(b"\5", int32(0, 1, 1, 2), b"kl"),
        "user": UserColumns(int32(0, 1, 1, 2), int32(0, 4, 8), b"unitunit", int32(0, 1, 3), "Cµ".encode()),
        **change,
    }


def chunk(**change: object) -> bytes:
    return assemble(**columns(**change))


def rewritten(batch: bytes, change: Callable[[list[int]], None]) -> bytes:
    """A batch with other header fields and sound checksums: as somebody makes it who means harm."""
    body = batch[HEADER_BYTES:]
    fields = list(COVERED.unpack_from(batch, 8))
    change(fields)
    fields[4] = crc32c(body)
    return seal(COVERED.pack(*fields)) + body


def field(number: int, value: int) -> Callable[[list[int]], None]:
    def change(fields: list[int]) -> None:
        fields[number] = value

    return change


def test_a_chunk_as_it_should_be_is_taken() -> None:
    check_chunk(chunk(), rules())
    check_chunk(chunk(keys=None, user=None), rules())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"topic_index": int32(0, 2, 0)}, "names a topic that the chunk does not have"),
        ({"topic_index": int32(0, -1, 0)}, "names a topic that the chunk does not have"),
        ({"client_index": int32(0, 0, 1)}, "names a client that the chunk does not have"),
        ({"flags": b"\0\3\0"}, "flags of a record"),
        ({"flags": b"\0\10\0"}, "flags of a record"),
        ({"payload_offsets": int32(0, 4, 2, 5)}, "offsets of payload have to begin at 0 and must not fall"),
        ({"payload_offsets": int32(0, -4, 2, 5)}, "offsets of payload"),
        ({"payload_offsets": int32(0, 9, 9, 5)}, "offsets of payload"),
        ({"keys": KeyColumns(b"\5", int32(0, 2, 1, 2), b"kl")}, "offsets of key"),
        ({"topics": [b"plant/+"], "topic_index": bytes(12)}, "can't be a topic name"),
        ({"topics": [b"plant/\0"], "topic_index": bytes(12)}, "can't be a topic name"),
        ({"topics": [b"plant/\xff"], "topic_index": bytes(12)}, "can't be a topic name"),
        ({"topics": [b""], "topic_index": bytes(12)}, "can't be a topic name"),
        ({"topics": [b"home/1"], "topic_index": bytes(12)}, "is no topic name of this durable topic"),
        ({"topics": [b"plant/" + b"x" * 65_530], "topic_index": bytes(12)}, "is no topic name"),
        ({"topics": [], "topic_index": bytes(12)}, "names of this chunk do not fit"),
        ({"clients": [], "client_index": bytes(12)}, "names of this chunk do not fit"),
        ({"clients": [b"\xff"]}, "can't be a client id"),
        ({"clients": [b"$ns/acme/x"]}, "is not of this namespace"),
        (
            {"user": UserColumns(int32(0, 2, 1, 2), int32(0, 4, 8), b"unitunit", int32(0, 1, 2), b"CK")},
            "offsets of user",
        ),
        (
            {"user": UserColumns(int32(0, 1, 1, 2), int32(0, 9, 8), b"unitunit", int32(0, 1, 2), b"CK")},
            "offsets of user",
        ),
        ({"user": UserColumns(int32(0, 1, 1, 2), int32(0, 4, 8), b"unit\0nit", int32(0, 1, 2), b"CK")}, "UTF-8"),
        ({"user": UserColumns(int32(0, 1, 1, 2), int32(0, 1, 2), "µ".encode(), int32(0, 1, 2), b"CK")}, "UTF-8"),
        (
            {"user": UserColumns(int32(0, 1, 1, 2), int32(0, 1, 70_001), b"x" * 70_001, int32(0, 1, 2), b"CK")},
            "more than 65,535 bytes",
        ),
        ({"payload_offsets": int32(0, 0, 0, BYTES_MAX), "payload": bytes(BYTES_MAX)}, "A chunk may have 100,000 bytes"),
    ],
)
def test_columns_that_would_mislead_a_reader_are_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(BatchError, match=sentence):
        check_chunk(chunk(**change), rules())


@pytest.mark.parametrize(
    "number",
    [1, 2, 3, 5, 6, 7, 8, 14, 15, 16, 17, 18, 19],
)
@pytest.mark.parametrize("value", [1, 2, 8, 255])
def test_headers_that_say_something_else_are_refused(number: int, value: int) -> None:
    before = COVERED.unpack_from(chunk(), 8)[number]
    if value == before:
        value += 1
    with pytest.raises(BatchError):
        check_chunk(rewritten(chunk(), field(number, value)), rules())


@pytest.mark.parametrize("count", [(1 << 32) - 1, 1 << 31, 1 << 24])
def test_a_count_of_billions_costs_nothing(count: int) -> None:
    with pytest.raises(BatchError):
        check_chunk(rewritten(chunk(), field(14, count)), rules())
    for number in (16, 17):
        with pytest.raises(BatchError):
            check_chunk(rewritten(chunk(), field(number, count)), rules())


def test_names_are_bounded_and_counted_before_anything_else() -> None:
    assert [names_in(data) for data in (b"", bytes(95), chunk())] == [0, 0, 3]
    names = [b"plant/%d" % number for number in range(NAMES_MAX + 1)]
    many = chunk(topics=names)
    assert names_in(many) == NAMES_MAX + 1
    wide = rules()
    wide.bytes_max = 10_000_000
    with pytest.raises(BatchError, match="65,536 different topics and clients"):
        check_chunk(many, wide)
    check_chunk(chunk(topics=names[:-1]), wide)


def test_times_packet_ids_and_compression_are_not_a_writers_business() -> None:
    for fields in ({"packet_id": 1}, {"session_epoch": 1}, {"expires_at": 1}, {"properties": b"\1\1"}):
        builder = BatchBuilder()
        builder.add(b"plant/1", b"c", 0, 0, b"x")
        builder.mark(**fields)
        with pytest.raises(BatchError, match="may have keys and user properties"):
            check_chunk(builder.build(), rules())
    builder = BatchBuilder()
    builder.add(b"plant/1", b"c", 0, 0, b"x" * 1_000)
    builder.add(b"plant/1", b"c", 1, 0, b"x" * 1_000)
    with pytest.raises(BatchError, match="no times of their own"):
        check_chunk(builder.build(), rules())
    for batch in (builder.build(compress=True), builder.build(note=b"note"), control_batch(4, b"body")):
        with pytest.raises(BatchError, match="plain batch"):
            check_chunk(batch, rules())


def test_a_chunk_is_one_batch_and_whole() -> None:
    batch = chunk()
    for data in (b"", batch[:50], batch[:-8], batch + bytes(8), batch + batch):
        with pytest.raises(BatchError):
            check_chunk(data, rules())


def test_records_belong_to_the_shard_that_their_key_says() -> None:
    shard = shard_of(b"plant/1", 4)
    one = chunk(topics=[b"plant/1"], topic_index=bytes(12))
    check_chunk(one, rules(shard=shard, shards=4))
    with pytest.raises(BatchError, match=f"belong to shard {shard} of 4, not to shard {(shard + 1) % 4}"):
        check_chunk(one, rules(shard=(shard + 1) % 4, shards=4))
    client = shard_of(b"spark", 4)
    check_chunk(one, rules(shard=client, shards=4, key=BY_CLIENT))
    with pytest.raises(BatchError, match="belong to shard"):
        check_chunk(one, rules(shard=(client + 1) % 4, shards=4, key=BY_CLIENT))
    check_chunk(one, rules(shard=1, shards=4, key=BY_PROPERTY))


def test_names_are_of_the_namespace() -> None:
    inside = chunk(topics=[b"$ns/acme/plant/1"], topic_index=bytes(12), clients=[b"$ns/acme/spark"])
    check_chunk(inside, rules(b"$ns/acme/"))
    for change in ({"topics": [b"plant/1"]}, {"clients": [b"spark"]}):
        names = {"topics": [b"$ns/acme/plant/1"], "clients": [b"$ns/acme/spark"], **change}
        with pytest.raises(BatchError, match="is not of this namespace"):
            check_chunk(chunk(topic_index=bytes(12), **names), rules(b"$ns/acme/"))


@given(st.integers(0, 3_000), st.integers(0, 255), st.integers(0, 3_000), st.integers(0, 255))
def test_whatever_is_taken_can_be_delivered(first: int, one: int, second: int, other: int) -> None:
    batch = bytearray(chunk())
    for at, value in ((first, one), (second, other)):
        batch[8 + at % (len(batch) - 8)] = value
    body = bytes(batch[HEADER_BYTES:])
    covered = bytearray(batch[8:HEADER_BYTES])
    covered[4:8] = struct.pack("<I", crc32c(body))
    data = seal(bytes(covered)) + body
    try:
        check_chunk(data, rules())
    except BatchError:
        return
    decoder = BatchDecoder(data)
    assert [name.startswith(b"plant/") for name in decoder.topics] == [True] * len(decoder.topics)
    pieces = decoder.pieces(decoder.base, decoder.end, [5] * len(decoder.topics), 0, 0, True)
    assert sum(piece.run.count for piece in pieces) == decoder.view.count
    assert decoder.has_retained() in (True, False)
    assert len(decoder.view.records()) == decoder.view.count
