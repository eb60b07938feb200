from __future__ import annotations

import pytest

from codec_cases import check_golden, decode_wire, hexed, refusal, wire_of, with_properties
from flockmq.mqtt import packets as p
from flockmq.mqtt.packets import Ack, Publish, Subscribe, SubscribeEntry

WHY = with_properties(reason_string="why", user=[("k", "v")])
WHY_WIRE = "0D 1F 0003'why' 26 0001'k' 0001'v'"

# clause or section -> version, first byte, body, packet
GOLDEN: dict[str, tuple[int, int, str, p.Packet]] = {
    "3.1.1 CONNACK accepted": (4, 0x20, "00 00", p.Connack(False, 0)),
    "3.1.1 [MQTT-3.2.2-2] CONNACK session present": (4, 0x20, "01 00", p.Connack(True, 0)),
    "3.1.1 CONNACK refused": (4, 0x20, "00 05", p.Connack(False, 5)),
    "5 CONNACK accepted": (5, 0x20, "01 00 00", p.Connack(True, 0)),
    "5 CONNACK refused": (
        5,
        0x20,
        "00 87 06 1F 0003'why'",
        p.Connack(False, 0x87, with_properties(reason_string="why")),
    ),
    "5 CONNACK with all it may hold": (
        5,
        0x20,
        (
            "00 00 3C 11 00000001 12 0001'i' 13 0002 15 0001'm' 16 0001 FF 1A 0001'r' 1C 0001's' 1F 0001'w'"
            " 21 0003 22 0004 24 01 25 00 27 00000005 28 00 29 01 2A 00 26 0001'k' 0001'v'"
        ),
        p.Connack(
            False,
            0,
            with_properties(
                session_expiry_s=1,
                assigned_client_id="i",
                server_keep_alive_s=2,
                authentication_method="m",
                authentication_data=b"\xff",
                response_information="r",
                server_reference="s",
                reason_string="w",
                receive_maximum=3,
                topic_alias_maximum=4,
                maximum_qos=1,
                retain_available=0,
                maximum_packet_size=5,
                wildcard_subscription_available=0,
                subscription_identifiers_available=1,
                shared_subscription_available=0,
                user=[("k", "v")],
            ),
        ),
    ),
    "3.1.1 PUBLISH QoS 0": (4, 0x30, "0003'a/b' 'hello'", Publish(b"a/b", b"hello")),
    "3.1.1 PUBLISH without payload": (4, 0x31, "0001'a'", Publish(b"a", b"", 0, True)),
    "3.1.1 [MQTT-2.3.1-1] PUBLISH QoS 1": (4, 0x32, "0001'a' 0001 'x'", Publish(b"a", b"x", 1, packet_id=1)),
    "3.1.1 [MQTT-3.3.1-1] PUBLISH QoS 2 again, retained": (
        4,
        0x3D,
        "0001'a' FFFF 00FF",
        Publish(b"a", b"\x00\xff", 2, True, True, 65_535),
    ),
    "5 PUBLISH QoS 0": (5, 0x30, "0001'a' 00 'x'", Publish(b"a", b"x")),
    "5 PUBLISH by alias": (
        5,
        0x30,
        "0000 03 23 0001 'x'",
        Publish(b"", b"x", properties=with_properties(topic_alias=1)),
    ),
    "5 PUBLISH QoS 1 with all a client may send": (
        5,
        0x32,
        "0001'a' 0007 1E 01 01 02 0000000A 03 0001'c' 08 0001'r' 09 0002 00FF 23 0002 26 0001'k' 0001'v' 'x'",
        Publish(
            b"a",
            b"x",
            1,
            packet_id=7,
            properties=with_properties(
                payload_format=1,
                message_expiry_s=10,
                content_type="c",
                response_topic=b"r",
                correlation_data=b"\x00\xff",
                topic_alias=2,
                user=[("k", "v")],
            ),
        ),
    ),
    "5 [MQTT-3.3.4-4] PUBLISH of a server with several subscription ids": (
        5,
        0x30,
        "0001'a' 05 0B 01 0B 8001 'x'",
        Publish(b"a", b"x", properties=with_properties(subscription_identifiers=[1, 128])),
    ),
    "3.1.1 PUBACK": (4, 0x40, "0001", Ack(p.PUBACK, 1)),
    "3.1.1 PUBREC": (4, 0x50, "FFFF", Ack(p.PUBREC, 65_535)),
    "3.1.1 [MQTT-3.6.1-1] PUBREL": (4, 0x62, "0001", Ack(p.PUBREL, 1)),
    "3.1.1 PUBCOMP": (4, 0x70, "0001", Ack(p.PUBCOMP, 1)),
    "5 PUBACK short": (5, 0x40, "0001", Ack(p.PUBACK, 1)),
    "5 PUBACK with reason": (5, 0x40, "0001 10", Ack(p.PUBACK, 1, 0x10)),
    "5 PUBACK with properties": (5, 0x40, "0001 00" + WHY_WIRE, Ack(p.PUBACK, 1, 0, WHY)),
    "5 PUBREC with reason": (5, 0x50, "0001 97", Ack(p.PUBREC, 1, 0x97)),
    "5 PUBREL with properties": (5, 0x62, "0001 92" + WHY_WIRE, Ack(p.PUBREL, 1, 0x92, WHY)),
    "5 PUBCOMP with reason": (5, 0x70, "0001 92", Ack(p.PUBCOMP, 1, 0x92)),
    "3.1.1 [MQTT-3.8.1-1] SUBSCRIBE": (
        4,
        0x82,
        "000A 0003'a/+' 01 0001'#' 02 0001'c' 00",
        Subscribe(10, [SubscribeEntry(b"a/+", 1), SubscribeEntry(b"#", 2), SubscribeEntry(b"c")]),
    ),
    "5 SUBSCRIBE": (5, 0x82, "0001 00 0001'a' 00", Subscribe(1, [SubscribeEntry(b"a")])),
    "5 SUBSCRIBE with id and options": (
        5,
        0x82,
        "0001 0A 0B 8001 26 0001'k' 0001'v' 0001'a' 1D 0001'b' 22 000A'$share/g/a' 0A",
        Subscribe(
            1,
            [
                SubscribeEntry(b"a", 1, True, True, 1),
                SubscribeEntry(b"b", 2, False, False, 2),
                SubscribeEntry(b"$share/g/a", 2, False, True, 0),
            ],
            with_properties(subscription_identifiers=[128], user=[("k", "v")]),
        ),
    ),
    "3.1.1 SUBACK": (4, 0x90, "000A 00 01 02 80", p.Suback(10, [0, 1, 2, 0x80])),
    "5 SUBACK": (5, 0x90, "000A 00 00 87 A2", p.Suback(10, [0, 0x87, 0xA2])),
    "5 SUBACK with properties": (5, 0x90, "0001" + WHY_WIRE + "02", p.Suback(1, [2], WHY)),
    "3.1.1 [MQTT-3.10.1-1] UNSUBSCRIBE": (4, 0xA2, "0001 0003'a/+' 0001'b'", p.Unsubscribe(1, [b"a/+", b"b"])),
    "5 UNSUBSCRIBE": (5, 0xA2, "0001 00 0001'#'", p.Unsubscribe(1, [b"#"])),
    "5 UNSUBSCRIBE with properties": (
        5,
        0xA2,
        "0001 07 26 0001'k' 0001'v' 0001'#'",
        p.Unsubscribe(1, [b"#"], with_properties(user=[("k", "v")])),
    ),
    "3.1.1 UNSUBACK": (4, 0xB0, "0001", p.Unsuback(1, [])),
    "5 UNSUBACK": (5, 0xB0, "0001 00 00 11", p.Unsuback(1, [0, 0x11])),
    "5 UNSUBACK with properties": (5, 0xB0, "0001" + WHY_WIRE + "8F", p.Unsuback(1, [0x8F], WHY)),
    "3.1.1 PINGREQ": (4, 0xC0, "", p.Pingreq()),
    "5 PINGREQ": (5, 0xC0, "", p.Pingreq()),
    "3.1.1 PINGRESP": (4, 0xD0, "", p.Pingresp()),
    "5 PINGRESP": (5, 0xD0, "", p.Pingresp()),
    "3.1.1 DISCONNECT": (4, 0xE0, "", p.Disconnect()),
    "5 DISCONNECT short": (5, 0xE0, "", p.Disconnect()),
    "5 DISCONNECT with reason": (5, 0xE0, "04", p.Disconnect(4)),
    "5 DISCONNECT with properties": (
        5,
        0xE0,
        "9D 12 11 00000001 1C 0001's' 1F 0001'w' 26 0000 0000",
        p.Disconnect(
            0x9D, with_properties(session_expiry_s=1, server_reference="s", reason_string="w", user=[("", "")])
        ),
    ),
    "5 AUTH short": (5, 0xF0, "", p.Auth()),
    "5 AUTH": (
        5,
        0xF0,
        "18 08 15 0001'm' 16 0001 FF",
        p.Auth(0x18, with_properties(authentication_method="m", authentication_data=b"\xff")),
    ),
    "5 AUTH with all": (
        5,
        0xF0,
        "19 10 15 0001'm' 16 0000 1F 0001'w' 26 0000 0000",
        p.Auth(
            0x19,
            with_properties(authentication_method="m", authentication_data=b"", reason_string="w", user=[("", "")]),
        ),
    ),
}

# What is right to receive though we would write it shorter: version, first byte, body, packet
LONG_FORMS: dict[str, tuple[int, int, str, p.Packet]] = {
    "PUBACK, reason 0 written": (5, 0x40, "0001 00", Ack(p.PUBACK, 1)),
    "PUBACK, empty properties": (5, 0x40, "0001 00 00", Ack(p.PUBACK, 1)),
    "DISCONNECT, reason 0 written": (5, 0xE0, "00", p.Disconnect()),
    "DISCONNECT, empty properties": (5, 0xE0, "00 00", p.Disconnect()),
}

# clause or fault -> version, first byte, body, reason code
REFUSED: dict[str, tuple[int, int, str, int]] = {
    "type 0": (5, 0x00, "", 0x81),
    "3.1.1 type 15": (4, 0xF0, "", 0x81),
    "CONNECT flags [MQTT-2.1.3-1]": (5, 0x11, "", 0x81),
    "CONNACK flags": (5, 0x21, "00 00 00", 0x81),
    "PUBACK flags": (4, 0x42, "0001", 0x81),
    "PUBREC flags": (4, 0x58, "0001", 0x81),
    "PUBREL flags [MQTT-3.6.1-1]": (4, 0x60, "0001", 0x81),
    "PUBREL flags, more [MQTT-3.6.1-1]": (5, 0x63, "0001", 0x81),
    "PUBCOMP flags": (5, 0x71, "0001", 0x81),
    "SUBSCRIBE flags [MQTT-3.8.1-1]": (4, 0x80, "0001 0001'a' 00", 0x81),
    "SUBACK flags": (5, 0x91, "0001 00 00", 0x81),
    "UNSUBSCRIBE flags [MQTT-3.10.1-1]": (4, 0xA0, "0001 0001'a'", 0x81),
    "UNSUBACK flags": (5, 0xB1, "0001 00 00", 0x81),
    "PINGREQ flags": (4, 0xC1, "", 0x81),
    "PINGRESP flags": (4, 0xD8, "", 0x81),
    "DISCONNECT flags [MQTT-3.14.1-1]": (4, 0xE1, "", 0x81),
    "AUTH flags [MQTT-3.15.1-1]": (5, 0xF1, "", 0x81),
    "CONNACK empty": (5, 0x20, "", 0x81),
    "CONNACK too short": (4, 0x20, "00", 0x81),
    "3.1.1 CONNACK too long": (4, 0x20, "00 00 00", 0x81),
    "5 CONNACK without property length": (5, 0x20, "00 00", 0x81),
    "5 CONNACK trailing byte": (5, 0x20, "00 00 00 00", 0x81),
    "CONNACK reserved flag [MQTT-3.2.2-1]": (4, 0x20, "02 00", 0x81),
    "3.1.1 CONNACK code 6": (4, 0x20, "00 06", 0x82),
    "5 CONNACK code [MQTT-3.2.2-8]": (5, 0x20, "00 8E 00", 0x82),
    "3.1.1 CONNACK refuses a present session [MQTT-3.2.2-4]": (4, 0x20, "01 05", 0x82),
    "5 CONNACK refuses a present session [MQTT-3.2.2-6]": (5, 0x20, "01 87 00", 0x82),
    "PUBLISH QoS 3 [MQTT-3.3.1-4]": (5, 0x36, "0001'a' 0001 00", 0x81),
    "PUBLISH QoS 0 with DUP [MQTT-3.3.1-2]": (4, 0x38, "0001'a'", 0x81),
    "PUBLISH empty": (4, 0x30, "", 0x81),
    "PUBLISH topic cut off": (4, 0x30, "0002'a'", 0x81),
    "PUBLISH topic with + [MQTT-3.3.2-2]": (4, 0x30, "0003'a/+'", 0x90),
    "PUBLISH topic with # [MQTT-3.3.2-2]": (5, 0x30, "0001'#' 00", 0x90),
    "PUBLISH topic is not UTF-8 [MQTT-3.3.2-1]": (4, 0x30, "0001 FF", 0x81),
    "PUBLISH topic with U+0000 [MQTT-4.7.3-2]": (4, 0x30, "0001 00", 0x81),
    "PUBLISH topic with a surrogate [MQTT-1.5.4-1]": (5, 0x30, "0003 EDA080 00", 0x81),
    "3.1.1 PUBLISH without topic [MQTT-4.7.3-1]": (4, 0x30, "0000", 0x82),
    "5 PUBLISH without topic and alias": (5, 0x30, "0000 00", 0x82),
    "5 PUBLISH without topic and alias, but other properties": (5, 0x30, "0000 02 01 00", 0x82),
    "5 PUBLISH alias 0 [MQTT-3.3.2-8]": (5, 0x30, "0001'a' 03 23 0000", 0x94),
    "PUBLISH packet id 0 [MQTT-2.2.1-3]": (5, 0x32, "0001'a' 0000 00", 0x82),
    "3.1.1 PUBLISH packet id 0 [MQTT-2.3.1-1]": (4, 0x34, "0001'a' 0000", 0x82),
    "PUBLISH packet id cut off": (4, 0x32, "0001'a' 00", 0x81),
    "5 PUBLISH without property length [MQTT-2.2.2-1]": (5, 0x30, "0001'a'", 0x81),
    "5 PUBLISH properties too long": (5, 0x30, "0001'a' 04 23 0001", 0x81),
    "5 PUBLISH property length of five bytes": (5, 0x30, "0001'a' FFFFFFFF01", 0x81),
    "5 PUBLISH with a property of CONNECT": (5, 0x30, "0001'a' 03 21 0001", 0x81),
    "5 PUBLISH payload format 2": (5, 0x30, "0001'a' 02 01 02", 0x82),
    "5 PUBLISH response topic with wildcard [MQTT-3.3.2-14]": (5, 0x30, "0001'a' 04 08 0001'#'", 0x82),
    "PUBACK empty": (4, 0x40, "", 0x81),
    "PUBACK cut off": (4, 0x40, "00", 0x81),
    "PUBACK packet id 0": (4, 0x40, "0000", 0x82),
    "3.1.1 PUBACK too long": (4, 0x40, "0001 00", 0x81),
    "5 PUBACK code [MQTT-3.4.2-1]": (5, 0x40, "0001 92", 0x82),
    "5 PUBREC code [MQTT-3.5.2-1]": (5, 0x50, "0001 01", 0x82),
    "5 PUBREL code [MQTT-3.6.2-1]": (5, 0x62, "0001 10", 0x82),
    "5 PUBCOMP code [MQTT-3.7.2-1]": (5, 0x70, "0001 80", 0x82),
    "5 PUBACK trailing byte": (5, 0x40, "0001 00 00 00", 0x81),
    "5 PUBACK properties too long": (5, 0x40, "0001 00 01", 0x81),
    "5 PUBACK with a property of PUBLISH": (5, 0x40, "0001 00 02 01 00", 0x81),
    "5 PUBACK reason string twice": (5, 0x40, "0001 00 06 1F 0000 1F 0000", 0x82),
    "SUBSCRIBE empty": (4, 0x82, "", 0x81),
    "SUBSCRIBE packet id 0 [MQTT-2.2.1-3]": (5, 0x82, "0000 00 0001'a' 00", 0x82),
    "3.1.1 SUBSCRIBE without filter [MQTT-3.8.3-3]": (4, 0x82, "0001", 0x82),
    "5 SUBSCRIBE without filter [MQTT-3.8.3-2]": (5, 0x82, "0001 00", 0x82),
    "SUBSCRIBE without options": (4, 0x82, "0001 0001'a'", 0x81),
    "SUBSCRIBE second filter cut off": (4, 0x82, "0001 0001'a' 00 0002'b'", 0x81),
    "SUBSCRIBE empty filter [MQTT-4.7.3-1]": (4, 0x82, "0001 0000 00", 0x8F),
    "SUBSCRIBE filter is not UTF-8 [MQTT-3.8.3-1]": (5, 0x82, "0001 00 0001 FF 00", 0x81),
    "SUBSCRIBE filter with U+0000 [MQTT-4.7.3-2]": (5, 0x82, "0001 00 0001 00 00", 0x81),
    "3.1.1 SUBSCRIBE QoS 3 [MQTT-3.8.3-4]": (4, 0x82, "0001 0001'a' 03", 0x81),
    "3.1.1 SUBSCRIBE reserved bits [MQTT-3.8.3-4]": (4, 0x82, "0001 0001'a' 04", 0x81),
    "5 SUBSCRIBE QoS 3": (5, 0x82, "0001 00 0001'a' 03", 0x82),
    "5 SUBSCRIBE retain handling 3": (5, 0x82, "0001 00 0001'a' 30", 0x82),
    "5 SUBSCRIBE reserved bit 6 [MQTT-3.8.3-5]": (5, 0x82, "0001 00 0001'a' 40", 0x81),
    "5 SUBSCRIBE reserved bit 7 [MQTT-3.8.3-5]": (5, 0x82, "0001 00 0001'a' 80", 0x81),
    "5 SUBSCRIBE shared and no-local [MQTT-3.8.3-4]": (5, 0x82, "0001 00 000A'$share/g/a' 04", 0x82),
    "5 SUBSCRIBE id 0": (5, 0x82, "0001 02 0B 00 0001'a' 00", 0x82),
    "5 SUBSCRIBE two ids": (5, 0x82, "0001 04 0B 01 0B 02 0001'a' 00", 0x82),
    "5 SUBSCRIBE with a reason string": (5, 0x82, "0001 03 1F 0000 0001'a' 00", 0x81),
    "SUBACK without codes": (5, 0x90, "0001 00", 0x82),
    "3.1.1 SUBACK code [MQTT-3.9.3-2]": (4, 0x90, "0001 03", 0x82),
    "5 SUBACK code [MQTT-3.9.3-2]": (5, 0x90, "0001 00 11", 0x82),
    "UNSUBSCRIBE without filter [MQTT-3.10.3-2]": (4, 0xA2, "0001", 0x82),
    "5 UNSUBSCRIBE without filter [MQTT-3.10.3-2]": (5, 0xA2, "0001 00", 0x82),
    "UNSUBSCRIBE packet id 0": (4, 0xA2, "0000 0001'a'", 0x82),
    "UNSUBSCRIBE filter is not UTF-8 [MQTT-3.10.3-1]": (4, 0xA2, "0001 0001 FF", 0x81),
    "UNSUBSCRIBE filter empty [MQTT-4.7.3-1]": (4, 0xA2, "0001 0000", 0x8F),
    "UNSUBSCRIBE filter cut off": (4, 0xA2, "0001 0002'a'", 0x81),
    "5 UNSUBSCRIBE with a subscription id": (5, 0xA2, "0001 02 0B 01 0001'a'", 0x81),
    "3.1.1 UNSUBACK too long": (4, 0xB0, "0001 00", 0x81),
    "5 UNSUBACK without codes": (5, 0xB0, "0001 00", 0x82),
    "5 UNSUBACK code [MQTT-3.11.3-2]": (5, 0xB0, "0001 00 01", 0x82),
    "PINGREQ with a body": (4, 0xC0, "00", 0x81),
    "PINGRESP with a body": (5, 0xD0, "00", 0x81),
    "3.1.1 DISCONNECT with a body": (4, 0xE0, "00", 0x81),
    "5 DISCONNECT code [MQTT-3.14.2-1]": (5, 0xE0, "01", 0x82),
    "5 DISCONNECT trailing byte": (5, 0xE0, "00 00 00", 0x81),
    "5 DISCONNECT with a property of CONNECT": (5, 0xE0, "00 03 21 0001", 0x81),
    "5 AUTH code [MQTT-3.15.2-1]": (5, 0xF0, "80 00", 0x82),
    "5 AUTH without property length": (5, 0xF0, "18", 0x81),
    "5 AUTH without method": (5, 0xF0, "18 00", 0x82),
    "5 AUTH with data but no method": (5, 0xF0, "18 04 16 0001 FF", 0x82),
    "5 AUTH trailing byte": (5, 0xF0, "18 04 15 0001'm' 00", 0x81),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    version, first, body, packet = GOLDEN[name]
    check_golden(version, wire_of(first, body), packet)


@pytest.mark.parametrize("name", LONG_FORMS)
def test_long_forms(name: str) -> None:
    version, first, body, packet = LONG_FORMS[name]
    assert decode_wire(version, wire_of(first, body)) == packet


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    version, first, body, reason = REFUSED[name]
    assert refusal(version, wire_of(first, body)) == reason


def test_where_wildcards_stand_is_left_to_the_broker() -> None:
    packet = decode_wire(5, wire_of(0x82, "0001 00 0002'a#' 00"))
    assert packet == Subscribe(1, [SubscribeEntry(b"a#")])


def test_a_long_packet() -> None:
    wire = hexed("30 83 80 01 0001'a'") + bytes(16_384)
    check_golden(4, wire, Publish(b"a", bytes(16_384)))
