from __future__ import annotations

import pytest

from codec_cases import hexed, with_properties
from flockmq.errors import RemoteProtocolError
from flockmq.mqtt import properties as p
from flockmq.mqtt.properties import Properties, decode_properties, encode_properties, property_block

# Identifier and value on the wire, attribute, value: all of table 2-4.
SINGLE = [
    ("01 01", "payload_format", 1),
    ("02 0000000A", "message_expiry_s", 10),
    ("03 0004'text'", "content_type", "text"),
    ("08 0003'a/b'", "response_topic", b"a/b"),
    ("09 0002 00FF", "correlation_data", b"\x00\xff"),
    ("11 FFFFFFFF", "session_expiry_s", 0xFFFFFFFF),
    ("12 0002'id'", "assigned_client_id", "id"),
    ("13 003C", "server_keep_alive_s", 60),
    ("15 0005'SCRAM'", "authentication_method", "SCRAM"),
    ("16 0002 00FF", "authentication_data", b"\x00\xff"),
    ("17 00", "request_problem_information", 0),
    ("18 00000005", "will_delay_s", 5),
    ("19 01", "request_response_information", 1),
    ("1A 0002'r/'", "response_information", "r/"),
    ("1C 0001'h'", "server_reference", "h"),
    ("1F 0003'why'", "reason_string", "why"),
    ("21 0001", "receive_maximum", 1),
    ("22 0000", "topic_alias_maximum", 0),
    ("23 FFFF", "topic_alias", 0xFFFF),
    ("24 01", "maximum_qos", 1),
    ("25 00", "retain_available", 0),
    ("27 00000001", "maximum_packet_size", 1),
    ("28 00", "wildcard_subscription_available", 0),
    ("29 01", "subscription_identifiers_available", 1),
    ("2A 01", "shared_subscription_available", 1),
    ("0B FFFFFF7F", "subscription_identifiers", [268_435_455]),
    ("26 0001'k' 0000", "user", [("k", "")]),
]

EVERYTHING = sum(1 << hexed(wire)[0] for wire, _, _ in SINGLE)

# Section of each packet in the specification -> the identifiers it lists.
PLACES = [
    (p.IN_CONNECT, "11 15 16 17 19 21 22 26 27"),
    (p.IN_WILL, "01 02 03 08 09 18 26"),
    (p.IN_CONNACK, "11 12 13 15 16 1A 1C 1F 21 22 24 25 26 27 28 29 2A"),
    (p.IN_PUBLISH, "01 02 03 08 09 0B 23 26"),
    (p.IN_ACK, "1F 26"),
    (p.IN_SUBSCRIBE, "0B 26"),
    (p.IN_UNSUBSCRIBE, "26"),
    (p.IN_DISCONNECT, "11 1C 1F 26"),
    (p.IN_AUTH, "15 16 1F 26"),
]


def decode(block: bytes, allowed: int = EVERYTHING) -> Properties:
    return decode_properties(b"\xff" + block + b"\xff", 1, 1 + len(block), allowed)


def refusal(block: bytes, allowed: int = EVERYTHING) -> int:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(block, allowed)
    return caught.value.reason_code


@pytest.mark.parametrize(("wire", "attribute", "value"), SINGLE)
def test_each_property(wire: str, attribute: str, value: object) -> None:
    block = hexed(wire)
    found = decode(block)
    assert found.present() == {attribute: value}
    assert encode_properties(found) == bytes((len(block),)) + block


@pytest.mark.parametrize(("wire", "attribute", "value"), SINGLE)
def test_each_property_belongs_to_its_packets_only(wire: str, attribute: str, value: object) -> None:
    block = hexed(wire)
    for allowed, listed in PLACES:
        if block[0] in bytes.fromhex(listed):
            assert decode(block, allowed).present() == {attribute: value}
        else:
            assert refusal(block, allowed) == 0x81  # section 2.2.2.2


@pytest.mark.parametrize(("wire", "attribute", "value"), SINGLE)
def test_each_property_cut_off(wire: str, attribute: str, value: object) -> None:
    block = hexed(wire)
    for size in range(1, len(block)):
        assert refusal(block[:size]) == 0x81


@pytest.mark.parametrize(("wire", "attribute", "value"), SINGLE)
def test_each_property_twice(wire: str, attribute: str, value: object) -> None:
    block = hexed(wire)
    if attribute == "user":
        assert decode(block + block).user == [("k", ""), ("k", "")]  # [MQTT-3.3.2-18]: may repeat, in order
    elif attribute == "subscription_identifiers":
        assert decode(block + block, p.IN_PUBLISH).subscription_identifiers == [268_435_455, 268_435_455]
        assert refusal(block + block, p.IN_SUBSCRIBE) == 0x82
    else:
        assert refusal(block + block) == 0x82


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("01 02", 0x82),
        ("17 02", 0x82),
        ("19 02", 0x82),
        ("24 02", 0x82),
        ("25 FF", 0x82),
        ("28 02", 0x82),
        ("29 02", 0x82),
        ("2A 02", 0x82),
        ("21 0000", 0x82),
        ("27 00000000", 0x82),
        ("23 0000", 0x94),  # [MQTT-3.3.2-8]
        ("0B 00", 0x82),
        ("0B 8000", 0x81),  # [MQTT-1.5.5-1]
        ("0B FFFFFFFF01", 0x81),
        ("08 0000", 0x82),
        ("08 0003'a/+'", 0x82),  # [MQTT-3.3.2-14]
        ("08 0001'#'", 0x82),
        ("03 0001 FF", 0x81),  # [MQTT-1.5.4-1]
        ("1F 0001 00", 0x81),  # [MQTT-1.5.4-2]
        ("26 0001 FF 0000", 0x81),  # [MQTT-1.5.7-1]
        ("26 0000 0001 00", 0x81),
        ("26 0003 EDA080 0000", 0x81),
        ("00", 0x81),
        ("04 00", 0x81),
        ("2B 00", 0x81),
        ("7F 00", 0x81),
        ("FF 00", 0x81),
        ("8100 01", 0x81),
    ],
)
def test_values_that_can_not_be(wire: str, reason: int) -> None:
    assert refusal(hexed(wire)) == reason


def test_user_properties_keep_their_order_and_repeats() -> None:  # [MQTT-3.1.3-10], [MQTT-3.3.2-18]
    found = decode(hexed("26 0001'b' 0001'1' 26 0001'a' 0001'2' 26 0001'b' 0001'1'"))
    assert found.user == [("b", "1"), ("a", "2"), ("b", "1")]


def test_the_block_and_its_length() -> None:
    assert property_block(b"\xff\x02ab", 1, 4) == (2, 4)
    assert property_block(b"\x00", 0, 1) == (1, 1)
    assert encode_properties(None) == b"\x00"
    assert encode_properties(Properties()) == b"\x00"
    for wire in (b"", b"\x80", b"\x02a", b"\x80\x00"):
        with pytest.raises(RemoteProtocolError) as caught:
            property_block(wire, 0, len(wire))
        assert caught.value.reason_code == 0x81


def test_equality_and_repr() -> None:
    one = with_properties(content_type="json", user=[("a", "b")])
    assert one == with_properties(content_type="json", user=[("a", "b")])
    assert one != with_properties(content_type="json")
    assert one != "json"
    assert repr(one) == "Properties(content_type='json', user=[('a', 'b')])"
    with pytest.raises(TypeError):
        hash(one)


def test_repr_keeps_authentication_data_secret() -> None:
    assert "hunter2" not in repr(with_properties(authentication_data=b"hunter2"))


# --- PUBLISH in place ---


@pytest.mark.parametrize(
    ("wire", "found"),
    [
        ("", 0),
        ("01 01", p.HAS_PAYLOAD_FORMAT),
        ("02 0000000A", p.HAS_EXPIRY),
        ("03 0001't'", p.HAS_CONTENT_TYPE),
        ("08 0001't'", p.HAS_RESPONSE_TOPIC),
        ("09 0001 FF", p.HAS_CORRELATION_DATA),
        ("23 0001", p.HAS_ALIAS),
        ("26 0000 0000 26 0000 0000", p.HAS_USER),
        ("26 0001'k' 0001'v' 23 0001 02 00000000", p.HAS_USER | p.HAS_ALIAS | p.HAS_EXPIRY),
    ],
)
def test_scan_tells_what_is_there(wire: str, found: int) -> None:
    block = hexed(wire)
    assert p.scan_publish_properties(b"\xff" + block + b"\xff", 1, 1 + len(block)) == found


def test_what_needs_a_decision() -> None:
    assert p.PUBLISH_NEEDS_DECISION == p.HAS_ALIAS | p.HAS_EXPIRY


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("0B 01", 0x82),  # [MQTT-3.3.4-6]
        ("23 0000", 0x94),
        ("01 02", 0x82),
        ("23 0001 23 0001", 0x82),
        ("09 0002 FF", 0x81),
        ("09 00", 0x81),
        ("11 00000000", 0x81),
        ("80", 0x81),
        ("08 0001'+'", 0x82),
        ("26 0001'k'", 0x81),
        ("26 0001 FF 0000", 0x81),
    ],
)
def test_scan_refuses(wire: str, reason: int) -> None:
    block = hexed(wire)
    with pytest.raises(RemoteProtocolError) as caught:
        p.scan_publish_properties(block + b"\x00" * 8, 0, len(block))
    assert caught.value.reason_code == reason


@pytest.mark.parametrize(
    ("wire", "alias", "expiry_s", "rest"),
    [
        ("", 0, -1, ""),
        ("23 0007", 7, -1, ""),
        ("02 00000000", 0, 0, ""),
        ("26 0001'k' 0001'v'", 0, -1, "26 0001'k' 0001'v'"),
        ("26 0001'k' 0003 230001 01 00", 0, -1, "26 0001'k' 0003 230001 01 00"),
        ("01 01 23 0102 09 0002 2302 02 00000009 26 0000 0000", 0x102, 9, "01 01 09 0002 2302 26 0000 0000"),
        ("02 FFFFFFFF 03 0001't' 08 0001'r' 23 0001", 1, 0xFFFFFFFF, "03 0001't' 08 0001'r'"),
    ],
)
def test_split_takes_alias_and_expiry_out(wire: str, alias: int, expiry_s: int, rest: str) -> None:
    block = hexed(wire)
    assert p.split_publish_properties(b"\x23" + block + b"\x23", 1, 1 + len(block)) == (alias, expiry_s, hexed(rest))
