"""Packets from bytes, in both directions: what clients send and what servers send.

```
 frame_length (varint.py) finds the packet -> decode_packet(version, first byte, body) -> one function per kind
                                                     `-> RemoteProtocolError with the reason code for the wire
```
Whether a side may send a packet at all, and now, is for the session to decide. Filters of SUBSCRIBE and UNSUBSCRIBE are
known to be UTF-8 and not empty; where their wildcards stand is checked by the broker, filter by filter
(``topics.check_topic_filter``), because SUBACK can answer each one.
"""

from __future__ import annotations

from typing import Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import packets as p
from flockmq.mqtt import reasons
from flockmq.mqtt.connect import decode_connect
from flockmq.mqtt.fields import read_binary, read_text, read_u16
from flockmq.mqtt.packets import Ack, Packet, Publish, Subscribe, SubscribeEntry, Unsubscribe
from flockmq.mqtt.properties import (
    IN_ACK,
    IN_AUTH,
    IN_CONNACK,
    IN_DISCONNECT,
    IN_PUBLISH,
    IN_SUBSCRIBE,
    IN_UNSUBSCRIBE,
    UNBOUNDED,
    Properties,
    decode_properties,
    property_block,
)
from flockmq.mqtt.reasons import MALFORMED_PACKET, PROTOCOL_ERROR, TOPIC_FILTER_INVALID
from flockmq.mqtt.topics import SHARE_PREFIX, check_topic_name

_FLAGS: Final = (0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0)
_PINGREQ: Final = p.Pingreq()
_PINGRESP: Final = p.Pingresp()


def decode_packet(
    version: int, first: int, body: bytes, properties_max: int = UNBOUNDED, filters_max: int = UNBOUNDED
) -> Packet:
    """Decode one whole packet: its first byte and all that follows the fixed header. CONNECT knows its own version.

    More properties than ``properties_max``, or filters than ``filters_max``, are refused before they are decoded.
    """
    kind = first >> 4
    if kind == p.PUBLISH:
        return decode_publish(version, first, body, properties_max)
    if first & 0x0F != _FLAGS[kind]:  # [MQTT-2.1.3-1], 3.1.1: [MQTT-2.2.2-1], [MQTT-2.2.2-2]
        raise RemoteProtocolError(MALFORMED_PACKET, f"{p.KIND_NAMES[kind]} has wrong flags in its first byte")
    if p.PUBACK <= kind <= p.PUBCOMP:
        return decode_ack(version, kind, body, properties_max)
    if kind == p.SUBSCRIBE:
        return decode_subscribe(version, body, properties_max, filters_max)
    if kind == p.UNSUBSCRIBE:
        return decode_unsubscribe(version, body, properties_max, filters_max)
    if kind == p.CONNECT:
        return decode_connect(body, properties_max)
    return _decode_rare(version, kind, body, properties_max)


def _decode_rare(version: int, kind: int, body: bytes, properties_max: int) -> Packet:
    if kind in (p.PINGREQ, p.PINGRESP):
        if body:
            raise RemoteProtocolError(MALFORMED_PACKET, f"{p.KIND_NAMES[kind]} must not have a body")
        return _PINGREQ if kind == p.PINGREQ else _PINGRESP
    if kind == p.DISCONNECT:
        return _decode_disconnect(version, body, properties_max)
    if kind == p.CONNACK:
        return _decode_connack(version, body)
    if kind == p.SUBACK:
        return _decode_suback(version, body)
    if kind == p.UNSUBACK:
        return _decode_unsuback(version, body)
    if kind == p.AUTH and version == 5:
        return _decode_auth(body, properties_max)
    raise RemoteProtocolError(MALFORMED_PACKET, f"Packet type {kind} does not exist in this version of MQTT")


def decode_publish(version: int, first: int, body: bytes, properties_max: int = UNBOUNDED) -> Publish:
    """Decode a PUBLISH of either side; ``scan_publish_properties`` is stricter with what clients may send."""
    qos = first >> 1 & 3
    if qos == 3:  # [MQTT-3.3.1-4]
        raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH has QoS 3")
    if qos == 0 and first & 0x08:  # [MQTT-3.3.1-2]
        raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH with QoS 0 has DUP set")
    end = len(body)
    topic = read_binary(body, 0, end)
    pos = 2 + len(topic)
    packet_id = 0
    if qos:
        packet_id = _packet_id(body, pos, end)
        pos += 2
    properties: Properties | None = None
    if version == 5:
        start, pos = property_block(body, pos, end)
        if pos > start:
            properties = decode_properties(body, start, pos, IN_PUBLISH, properties_max)
    if topic:
        check_topic_name(topic)  # [MQTT-3.3.2-1], [MQTT-3.3.2-2]
    elif properties is None or properties.topic_alias is None:  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "PUBLISH has neither a topic nor a topic alias")
    return Publish(topic, body[pos:], qos, first & 0x01 != 0, first & 0x08 != 0, packet_id, properties)


def decode_ack(version: int, kind: int, body: bytes, properties_max: int = UNBOUNDED) -> Ack:
    """Decode PUBACK, PUBREC, PUBREL or PUBCOMP."""
    end = len(body)
    packet_id = _packet_id(body, 0, end)
    if end == 2:
        return Ack(kind, packet_id)
    if version != 5:
        raise _goes_on(kind)
    reason = body[2]
    # [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1]
    _check_reason(kind, reason, reasons.IN_PUBACK if kind <= p.PUBREC else reasons.IN_PUBREL)
    properties: Properties | None = None
    if end > 3:
        properties = _last_properties(kind, body, 3, IN_ACK, properties_max)
    return Ack(kind, packet_id, reason, properties)


def decode_subscribe(
    version: int, body: bytes, properties_max: int = UNBOUNDED, filters_max: int = UNBOUNDED
) -> Subscribe:
    """Decode a SUBSCRIBE."""
    end = len(body)
    packet_id = _packet_id(body, 0, end)
    pos = 2
    properties: Properties | None = None
    if version == 5:
        start, pos = property_block(body, pos, end)
        if pos > start:
            properties = decode_properties(body, start, pos, IN_SUBSCRIBE, properties_max)
    if pos == end:  # [MQTT-3.8.3-2], 3.1.1: [MQTT-3.8.3-3]
        raise RemoteProtocolError(PROTOCOL_ERROR, "SUBSCRIBE has no topic filter")
    entries: list[SubscribeEntry] = []
    while pos < end:
        topic_filter = _topic_filter(body, pos, end)
        pos += 2 + len(topic_filter)
        if pos >= end:
            raise RemoteProtocolError(MALFORMED_PACKET, "SUBSCRIBE ends before the options of its last filter")
        options = body[pos]
        pos += 1
        if len(entries) >= filters_max:
            raise _too_many_filters(filters_max)
        if version == 5:
            entries.append(_entry(topic_filter, options))
        elif options > 2:  # 3.1.1: [MQTT-3.8.3-4]
            raise RemoteProtocolError(MALFORMED_PACKET, f"SUBSCRIBE asks for QoS {options}; it can be 0, 1 or 2")
        else:
            entries.append(SubscribeEntry(topic_filter, options))
    return Subscribe(packet_id, entries, properties)


def _entry(topic_filter: bytes, options: int) -> SubscribeEntry:
    if options & 0xC0:  # [MQTT-3.8.3-5]
        raise RemoteProtocolError(MALFORMED_PACKET, "SUBSCRIBE has reserved bits set in its options")
    if options & 0x03 == 3:
        raise RemoteProtocolError(PROTOCOL_ERROR, "SUBSCRIBE asks for QoS 3")
    if options & 0x30 == 0x30:
        raise RemoteProtocolError(PROTOCOL_ERROR, "SUBSCRIBE asks for retain handling 3")
    if options & 0x04 and topic_filter.startswith(SHARE_PREFIX):  # [MQTT-3.8.3-4]
        raise RemoteProtocolError(PROTOCOL_ERROR, "A shared subscription can't be no-local")
    return SubscribeEntry(topic_filter, options & 3, options & 4 != 0, options & 8 != 0, options >> 4)


def decode_unsubscribe(
    version: int, body: bytes, properties_max: int = UNBOUNDED, filters_max: int = UNBOUNDED
) -> Unsubscribe:
    """Decode an UNSUBSCRIBE."""
    end = len(body)
    packet_id = _packet_id(body, 0, end)
    pos = 2
    properties: Properties | None = None
    if version == 5:
        start, pos = property_block(body, pos, end)
        if pos > start:
            properties = decode_properties(body, start, pos, IN_UNSUBSCRIBE, properties_max)
    if pos == end:  # [MQTT-3.10.3-2]
        raise RemoteProtocolError(PROTOCOL_ERROR, "UNSUBSCRIBE has no topic filter")
    topic_filters: list[bytes] = []
    while pos < end:
        topic_filter = _topic_filter(body, pos, end)  # [MQTT-3.10.3-1]
        pos += 2 + len(topic_filter)
        if len(topic_filters) >= filters_max:
            raise _too_many_filters(filters_max)
        topic_filters.append(topic_filter)
    return Unsubscribe(packet_id, topic_filters, properties)


def _decode_disconnect(version: int, body: bytes, properties_max: int) -> Packet:
    end = len(body)
    if end == 0:
        return p.Disconnect()
    if version != 5:
        raise _goes_on(p.DISCONNECT)
    reason = body[0]
    _check_reason(p.DISCONNECT, reason, reasons.IN_DISCONNECT)  # [MQTT-3.14.2-1]
    properties: Properties | None = None
    if end > 1:
        properties = _last_properties(p.DISCONNECT, body, 1, IN_DISCONNECT, properties_max)
    return p.Disconnect(reason, properties)


def _decode_connack(version: int, body: bytes) -> Packet:
    end = len(body)
    if end < 2 or (version != 5 and end > 2):
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNACK has a wrong length")
    reason = body[1]
    if body[0] > 1:  # [MQTT-3.2.2-1]
        raise RemoteProtocolError(MALFORMED_PACKET, "CONNACK has reserved flags set")
    _check_reason(p.CONNACK, reason, reasons.IN_CONNACK if version == 5 else reasons.IN_CONNACK_V3)  # [MQTT-3.2.2-8]
    if reason and body[0]:  # [MQTT-3.2.2-6], 3.1.1: [MQTT-3.2.2-4]
        raise RemoteProtocolError(PROTOCOL_ERROR, "CONNACK refuses and yet says that a session is present")
    properties: Properties | None = None
    if version == 5:
        start, stop = property_block(body, 2, end)
        if stop != end:
            raise _goes_on(p.CONNACK)
        properties = decode_properties(body, start, stop, IN_CONNACK)
    return p.Connack(body[0] == 1, reason, properties)


def _decode_suback(version: int, body: bytes) -> Packet:
    end = len(body)
    packet_id = _packet_id(body, 0, end)
    pos = 2
    properties: Properties | None = None
    if version == 5:
        start, pos = property_block(body, pos, end)
        if pos > start:
            properties = decode_properties(body, start, pos, IN_ACK)
    if pos == end:
        raise RemoteProtocolError(PROTOCOL_ERROR, "SUBACK has no reason code")
    codes = list(body[pos:])
    allowed = reasons.IN_SUBACK if version == 5 else reasons.IN_SUBACK_V3
    for code in codes:  # [MQTT-3.9.3-2]
        _check_reason(p.SUBACK, code, allowed)
    return p.Suback(packet_id, codes, properties)


def _decode_unsuback(version: int, body: bytes) -> Packet:
    end = len(body)
    packet_id = _packet_id(body, 0, end)
    if version != 5:
        if end > 2:
            raise _goes_on(p.UNSUBACK)
        return p.Unsuback(packet_id, [])
    start, pos = property_block(body, 2, end)
    properties: Properties | None = None
    if pos > start:
        properties = decode_properties(body, start, pos, IN_ACK)
    if pos == end:
        raise RemoteProtocolError(PROTOCOL_ERROR, "UNSUBACK has no reason code")
    codes = list(body[pos:])
    for code in codes:  # [MQTT-3.11.3-2]
        _check_reason(p.UNSUBACK, code, reasons.IN_UNSUBACK)
    return p.Unsuback(packet_id, codes, properties)


def _decode_auth(body: bytes, properties_max: int) -> Packet:
    if not body:
        return p.Auth()
    reason = body[0]
    _check_reason(p.AUTH, reason, reasons.IN_AUTH)  # [MQTT-3.15.2-1]
    properties = _last_properties(p.AUTH, body, 1, IN_AUTH, properties_max)
    if properties is None or properties.authentication_method is None:
        raise RemoteProtocolError(PROTOCOL_ERROR, "AUTH has no authentication method")
    return p.Auth(reason, properties)


def _packet_id(body: bytes, pos: int, end: int) -> int:
    packet_id = read_u16(body, pos, end)
    if packet_id == 0:  # [MQTT-2.2.1-3], [MQTT-2.2.1-4], 3.1.1: [MQTT-2.3.1-1]
        raise RemoteProtocolError(PROTOCOL_ERROR, "Packet identifier 0 is not allowed")
    return packet_id


def _topic_filter(body: bytes, pos: int, end: int) -> bytes:
    topic_filter = read_text(body, pos, end)  # [MQTT-3.8.3-1]
    if not topic_filter:  # [MQTT-4.7.3-1]
        raise RemoteProtocolError(TOPIC_FILTER_INVALID, "A topic filter is empty")
    return topic_filter


def _last_properties(kind: int, body: bytes, pos: int, allowed: int, properties_max: int) -> Properties | None:
    """Decode the properties that a packet ends with; None when there are none."""
    start, stop = property_block(body, pos, len(body))
    if stop != len(body):
        raise _goes_on(kind)
    return decode_properties(body, start, stop, allowed, properties_max) if stop > start else None


def _too_many_filters(most: int) -> RemoteProtocolError:
    return RemoteProtocolError(reasons.QUOTA_EXCEEDED, f"More than {most} topic filters in one packet; send several")


def _check_reason(kind: int, reason: int, allowed: frozenset[int]) -> None:
    if reason not in allowed:
        raise RemoteProtocolError(
            PROTOCOL_ERROR, f"{p.KIND_NAMES[kind]} has reason code 0x{reason:02X}, not allowed there"
        )


def _goes_on(kind: int) -> RemoteProtocolError:
    return RemoteProtocolError(MALFORMED_PACKET, f"{p.KIND_NAMES[kind]} goes on after its last field")
