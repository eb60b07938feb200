from __future__ import annotations

import random

import pytest

from flockmq.log.batch import BatchBuilder, BatchError, BatchView


def test_what_goes_in_comes_out() -> None:
    builder = BatchBuilder()
    builder.add(b"a", b"me", 1000, 1, b"one")
    builder.add(b"b", b"me", 999, 5, b"")
    builder.mark(key=b"")
    builder.add(b"a", b"you", 2000, 2, b"three")
    builder.mark(b"k", 7, 2**63, 5000, b"\x01\x01", [(b"unit", b"C"), (b"unit", b"F")])
    view = BatchView(builder.build())
    view.verify()
    first, second, third = view.records()
    assert (first.topic, first.client, first.timestamp_ms, first.flags, first.payload) == (b"a", b"me", 1000, 1, b"one")
    assert (first.key, first.packet_id, first.session_epoch, first.expires_at) == (None, 0, 0, 0)
    assert (first.properties, first.user) == (b"", [])
    assert (second.topic, second.timestamp_ms, second.flags, second.payload, second.key) == (b"b", 999, 5, b"", b"")
    assert (third.client, third.key, third.packet_id, third.session_epoch) == (b"you", b"k", 7, 2**63)
    assert (third.expires_at, third.properties) == (5000, b"\x01\x01")
    assert third.user == [(b"unit", b"C"), (b"unit", b"F")]
    assert [record.offset for record in view.records()] == [0, 1, 2]


def test_timestamps_of_the_header() -> None:
    builder = BatchBuilder()
    for timestamp in (500, 900, 100):
        builder.add(b"a", b"me", timestamp, 0, b"")
    view = BatchView(builder.build())
    assert (view.base_timestamp, view.latest_timestamp) == (500, 900)
    assert view.timestamps() == [500, 900, 100]


def test_names_stand_once() -> None:
    builder = BatchBuilder()
    for number in range(1000):
        builder.add(b"a/rather/long/topic/%d" % (number % 2), b"one-client", 1, 0, b"")
    batch = builder.build()
    assert batch.count(b"a/rather/long/topic/") == 2
    assert batch.count(b"one-client") == 1
    assert BatchView(batch).topics() == [b"a/rather/long/topic/0", b"a/rather/long/topic/1"]


def test_rare_columns_are_there_only_where_some_record_has_them() -> None:
    builder = BatchBuilder()
    builder.add(b"a", b"me", 1, 0, b"x")
    plain = set(BatchView(builder.build()).columns().spans)
    assert plain == {"topic", "client", "timestamp", "flags", "payload.offsets", "payload.bytes"}
    builder.add(b"a", b"me", 1, 0, b"x")
    builder.mark(packet_id=3)
    assert set(BatchView(builder.build()).columns().spans) == plain | {"packet_id"}


def test_size_is_a_good_guess() -> None:
    builder = BatchBuilder()
    for number in range(500):
        builder.add(b"t/%d" % number, b"client", 1, 0, b"x" * (number % 70))
        builder.mark(key=b"k", user=[(b"a", b"b")])
    assert builder.count == 500
    assert len(builder.build()) <= builder.size < 1.5 * len(builder.build()), "rather too large than too small"


def test_compression_is_used_where_it_helps() -> None:
    builder = BatchBuilder()
    for number in range(200):
        builder.add(b"a", b"me", number, 0, b"the same again and again")
    small, large = builder.build(compress=True), builder.build()
    assert len(small) < len(large) / 4
    BatchView(small).verify()
    assert [one.payload for one in BatchView(small).records()] == [one.payload for one in BatchView(large).records()]
    assert BatchView(small).topics() == [b"a"], "dictionaries are readable without decompressing"


def test_compression_never_makes_a_batch_larger() -> None:
    rng = random.Random(1)
    for size in [*range(40), 500, 5000]:
        noise = BatchBuilder()
        noise.add(b"a", b"me", rng.getrandbits(30), 255, rng.randbytes(size))
        noise.mark(properties=rng.randbytes(8))
        noise.add(b"b", b"you", rng.getrandbits(30), 255, rng.randbytes(size))
        noise.mark(properties=rng.randbytes(8))
        batch = noise.build(compress=True)
        assert len(batch) <= len(noise.build())
        assert BatchView(batch).record(1).payload == BatchView(noise.build()).record(1).payload


def test_a_note_stands_beside_the_records() -> None:
    builder = BatchBuilder()
    builder.add(b"a", b"me", 1, 0, b"x")
    view = BatchView(builder.build(note=b"sender 7, boot 3, sequence 12"))
    view.verify()
    assert view.note() == b"sender 7, boot 3, sequence 12"
    assert view.record(0).payload == b"x"
    assert BatchView(builder.build()).note() == b""


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(BatchError, match="control_batch"):
        BatchBuilder().build()


def test_times_too_far_apart_are_refused_and_nothing_is_half_added() -> None:
    builder = BatchBuilder()
    builder.add(b"a", b"me", 0, 0, b"x")
    for far in (2**31, -(2**31)):
        with pytest.raises(BatchError, match="24 days"):
            builder.add(b"b", b"me", far, 0, b"y")
    builder.add(b"a", b"me", 2**31 - 1, 0, b"z")
    assert [one.payload for one in BatchView(builder.build()).records()] == [b"x", b"z"]


def test_a_run_is_as_its_records_one_by_one() -> None:
    payloads = [b"a", b"", b"ccc"]
    one_by_one = BatchBuilder()
    as_runs = BatchBuilder()
    for topic, client, at in ((b"t/1", b"c1", 1_000), (b"t/2", b"c1", 1_005), (b"t/1", b"c2", 990)):
        for payload in payloads:
            one_by_one.add(topic, client, at, 1, payload)
        as_runs.add_run(topic, client, at, 1, payloads)
        as_runs.add_run(topic, client, at, 1, [])
    assert (as_runs.count, as_runs.size) == (9, one_by_one.size)
    assert as_runs.build() == one_by_one.build()
