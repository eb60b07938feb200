"""What the golden packets of test_decode don't show: short forms, versions, what can't be sent."""

from __future__ import annotations

import pytest

from codec_cases import hexed, with_properties
from flockmq.errors import FlockError
from flockmq.mqtt import packets as p
from flockmq.mqtt.encode import PINGREQ, PINGRESP, encode_ack, encode_disconnect, encode_packet
from flockmq.mqtt.packets import Ack, Connack, Publish, Suback


@pytest.mark.parametrize(
    ("kind", "reason", "version", "text", "wire"),
    [
        (p.PUBACK, 0, 4, None, "40 02 0102"),
        (p.PUBACK, 0, 5, None, "40 02 0102"),
        (p.PUBACK, 0x10, 5, None, "40 03 0102 10"),
        (p.PUBACK, 0x10, 4, None, "40 02 0102"),
        (p.PUBACK, 0x97, 5, "full", "40 0B 0102 97 07 1F 0004'full'"),
        (p.PUBACK, 0x97, 4, "full", "40 02 0102"),
        (p.PUBREC, 0x87, 5, None, "50 03 0102 87"),
        (p.PUBREL, 0, 5, None, "62 02 0102"),
        (p.PUBREL, 0x92, 5, None, "62 03 0102 92"),
        (p.PUBCOMP, 0, 4, None, "70 02 0102"),
        (p.PUBCOMP, 0x92, 5, "?", "70 08 0102 92 04 1F 0001'?'"),
    ],
)
def test_encode_ack(kind: int, reason: int, version: int, text: str | None, wire: str) -> None:
    assert encode_ack(kind, 0x0102, reason, version, text) == hexed(wire)
    properties = None if text is None else with_properties(reason_string=text)
    assert encode_packet(Ack(kind, 0x0102, reason, properties), version) == hexed(wire)


def test_encode_disconnect() -> None:
    assert encode_disconnect(0x8E, 4) == b"\xe0\x00"
    assert encode_disconnect(0, 5) == b"\xe0\x00"
    assert encode_disconnect(0x8E, 5) == b"\xe0\x01\x8e"
    assert encode_disconnect(0x8E, 5, with_properties(reason_string="w")) == hexed("E0 06 8E 04 1F 0001'w'")


def test_pings() -> None:
    assert encode_packet(p.Pingreq(), 4) == PINGREQ
    assert encode_packet(p.Pingresp(), 5) == PINGRESP


def test_3_1_1_gets_what_it_understands() -> None:
    assert encode_packet(Suback(1, [2, 0x87, 0x8F]), 4) == hexed("90 05 0001 02 80 80")
    assert encode_packet(Connack(False, 0x86), 4) == hexed("20 02 00 04")
    assert encode_packet(Connack(False, 5), 4) == hexed("20 02 00 05")
    properties = with_properties(user=[("k", "v")], topic_alias=1)
    assert encode_packet(Publish(b"a", b"x", properties=properties), 4) == hexed("30 04 0001'a' 'x'")
    assert encode_packet(p.Unsuback(1, [0x11]), 4) == hexed("B0 02 0001")
    assert encode_packet(p.Subscribe(1, [p.SubscribeEntry(b"a", 1, True, True, 2)]), 4) == hexed(
        "82 06 0001 0001'a' 01"
    )


def test_3_1_1_has_no_auth() -> None:
    with pytest.raises(FlockError, match="Auth can't be sent"):
        encode_packet(p.Auth(), 4)


@pytest.mark.parametrize(
    "packet",
    [
        Publish(bytes(65_536), b""),
        Publish(b"a", b"", 1, packet_id=65_536),
        Publish(b"a", b"", properties=with_properties(message_expiry_s=1 << 32)),
        Publish(b"a", b"", properties=with_properties(subscription_identifiers=[1 << 28])),
        p.Connect(5, "x" * 65_536),
    ],
)
def test_what_does_not_fit_is_not_sent(packet: p.Packet) -> None:
    with pytest.raises(FlockError):
        encode_packet(packet, 5)
