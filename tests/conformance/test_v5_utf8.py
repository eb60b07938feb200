"""MQTT 5, section 1.5.4: strings, wherever a client can send one."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with, refused_with
from conformance.clauses import clause
from conformance.wire import (
    AUTH_METHOD,
    CONTENT_TYPE,
    REASON_STRING,
    RESPONSE_TOPIC,
    USER_PROPERTY,
    ack,
    connect,
    field,
    packet,
    props,
    publish,
    subscribe,
    unsubscribe,
)
from flockmq.testing.harness import BrokerHarness

BAD = {
    "high surrogate": b"\xed\xa0\x80",
    "low surrogate": b"\xed\xbf\xbf",
    "surrogate pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "overlong /": b"\xc0\xaf",
    "overlong U+0000": b"\xc0\x80",
    "overlong, three bytes": b"\xe0\x80\xaf",
    "overlong, four bytes": b"\xf0\x80\x80\xaf",
    "lone continuation": b"\x80",
    "cut off, two bytes": b"\xc3",
    "cut off, three bytes": b"\xe2\x82",
    "cut off, four bytes": b"\xf0\x9f\x98",
    "above U+10FFFF": b"\xf4\x90\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "FE": b"\xfe",
    "FF": b"\xff",
    "Latin-1": b"caf\xe9",
    "U+0000": b"\x00",
    "U+0000 inside": b"a\x00b",
}


@clause("5.0", "MQTT-1.5.4-1", "MQTT-1.5.4-2")
@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_mqtt5_1_5_4_1_ill_formed_in_connect(harness: BrokerHarness, text: bytes) -> None:
    """In client id, will topic, user name and properties of CONNECT."""
    for data in (
        connect(text),
        connect(flags=0x06, rest=b"\0" + field(text) + field(b"x")),
        connect(flags=0x82, rest=field(text)),
        connect(properties=props((AUTH_METHOD, text))),
        connect(properties=props((USER_PROPERTY, (text, b"v")))),
        connect(flags=0x06, rest=props((CONTENT_TYPE, text)) + field(b"w") + field(b"x")),
        connect(flags=0x06, rest=props((RESPONSE_TOPIC, text)) + field(b"w") + field(b"x")),
    ):
        client = harness.raw()
        client.send(data)
        assert refused_with(client) in {None, 0x81, 0x85}
    assert not harness.broker.sessions


@clause("5.0", "MQTT-1.5.4-1", "MQTT-1.5.4-2", "MQTT-1.5.7-1")
@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_mqtt5_1_5_4_1_ill_formed_in_packets(harness: BrokerHarness, text: bytes) -> None:
    """In topics, filters and every property that is a string, both halves of a pair included."""
    for data in (
        publish(text, b"x"),
        publish(text, b"x", qos=1, pid=1),
        publish(b"a", properties=props((RESPONSE_TOPIC, text))),
        publish(b"a", properties=props((CONTENT_TYPE, text))),
        publish(b"a", properties=props((USER_PROPERTY, (text, b"v")))),
        publish(b"a", properties=props((USER_PROPERTY, (b"k", text)))),
        subscribe(1, (text, 0)),
        subscribe(1, (b"a", 0), properties=props((USER_PROPERTY, (b"k", text)))),
        subscribe(1, (b"$share/" + text + b"/a", 0)),
        unsubscribe(1, text),
        unsubscribe(1, b"a", properties=props((USER_PROPERTY, (text, b"v")))),
        ack(0x40, 1, b"\0" + props((REASON_STRING, text))),
        ack(0x62, 1, b"\0" + props((USER_PROPERTY, (b"k", text)))),
        packet(0xE0, b"\0" + props((REASON_STRING, text))),
    ):
        client = harness.client("c")
        client.send(data)
        assert closed_with(client) == 0x81, data.hex(" ")


GOOD = {
    "BOM first": b"\xef\xbb\xbfa",
    "BOM alone": b"\xef\xbb\xbf",
    "BOM inside": b"a\xef\xbb\xbfb",
    "two bytes": "é".encode(),
    "three bytes": "€".encode(),
    "four bytes": "😀".encode(),
    "last before surrogates": b"\xed\x9f\xbf",
    "first after surrogates": b"\xee\x80\x80",
    "U+10FFFF": b"\xf4\x8f\xbf\xbf",
    "right to left": "שלום".encode(),
    "composed later": "e\u0301".encode(),
}


@clause("5.0", "MQTT-1.5.4-1", "MQTT-1.5.4-3")
@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_mqtt5_1_5_4_3_well_formed(harness: BrokerHarness, text: bytes) -> None:
    """Every other string goes through byte for byte, a byte order mark included: never stripped, never added."""
    client = harness.client(text.decode())
    assert text.decode() in harness.broker.sessions
    assert client.subscribe(text) == 0
    block = props((CONTENT_TYPE, text), (RESPONSE_TOPIC, text), (USER_PROPERTY, (text, text)))
    client.send(publish(text, b"x", properties=block))
    assert client.received_bytes() == publish(text, b"x", properties=block)


@clause("5.0", "MQTT-1.5.4-3")
def test_mqtt5_1_5_4_3_bom_makes_another_topic(harness: BrokerHarness) -> None:
    """A topic with a byte order mark is another topic than the one without."""
    client = harness.client("c")
    client.subscribe(b"\xef\xbb\xbfa")
    client.publish(b"a", b"x")
    assert client.messages() == []
    client.publish(b"\xef\xbb\xbfa", b"x")
    assert client.topics() == [b"\xef\xbb\xbfa"]


@clause("5.0", "MQTT-1.5.4-2")
def test_mqtt5_1_5_4_2_null_character(harness: BrokerHarness) -> None:
    """U+0000 is in no string, neither in topics nor in properties; in payloads it is fine."""
    for data in (
        publish(b"a\0b", b"x"),
        subscribe(1, (b"\0", 0)),
        publish(b"a", properties=props((CONTENT_TYPE, b"\0"))),
    ):
        client = harness.client("c")
        client.send(data)
        assert closed_with(client) == 0x81
    client = harness.client("c")
    client.subscribe(b"a")
    client.publish(b"a", b"\0")
    assert client.payloads() == [b"\0"]


@clause("5.0", "MQTT-1.5.7-1")
@pytest.mark.parametrize("pair", [(b"\xff", b"v"), (b"k", b"\xff"), (b"\0", b"v"), (b"k", b"\0")])
def test_mqtt5_1_5_7_1_string_pairs(harness: BrokerHarness, pair: tuple[bytes, bytes]) -> None:
    """Name and value of a user property are both checked."""
    client = harness.client("c")
    client.send(publish(b"a", properties=props((USER_PROPERTY, pair))))
    assert closed_with(client) == 0x81
