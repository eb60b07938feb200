from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.mqtt.run import make_run
from flockmq.peering.retained_codec import (
    Reader,
    Section,
    decode_answer,
    decode_change,
    decode_digests,
    decode_section,
    encode_answer,
    encode_deletion,
    encode_message,
    encode_section,
    pack_digests,
)
from flockmq.routing.buckets import BUCKETS, version_of
from flockmq.routing.clock import STAMP_MAX
from flockmq.routing.retained import RetainedMessage

STAMP = st.integers(1, STAMP_MAX)
NODE = st.integers(0, (1 << 64) - 1)
NAME = st.text("abcé/", min_size=1, max_size=20).map(str.encode)
VERSIONS = st.dictionaries(NAME, st.builds(version_of, STAMP, NODE), max_size=5)


@given(STAMP, NODE, NAME, st.binary(min_size=1), st.integers(0, 2), st.sampled_from([4, 5]), st.integers(0, 9_000))
def test_a_message_arrives_with_its_version_and_its_moment_of_expiry(
    stamp: int, node: int, topic: bytes, payload: bytes, qos: int, version: int, expires_at: int
) -> None:
    run = make_run(version, qos, True, topic, payload, b"", expires_at, 5)
    entry = encode_message(RetainedMessage(topic, run, stamp, node, False), wall_offset_ms=1_000_000)
    reader = Reader(entry * 2)
    for _ in range(2):
        change = decode_change(reader, wall_offset_ms=400_000)
        assert change.run is not None
        assert (change.topic, change.stamp, change.origin) == (topic, stamp, node)
        assert (change.run.wire, change.run.version) == (run.wire, version)
        assert change.run.expires_at == (expires_at + 600_000 if expires_at else 0)
    assert not reader.has_more()


@given(STAMP, NODE, NAME)
def test_a_deletion_arrives(stamp: int, node: int, topic: bytes) -> None:
    change = decode_change(Reader(encode_deletion(topic, version_of(stamp, node))), 0)
    assert (change.topic, change.run, change.stamp, change.origin) == (topic, None, stamp, node)


@given(st.integers(0, BUCKETS - 1), st.binary(max_size=9), st.binary(max_size=9), VERSIONS)
def test_a_section_arrives(bucket: int, after: bytes, through: bytes, versions: dict[bytes, int]) -> None:
    section = decode_section(Reader(encode_section(Section(bucket, after, through, versions))))
    assert (section.bucket, section.after, section.through) == (bucket, after, through)
    assert section.versions == versions


@given(st.dictionaries(st.integers(0, BUCKETS - 1), NAME, max_size=4), st.lists(NAME, max_size=4))
def test_an_answer_arrives(unfinished: dict[int, bytes], wanted: list[bytes]) -> None:
    reader = Reader(encode_answer(list(unfinished.items()), wanted), 1)
    assert decode_answer(reader) == (unfinished, wanted)
    assert not reader.has_more()


def test_digests_arrive_and_must_be_all() -> None:
    digests = [number << 40 for number in range(BUCKETS)]
    assert decode_digests(Reader(pack_digests(digests))) == digests
    for body in (pack_digests(digests)[:-1], pack_digests(digests) + b"\0", b""):
        with pytest.raises(FlockError):
            decode_digests(Reader(body))


@pytest.mark.parametrize("expires", [0, 1 << 60])
def test_an_expiry_that_can_not_be_is_refused(expires: int) -> None:
    run = make_run(4, 0, True, b"a", b"x", b"", 5)
    entry = bytearray(encode_message(RetainedMessage(b"a", run, 1, 1, False), 0))
    entry[17:25] = expires.to_bytes(8, "little")
    with pytest.raises(FlockError):
        decode_change(Reader(bytes(entry)), 0)
