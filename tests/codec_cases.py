"""One wire case, three proofs: it decodes whole, it is found byte by byte, and it encodes back to the same bytes."""

from __future__ import annotations

import pytest

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Packet
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.varint import frame_length


def hexed(text: str) -> bytes:
    """Hexadecimal with spaces; whole words in quotes are ASCII: ``10 0D 0004'MQTT' 04``."""
    parts = text.split("'")
    return b"".join(part.encode() if index % 2 else bytes.fromhex(part) for index, part in enumerate(parts))


def decode_wire(version: int, wire: bytes) -> Packet:
    """Decode one whole packet with its fixed header."""
    header, total = frame_length(wire, 0, len(wire))
    assert total == len(wire), f"the case itself is wrong: it announces {total} bytes and has {len(wire)}"
    return decode_packet(version, wire[0], wire[header:total])


def feed_byte_by_byte(version: int, wire: bytes) -> Packet:
    """Decode as a slow network would deliver it; every shorter prefix must ask for more."""
    buf = b"\xff"  # something before it: positions must not be taken for offsets from 0
    for byte in wire[:-1]:
        buf += bytes((byte,))
        _, total = frame_length(buf, 1, len(buf))
        assert total == 0 or 1 + total > len(buf)
    buf += wire[-1:]
    header, total = frame_length(buf, 1, len(buf))
    assert 1 + total == len(buf)
    return decode_packet(version, buf[1], buf[1 + header :])


def check_golden(version: int, wire: bytes, packet: Packet) -> None:
    """The three proofs."""
    assert decode_wire(version, wire) == packet
    assert feed_byte_by_byte(version, wire) == packet
    assert encode_packet(packet, version).hex(" ") == wire.hex(" ")


def refusal(version: int, wire: bytes) -> int:
    """The reason code with which a packet is refused."""
    with pytest.raises(RemoteProtocolError) as caught:
        decode_wire(version, wire)
    assert str(caught.value)
    return caught.value.reason_code


def with_properties(**values: object) -> Properties:
    """Properties with these attributes set."""
    properties = Properties()
    for name, value in values.items():
        assert hasattr(properties, name)
        setattr(properties, name, value)
    return properties


def wire_of(first: int, body: str) -> bytes:
    """A short packet: first byte, length, body in the notation of ``hexed``."""
    content = hexed(body)
    assert len(content) < 128
    return bytes((first, len(content))) + content
