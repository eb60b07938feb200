from __future__ import annotations

import pytest

from codec_cases import check_golden, hexed, refusal, wire_of, with_properties
from flockmq.mqtt.connect import protocol_level
from flockmq.mqtt.packets import Connect, Will

GOLDEN = {
    "3.1.1 bare": ("0004'MQTT' 04 02 003C 0001'a'", Connect(4, "a", True, 60)),
    "3.1.1 [MQTT-3.1.3-6] empty client id": ("0004'MQTT' 04 02 0000 0000", Connect(4)),
    "3.1.1 not clean": ("0004'MQTT' 04 00 0000 0001'a'", Connect(4, "a", False)),
    "3.1.1 [MQTT-3.1.3-1] everything, in order": (
        "0004'MQTT' 04 EE 000A 0001'a' 0003'w/t' 0002'by' 0001'u' 0001'p'",
        Connect(4, "a", True, 10, None, Will(b"w/t", b"by", 1, True), "u", b"p"),
    ),
    "3.1.1 [MQTT-3.1.2-19] user name only": ("0004'MQTT' 04 82 0000 0001'a' 0001'u'", Connect(4, "a", username="u")),
    "3.1.1 empty user name and password": (
        "0004'MQTT' 04 C2 0000 0001'a' 0000 0000",
        Connect(4, "a", username="", password=b""),
    ),
    "3.1 MQIsdp": ("0006'MQIsdp' 03 02 003C 0001'a'", Connect(3, "a", True, 60)),
    "5 bare": ("0004'MQTT' 05 02 003C 00 0001'a'", Connect(5, "a", True, 60)),
    "5 empty client id with a kept session": ("0004'MQTT' 05 00 0000 00 0000", Connect(5, "", False)),
    "5 password without user name": ("0004'MQTT' 05 42 0000 00 0001'a' 0001'p'", Connect(5, "a", password=b"p")),
    "5 binary password [MQTT-3.1.2-19]": (
        "0004'MQTT' 05 42 0000 00 0001'a' 0002 00FF",
        Connect(5, "a", password=b"\0\xff"),
    ),
    "5 [MQTT-1.5.4-3] a BOM stays": ("0004'MQTT' 05 02 0000 00 0004 EFBBBF'a'", Connect(5, "\ufeffa")),
    "5 [MQTT-3.1.3-1] properties": (
        (
            "0004'MQTT' 05 02 FFFF 29"
            " 11 0000000A 15 0001'm' 16 0001 FF 17 00 19 01 21 0014 22 0005 27 00000400"
            " 26 0001'k' 0001'v' 26 0001'k' 0000 0001'a'"
        ),
        Connect(
            5,
            "a",
            True,
            65_535,
            with_properties(
                session_expiry_s=10,
                authentication_method="m",
                authentication_data=b"\xff",
                request_problem_information=0,
                request_response_information=1,
                receive_maximum=20,
                topic_alias_maximum=5,
                maximum_packet_size=1024,
                user=[("k", "v"), ("k", "")],
            ),
        ),
    ),
    "5 [MQTT-3.1.3-1] will with properties": (
        (
            "0004'MQTT' 05 14 0000 00 0001'a'"
            " 1D 01 01 02 00000005 03 0001'c' 08 0001'r' 09 0001 FF 18 0000003C 26 0000 0000"
            " 0001'w' 0000"
        ),
        Connect(
            5,
            "a",
            False,
            0,
            None,
            Will(
                b"w",
                b"",
                2,
                False,
                with_properties(
                    payload_format=1,
                    message_expiry_s=5,
                    content_type="c",
                    response_topic=b"r",
                    correlation_data=b"\xff",
                    will_delay_s=60,
                    user=[("", "")],
                ),
            ),
        ),
    ),
}

REFUSED = {
    "empty": ("", 0x81),
    "name cut off": ("0004'MQ'", 0x81),
    "no level": ("0004'MQTT'", 0x81),
    "no flags": ("0004'MQTT' 04", 0x81),
    "no keep alive": ("0004'MQTT' 04 02 00", 0x81),
    "no client id [MQTT-3.1.3-3]": ("0004'MQTT' 04 02 0000", 0x81),
    "client id cut off": ("0004'MQTT' 04 02 0000 0002'a'", 0x81),
    "client id is not UTF-8 [MQTT-3.1.3-4]": ("0004'MQTT' 04 02 0000 0001 FF", 0x81),
    "client id holds U+0000": ("0004'MQTT' 04 02 0000 0001 00", 0x81),
    "other name [MQTT-3.1.2-1]": ("0004'HTTP' 04 02 0000 0001'a'", 0x84),
    "name in small letters [MQTT-3.1.2-1]": ("0004'mqtt' 04 02 0000 0001'a'", 0x84),
    "level 0 [MQTT-3.1.2-2]": ("0004'MQTT' 00 02 0000 0001'a'", 0x84),
    "level 3 under the name of 4 [MQTT-3.1.2-2]": ("0004'MQTT' 03 02 0000 0001'a'", 0x84),
    "level 6 [MQTT-3.1.2-2]": ("0004'MQTT' 06 02 0000 0001'a'", 0x84),
    "level 4 with the bridge bit": ("0004'MQTT' 84 02 0000 0001'a'", 0x84),
    "MQIsdp with level 4": ("0006'MQIsdp' 04 02 0000 0001'a'", 0x84),
    "3.1.1 reserved flag [MQTT-3.1.2-3]": ("0004'MQTT' 04 03 0000 0001'a'", 0x81),
    "5 reserved flag [MQTT-3.1.2-3]": ("0004'MQTT' 05 03 0000 00 0001'a'", 0x81),
    "3.1.1 will QoS without will [MQTT-3.1.2-13]": ("0004'MQTT' 04 0A 0000 0001'a'", 0x81),
    "5 will QoS without will [MQTT-3.1.2-11]": ("0004'MQTT' 05 12 0000 00 0001'a'", 0x81),
    "3.1.1 will retain without will [MQTT-3.1.2-15]": ("0004'MQTT' 04 22 0000 0001'a'", 0x81),
    "5 will retain without will [MQTT-3.1.2-13]": ("0004'MQTT' 05 22 0000 00 0001'a'", 0x81),
    "3.1.1 will QoS 3 [MQTT-3.1.2-14]": ("0004'MQTT' 04 1E 0000 0001'a' 0001'w' 0000", 0x81),
    "5 will QoS 3 [MQTT-3.1.2-12]": ("0004'MQTT' 05 1E 0000 00 0001'a' 00 0001'w' 0000", 0x81),
    "3.1.1 password without user name [MQTT-3.1.2-22]": ("0004'MQTT' 04 42 0000 0001'a' 0001'p'", 0x81),
    "3.1.1 empty client id, not clean [MQTT-3.1.3-8]": ("0004'MQTT' 04 00 0000 0000", 0x85),
    "3.1 empty client id": ("0006'MQIsdp' 03 02 0000 0000", 0x85),
    "will missing [MQTT-3.1.2-9]": ("0004'MQTT' 04 06 0000 0001'a'", 0x81),
    "will payload missing": ("0004'MQTT' 04 06 0000 0001'a' 0001'w'", 0x81),
    "will topic empty [MQTT-4.7.3-1]": ("0004'MQTT' 04 06 0000 0001'a' 0000 0000", 0x90),
    "will topic with wildcard": ("0004'MQTT' 04 06 0000 0001'a' 0001'#' 0000", 0x90),
    "will topic is not UTF-8 [MQTT-3.1.3-11]": ("0004'MQTT' 05 06 0000 00 0001'a' 00 0001 FF 0000", 0x81),
    "will with a property of CONNECT": ("0004'MQTT' 05 06 0000 00 0001'a' 05 11 00000001 0001'w' 0000", 0x81),
    "user name missing": ("0004'MQTT' 04 82 0000 0001'a'", 0x81),
    "user name is not UTF-8 [MQTT-3.1.3-12]": ("0004'MQTT' 05 82 0000 00 0001'a' 0001 FF", 0x81),
    "password missing": ("0004'MQTT' 04 C2 0000 0001'a' 0001'u'", 0x81),
    "user name without its flag [MQTT-3.1.2-16]": ("0004'MQTT' 04 02 0000 0001'a' 0001'u'", 0x81),
    "trailing byte": ("0004'MQTT' 05 02 0000 00 0001'a' 00", 0x81),
    "5 no property length [MQTT-2.2.2-1]": ("0004'MQTT' 05 02 0000", 0x81),
    "5 properties too long": ("0004'MQTT' 05 02 0000 7F 0001'a'", 0x81),
    "5 a property of CONNACK": ("0004'MQTT' 05 02 0000 03 13 0001 0001'a'", 0x81),
    "5 receive maximum 0": ("0004'MQTT' 05 02 0000 03 21 0000 0001'a'", 0x82),
    "5 maximum packet size 0": ("0004'MQTT' 05 02 0000 05 27 00000000 0001'a'", 0x82),
    "5 authentication data without method": ("0004'MQTT' 05 02 0000 04 16 0001 FF 0001'a'", 0x82),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    body, packet = GOLDEN[name]
    check_golden(packet.version, wire_of(0x10, body), packet)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_prefix_of_a_golden_packet_is_malformed(name: str) -> None:
    content = hexed(GOLDEN[name][0])
    for size in range(len(content)):
        assert refusal(0, bytes((0x10, size)) + content[:size]) == 0x81


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, reason = REFUSED[name]
    assert refusal(0, wire_of(0x10, body)) == reason


def test_the_refused_level_is_named() -> None:
    assert protocol_level(hexed("0004'MQTT' 06")) == 6
    assert protocol_level(hexed("0004'MQTT' 05 03")) == 5
    assert protocol_level(hexed("0006'MQIsdp' 03")) == 3
    assert protocol_level(hexed("0004'MQTT'")) == 0
    assert protocol_level(hexed("0006'MQIsdp'")) == 0
    assert protocol_level(b"GET / HTTP/1.1") == 0
    assert protocol_level(b"") == 0
