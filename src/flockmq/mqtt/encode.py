"""Bytes from packets, in both directions. What a version does not know (properties, reason codes) is left out.

MQTT 5 has short forms for packets that say only "fine"; they are always used.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import FlockError
from flockmq.mqtt import packets as p
from flockmq.mqtt.fields import binary, text, u16
from flockmq.mqtt.packets import Packet
from flockmq.mqtt.properties import Properties, encode_block, encode_properties
from flockmq.mqtt.reasons import UNSPECIFIED_ERROR, connack_code_v3
from flockmq.mqtt.varint import encode_varint

PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"
_ACK_HEADS: Final = (b"\x40\x02", b"\x50\x02", b"\x62\x02", b"\x70\x02")  # by kind - PUBACK
_ACK_FIRST: Final = (b"\x40", b"\x50", b"\x62", b"\x70")


def frame(first: bytes, body: bytes) -> bytes:
    """Put the fixed header in front."""
    return first + encode_varint(len(body)) + body


def encode_packet(packet: Packet, version: int) -> bytes:
    """Encode one packet. A CONNECT brings its own version."""
    if isinstance(packet, p.Publish):
        return encode_publish(packet, version)
    if isinstance(packet, p.Ack):
        return _encode_ack_packet(packet, version)
    if isinstance(packet, p.Subscribe):
        return _encode_subscribe(packet, version)
    if isinstance(packet, p.Suback):
        return _encode_suback(packet, version)
    if isinstance(packet, p.Unsubscribe):
        filters = [binary(topic_filter) for topic_filter in packet.topic_filters]
        return frame(b"\xa2", _id_and_properties(packet.packet_id, packet.properties, version) + b"".join(filters))
    if isinstance(packet, p.Unsuback):
        codes = bytes(packet.reasons) if version == 5 else b""
        return frame(b"\xb0", _id_and_properties(packet.packet_id, packet.properties, version) + codes)
    if isinstance(packet, p.Connect):
        return _encode_connect(packet)
    if isinstance(packet, p.Connack):
        return _encode_connack(packet, version)
    if isinstance(packet, p.Disconnect):
        return encode_disconnect(packet.reason, version, packet.properties)
    if isinstance(packet, p.Pingreq):
        return PINGREQ
    if isinstance(packet, p.Pingresp):
        return PINGRESP
    if isinstance(packet, p.Auth) and version == 5:
        return _encode_auth(packet)
    raise FlockError(f"{type(packet).__name__} can't be sent in version {version} of MQTT")


def encode_publish(packet: p.Publish, version: int) -> bytes:
    """Encode a PUBLISH."""
    body = binary(packet.topic)
    if packet.qos:
        body += u16(packet.packet_id)
    if version == 5:
        body += encode_properties(packet.properties)
    flags = int(packet.dup) << 3 | packet.qos << 1 | int(packet.retain)
    return bytes((0x30 | flags,)) + encode_varint(len(body) + len(packet.payload)) + body + packet.payload


def encode_ack(kind: int, packet_id: int, reason: int, version: int, reason_string: str | None = None) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP in the shortest form that says it."""
    index = kind - p.PUBACK
    if version != 5 or (reason == 0 and reason_string is None):
        return _ACK_HEADS[index] + u16(packet_id)
    if reason_string is None:
        return _ACK_FIRST[index] + b"\x03" + u16(packet_id) + bytes((reason,))
    properties = Properties()
    properties.reason_string = reason_string
    return frame(_ACK_FIRST[index], u16(packet_id) + bytes((reason,)) + encode_properties(properties))


def encode_disconnect(reason: int, version: int, properties: Properties | None = None) -> bytes:
    """Encode a DISCONNECT in the shortest form that says it."""
    if version != 5:
        return b"\xe0\x00"
    return frame(b"\xe0", _reason_and_properties(reason, properties))


def _reason_and_properties(reason: int, properties: Properties | None) -> bytes:
    block = b"" if properties is None else encode_block(properties)
    if block:
        return bytes((reason,)) + encode_varint(len(block)) + block
    return bytes((reason,)) if reason else b""


def _id_and_properties(packet_id: int, properties: Properties | None, version: int) -> bytes:
    return u16(packet_id) + encode_properties(properties) if version == 5 else u16(packet_id)


def _encode_ack_packet(packet: p.Ack, version: int) -> bytes:
    tail = _reason_and_properties(packet.reason, packet.properties) if version == 5 else b""
    return frame(_ACK_FIRST[packet.kind - p.PUBACK], u16(packet.packet_id) + tail)


def _encode_subscribe(packet: p.Subscribe, version: int) -> bytes:
    parts = [_id_and_properties(packet.packet_id, packet.properties, version)]
    for entry in packet.entries:
        options = entry.qos
        if version == 5:
            options |= int(entry.no_local) << 2 | int(entry.retain_as_published) << 3 | entry.retain_handling << 4
        parts.append(binary(entry.topic_filter))
        parts.append(bytes((options,)))
    return frame(b"\x82", b"".join(parts))


def _encode_suback(packet: p.Suback, version: int) -> bytes:
    codes = packet.reasons
    if version != 5:  # 3.1.1 knows one way to fail
        codes = [UNSPECIFIED_ERROR if code >= UNSPECIFIED_ERROR else code for code in codes]
    return frame(b"\x90", _id_and_properties(packet.packet_id, packet.properties, version) + bytes(codes))


def _encode_connect(packet: p.Connect) -> bytes:
    will = packet.will
    flags = int(packet.clean_start) << 1
    if will is not None:
        flags |= 0x04 | will.qos << 3 | int(will.retain) << 5
    if packet.username is not None:
        flags |= 0x80
    if packet.password is not None:
        flags |= 0x40
    name = b"\x00\x06MQIsdp" if packet.version == 3 else b"\x00\x04MQTT"
    parts = [name, bytes((packet.version, flags)), u16(packet.keep_alive)]
    if packet.version == 5:
        parts.append(encode_properties(packet.properties))
    parts.append(text(packet.client_id))
    if will is not None:
        if packet.version == 5:
            parts.append(encode_properties(will.properties))
        parts.append(binary(will.topic))
        parts.append(binary(will.payload))
    if packet.username is not None:
        parts.append(text(packet.username))
    if packet.password is not None:
        parts.append(binary(packet.password))
    return frame(b"\x10", b"".join(parts))


def _encode_connack(packet: p.Connack, version: int) -> bytes:
    reason = packet.reason
    if version != 5:
        if reason > 5:
            reason = connack_code_v3(reason)
        return bytes((0x20, 2, int(packet.session_present), reason))
    return frame(b"\x20", bytes((int(packet.session_present), reason)) + encode_properties(packet.properties))


def _encode_auth(packet: p.Auth) -> bytes:
    block = encode_block(packet.properties)
    if not block and not packet.reason:
        return b"\xf0\x00"
    return frame(b"\xf0", bytes((packet.reason,)) + encode_varint(len(block)) + block)
