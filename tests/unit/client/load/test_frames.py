"""The generator's own packets, read back by the broker's decoder: two codecs that agree."""

from __future__ import annotations

import pytest

from flockmq.client.load import frames
from flockmq.errors import FlockError
from flockmq.mqtt import packets as p
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.properties import Properties


def decode(version: int, whole: bytes) -> p.Packet:
    header = 2
    while whole[header - 1] >= 128:
        header += 1
    return decode_packet(version, whole[0], whole[header:])


@pytest.mark.parametrize("version", [4, 5])
def test_connect(version: int) -> None:
    packet = decode(version, frames.connect(version, "me", 30, "user", "secret", alias_maximum=7))
    assert isinstance(packet, p.Connect)
    assert (packet.version, packet.client_id, packet.username, packet.password) == (version, "me", "user", b"secret")
    assert packet.clean_start
    assert packet.properties.topic_alias_maximum == (7 if version == 5 else None)


@pytest.mark.parametrize("version", [4, 5])
def test_connect_of_a_persistent_session(version: int) -> None:
    packet = decode(version, frames.connect(version, "me", 30, alias_maximum=7, persistent=True))
    assert isinstance(packet, p.Connect)
    assert not packet.clean_start
    expected = (frames.SESSION_EXPIRY_S, 7) if version == 5 else (None, None)
    assert (packet.properties.session_expiry_s, packet.properties.topic_alias_maximum) == expected


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish(version: int, qos: int) -> None:
    properties = frames.topic_alias(3) + frames.user_properties(2) if version == 5 else b""
    packet = decode(version, frames.publish(version, b"a/b", b"load" * 50, qos=qos, packet_id=9, properties=properties))
    assert isinstance(packet, p.Publish)
    assert (packet.topic, packet.payload, packet.qos, packet.packet_id) == (b"a/b", b"load" * 50, qos, 9 if qos else 0)
    if version == 5:
        assert packet.properties is not None
        assert packet.properties.topic_alias == 3
        assert packet.properties.user == [("key-0", "value-0"), ("key-1", "value-1")]


@pytest.mark.parametrize("version", [4, 5])
def test_many_filters_go_into_several_subscribes_and_none_is_left_out(version: int) -> None:
    filters = [f"bench/{index:05d}/+" for index in range(5_000)]
    packets = [decode(version, one) for one in frames.subscribes(version, filters, 1)]
    assert len(packets) > 1
    found = []
    for number, packet in enumerate(packets):
        assert isinstance(packet, p.Subscribe)
        assert packet.packet_id == number + 1
        found += [entry.topic_filter.decode() for entry in packet.entries]
    assert found == filters


def test_what_a_connack_grants() -> None:
    properties = Properties()
    properties.receive_maximum = 20
    properties.topic_alias_maximum = 5
    properties.assigned_client_id = "given"
    properties.user = [("a", "b")]
    whole = encode_packet(p.Connack(False, 0, properties), 5)
    assert frames.read_connack(5, whole) == frames.Granted(20, 5, 2)
    assert frames.read_connack(4, encode_packet(p.Connack(False, 0), 4)) == frames.Granted()


@pytest.mark.parametrize(("version", "code", "words"), [(4, 5, "not authorized"), (5, 0x86, "Bad User Name")])
def test_a_refusal_says_why(version: int, code: int, words: str) -> None:
    body = bytes((0, code)) + (b"\x00" if version == 5 else b"")
    with pytest.raises(FlockError, match=words):
        frames.read_connack(version, frames.packet(0x20, body))


@pytest.mark.parametrize("version", [4, 5])
def test_one_refused_filter_among_many_is_found(version: int) -> None:
    fine = encode_packet(p.Suback(1, [0, 1, 2] * 60), version)
    frames.read_suback(version, fine)
    refused = encode_packet(p.Suback(1, [0] * 100 + [0x80] + [1] * 100), version)
    with pytest.raises(FlockError, match="refused a subscription"):
        frames.read_suback(version, refused)
