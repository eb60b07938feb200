"""What a ring hands out, put together and decoded again, against what the load says it should be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.client.load.plan import STAMP_BYTES, Load, topic_name, topics_of_publisher
from flockmq.client.load.ring import Ring
from flockmq.client.load.units import unit_count
from flockmq.errors import FlockError
from flockmq.mqtt import packets as p
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.varint import frame_length
from flockmq.wire.websocket import FrameDecoder

KEY = b"\x11\x22\x33\x44"


def decode_all(load: Load, stream: bytes, key: bytes) -> list[p.Publish]:
    if key:
        stream = FrameDecoder().feed(stream)
    found: list[p.Publish] = []
    at = 0
    while at < len(stream):
        head, whole = frame_length(stream, at, len(stream))
        packet = decode_packet(load.version, stream[at], stream[at + head : at + whole])
        assert isinstance(packet, p.Publish)
        found.append(packet)
        at += whole
    return found


def drain(ring: Ring, bytes_max: int = 5_000) -> bytes:
    """Take everything, acknowledging all that was taken each time."""
    stream = bytearray(ring.take_preamble())
    while units := ring.take(ring.taken, bytes_max):
        stream += units
    return bytes(stream)


@settings(max_examples=50)
@given(
    st.integers(0, 2),
    st.sampled_from([4, 5]),
    st.integers(1, 5),
    st.integers(1, 700),
    st.sampled_from([0, 64, 150]),
    st.sampled_from([b"", KEY]),
    st.booleans(),
)
def test_messages_come_in_the_order_of_the_topics_and_no_id_is_used_twice_within_a_window(
    qos: int, version: int, topics: int, messages: int, payload_bytes: int, key: bytes, alias: bool
) -> None:
    load = Load(
        qos=qos,
        version=version,
        topics=topics,
        messages=max(messages, topics),
        payload_bytes=payload_bytes,
        window=20,
        topic_alias=alias and version == 5,
    )
    found = decode_all(load, drain(Ring(load, 0, key)), key)
    assert len(found) == load.messages
    names = [topic_name(load, topic).encode() for topic in topics_of_publisher(load, 0)]
    by_alias: dict[int | None, bytes] = {}
    for index, message in enumerate(found):
        topic = message.topic
        if load.topic_alias:
            assert message.properties is not None
            alias_number = message.properties.topic_alias
            topic = by_alias.setdefault(alias_number, topic) if topic else by_alias[alias_number]
        assert topic == names[index % len(names)]
        assert (message.qos, len(message.payload)) == (qos, payload_bytes)
    if qos:
        ids = [message.packet_id for message in found]
        for start in range(len(ids) - load.window):
            assert len(set(ids[start : start + load.window])) == load.window


@settings(max_examples=12)
@given(st.integers(1, 3), st.sampled_from([b"", KEY]), st.integers(1, 1_500))
def test_fresh_names_never_repeat_and_stay_below_their_topic(topics: int, key: bytes, messages: int) -> None:
    load = Load(topics=topics, messages=messages + 2_000, payload_bytes=8, filter="plus", fresh_names=True)
    found = [message.topic.decode() for message in decode_all(load, drain(Ring(load, 0, key)), key)]
    assert len(set(found)) == len(found) == load.messages
    for index, name in enumerate(found):
        assert name.rpartition("/")[0] == topic_name(load, index % topics).rpartition("/")[0]


@given(
    st.sampled_from([4, 5]),
    st.sampled_from([b"", KEY]),
    st.integers(0, 2),
    st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30),
)
def test_the_time_of_sending_stands_at_the_start_of_the_payload(
    version: int, key: bytes, qos: int, stamps: list[int]
) -> None:
    load = Load(version=version, qos=qos, rate=100, payload_bytes=20)
    ring = Ring(load, 0, key)
    stream = b"".join(bytes(ring.take_stamped(ring.taken, 1, stamp)) for stamp in stamps)
    found = [message.payload for message in decode_all(load, stream, key)]
    assert [int.from_bytes(payload[:STAMP_BYTES], "big") for payload in found] == stamps


def test_the_window_holds_back_what_is_not_acknowledged() -> None:
    ring = Ring(Load(qos=1, window=10), 0)
    unit = ring.units.unit_bytes
    assert len(ring.take(0, 1_000_000)) == 10 * unit
    assert len(ring.take(0, 1_000_000)) == 0
    assert len(ring.take(4, 1_000_000)) == 4 * unit
    ring.limit_window(3)
    assert ring.allowed(11) == 0
    assert ring.allowed(12) == 1


def test_a_stopped_ring_hands_out_nothing_more() -> None:
    ring = Ring(Load(), 0)
    ring.take(0, 1_000)
    before = ring.done
    ring.stop()
    assert (before, ring.done) == (False, True)
    assert len(ring.take(0, 1_000)) == 0


def test_more_packet_ids_than_there_are_is_refused() -> None:
    with pytest.raises(FlockError, match="packet ids"):
        unit_count(Load(qos=1, window=16_000, topics=50_000), 50_000)
