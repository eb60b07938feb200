"""MQTT 5, section 3.3: PUBLISH; retained messages, message expiry and what is forwarded."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with
from conformance.clauses import clause
from conformance.wire import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    TOPIC_ALIAS,
    USER_PROPERTY,
    ack,
    hexa,
    props,
    publish,
    subscribe,
)
from flockmq.mqtt.packets import PUBACK, PUBREC, Publish
from flockmq.testing.harness import BrokerHarness, make_properties

# --- answers ---


@clause("5.0", "MQTT-3.3.4-1", "MQTT-4.3.2-4", "MQTT-4.3.3-8", "MQTT-2.2.1-5")
def test_mqtt5_3_3_4_1_answer_by_qos(harness: BrokerHarness) -> None:
    """QoS 0: nothing; QoS 1: PUBACK; QoS 2: PUBREC, then PUBCOMP; each with the publisher's identifier."""
    harness.client("s").subscribe(b"a")
    client = harness.client("c")
    client.send(publish(b"a", b"x"))
    assert client.received_bytes() == b""
    client.send(publish(b"a", b"x", qos=1, pid=0x1234))
    assert client.received_bytes() == hexa("40 02 1234")
    client.send(publish(b"a", b"x", qos=2, pid=0xFFFF))
    assert client.received_bytes() == hexa("50 02 ffff")
    client.send(ack(0x62, 0xFFFF))
    assert client.received_bytes() == hexa("70 02 ffff")


@clause("5.0", "MQTT-3.4.2-1", "MQTT-3.5.2-1")
def test_mqtt5_3_4_2_1_no_matching_subscribers(harness: BrokerHarness) -> None:
    """Nobody wanted it: reason code 0x10 on PUBACK and PUBREC, which is a success."""
    client = harness.client("c")
    client.send(publish(b"nobody", b"x", qos=1, pid=1))
    client.send(publish(b"nobody", b"x", qos=2, pid=2))
    assert client.expect_ack(PUBACK, 1).reason == 0x10
    assert client.expect_ack(PUBREC, 2).reason == 0x10
    client.ping()


# --- retained ---


@clause("5.0", "MQTT-3.3.1-5")
def test_mqtt5_3_3_1_5_retained_is_stored_and_replaced(harness: BrokerHarness) -> None:
    """A new subscriber gets the last retained message of the topic, and only that, with RETAIN 1."""
    client = harness.client("c")
    client.publish(b"a", b"first", retain=True)
    client.publish(b"a", b"second", qos=1, retain=True)
    late = harness.client("late")
    late.subscribe(b"a", qos=2)
    (message,) = late.messages()
    assert (message.payload, message.qos, message.retain, message.dup) == (b"second", 1, True, False)


@clause("5.0", "MQTT-3.3.1-6", "MQTT-3.3.1-7")
def test_mqtt5_3_3_1_6_empty_retained_removes(harness: BrokerHarness) -> None:
    """Without payload it is forwarded to subscribers, removes the stored message and is not stored itself."""
    client = harness.client("c")
    client.publish(b"a", b"kept", retain=True)
    present = harness.client("present")
    present.subscribe(b"a", retain_handling=2)
    client.publish(b"a", b"", retain=True)
    assert present.payloads() == [b""]
    late = harness.client("late")
    late.subscribe(b"a")
    assert late.messages() == []
    assert harness.broker.retained.usage.count == 0


@clause("5.0", "MQTT-3.3.1-8")
def test_mqtt5_3_3_1_8_without_retain(harness: BrokerHarness) -> None:
    """RETAIN 0 neither stores, replaces nor removes, also without payload."""
    client = harness.client("c")
    client.publish(b"none", b"x")
    client.publish(b"a", b"kept", retain=True)
    client.publish(b"a", b"other")
    client.publish(b"a", b"")
    late = harness.client("late")
    late.subscribe(b"#")
    assert [(message.topic, message.payload) for message in late.messages()] == [(b"a", b"kept")]


@clause("5.0", "MQTT-3.3.1-9", "MQTT-3.8.4-4")
def test_mqtt5_3_3_1_9_retain_handling_0(harness: BrokerHarness) -> None:
    """Retain Handling 0: sent at every SUBSCRIBE, also when the subscription was there."""
    harness.client("c").publish(b"a", b"x", retain=True)
    client = harness.client("s")
    for _ in range(2):
        client.subscribe(b"a", retain_handling=0)
        assert client.payloads() == [b"x"]


@clause("5.0", "MQTT-3.3.1-10")
def test_mqtt5_3_3_1_10_retain_handling_1(harness: BrokerHarness) -> None:
    """Retain Handling 1: sent only if the subscription is new."""
    harness.client("c").publish(b"a", b"x", retain=True)
    client = harness.client("s")
    client.subscribe(b"a", retain_handling=1)
    assert client.payloads() == [b"x"]
    client.subscribe(b"a", retain_handling=1)
    assert client.payloads() == []
    client.unsubscribe(b"a")
    client.subscribe(b"a", retain_handling=1)
    assert client.payloads() == [b"x"]


@clause("5.0", "MQTT-3.3.1-10")
def test_mqtt5_3_3_1_10_retain_handling_1_after_resume(harness: BrokerHarness) -> None:
    """In a resumed session the subscription exists already."""
    harness.client("c").publish(b"a", b"x", retain=True)
    first = harness.client("s", session_expiry_s=60)
    first.subscribe(b"a", retain_handling=1)
    first.drop()
    again = harness.client("s", clean_start=False)
    again.subscribe(b"a", retain_handling=1)
    assert again.messages() == []


@clause("5.0", "MQTT-3.3.1-11")
def test_mqtt5_3_3_1_11_retain_handling_2(harness: BrokerHarness) -> None:
    """Retain Handling 2: none are sent."""
    harness.client("c").publish(b"a", b"x", retain=True)
    client = harness.client("s")
    client.subscribe(b"a", retain_handling=2)
    assert client.messages() == []


@clause("5.0", "MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("retain", [False, True])
def test_mqtt5_3_3_1_12_retain_as_published(harness: BrokerHarness, qos: int, as_published: bool, retain: bool) -> None:
    """RETAIN towards an existing subscription is 0, or as published if the subscription asked for that."""
    client = harness.client("s")
    client.subscribe(b"a", qos=qos, retain_as_published=as_published)
    harness.client("c").publish(b"a", b"x", qos=qos, retain=retain)
    assert [message.retain for message in client.consume()] == [retain and as_published]


@clause("5.0", "MQTT-3.3.1-9")
@pytest.mark.parametrize("as_published", [False, True])
def test_mqtt5_3_3_1_9_sent_with_retain_flag(harness: BrokerHarness, as_published: bool) -> None:
    """What is sent because of a new subscription always has RETAIN 1."""
    harness.client("c").publish(b"a", b"x", retain=True)
    client = harness.client("s")
    client.subscribe(b"a", retain_as_published=as_published)
    assert [message.retain for message in client.messages()] == [True]


@clause("5.0", "MQTT-3.3.1-9", "MQTT-3.3.2-3")
def test_mqtt5_3_3_1_9_wildcards(harness: BrokerHarness) -> None:
    """A filter with wildcards gets the retained message of each matching topic, each once."""
    client = harness.client("c")
    for topic in (b"a", b"a/b", b"a/b/c", b"a/d", b"e", b"$x/b"):
        client.publish(topic, topic, retain=True)
    for topic_filter, expected in (
        (b"#", {b"a", b"a/b", b"a/b/c", b"a/d", b"e"}),
        (b"a/#", {b"a", b"a/b", b"a/b/c", b"a/d"}),
        (b"a/+", {b"a/b", b"a/d"}),
        (b"+", {b"a", b"e"}),
        (b"$x/+", {b"$x/b"}),
    ):
        late = harness.client("late")
        late.subscribe(topic_filter)
        got = late.topics()
        assert set(got) == expected
        assert len(got) == len(expected)


@clause("5.0", "MQTT-3.8.4-8")
@pytest.mark.parametrize(("stored", "granted"), [(0, 2), (1, 0), (2, 1), (2, 2)])
def test_mqtt5_3_8_4_8_qos_of_retained(harness: BrokerHarness, stored: int, granted: int) -> None:
    """A retained message comes at the lower of its own and the granted QoS."""
    harness.client("c").publish(b"a", b"x", qos=stored, retain=True)
    late = harness.client("late")
    late.subscribe(b"a", qos=granted)
    assert [message.qos for message in late.consume()] == [min(stored, granted)]


# --- DUP ---


@clause("5.0", "MQTT-3.3.1-3", "MQTT-4.3.2-2", "MQTT-4.3.3-2", "MQTT-4.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_3_1_3_dup_is_not_forwarded(harness: BrokerHarness, qos: int) -> None:
    """A publisher's DUP does not reach subscribers: their copy is the first."""
    clients = [harness.client(f"s{granted}") for granted in (0, 1, 2)]
    for granted, client in enumerate(clients):
        client.subscribe(b"a", qos=granted)
    harness.client("c").send(publish(b"a", b"x", qos=qos, pid=5, dup=1))
    for client in clients:
        assert [(message.payload, message.dup) for message in client.messages()] == [(b"x", False)]


# --- forwarding ---


@clause("5.0", "MQTT-3.3.2-4")
@pytest.mark.parametrize("indicator", [0, 1])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_3_2_4_payload_format(harness: BrokerHarness, indicator: int, qos: int) -> None:
    """The payload format indicator arrives as it was sent."""
    client = harness.client("s")
    client.subscribe(b"a", qos=qos)
    harness.client("c").publish(b"a", "ü".encode(), qos=qos, properties=make_properties(payload_format=indicator))
    (message,) = client.consume()
    assert message.properties is not None
    assert message.properties.payload_format == indicator


ALL_PROPERTIES = make_properties(
    payload_format=1,
    content_type="application/json; charset=utf-8",
    response_topic=b"answers/to me",
    correlation_data=bytes(range(256)),
    user=[("z", "last letter first"), ("a", "1"), ("z", "again"), ("", ""), ("ü", "ß")],
)


@clause("5.0", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20", "MQTT-3.3.2-4")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_mqtt5_3_3_2_18_properties_unaltered(harness: BrokerHarness, published: int, granted: int) -> None:
    """Response topic, correlation data, content type and user properties, in their order, reach every subscriber."""
    first = harness.client("s1")
    first.subscribe(b"a", qos=granted)
    second = harness.client("s2")
    second.subscribe(b"+", qos=granted, identifier=9)
    harness.client("c").publish(b"a", b"payload", qos=published, properties=ALL_PROPERTIES)
    (message,) = first.consume()
    assert message.properties == ALL_PROPERTIES
    (message,) = second.consume()
    assert message.properties is not None
    assert message.properties.subscription_identifiers == [9]
    message.properties.subscription_identifiers = []
    assert message.properties == ALL_PROPERTIES


@clause("5.0", "MQTT-3.3.2-18")
def test_mqtt5_3_3_2_18_order_of_user_properties_on_the_wire(harness: BrokerHarness) -> None:
    """User properties keep their order byte for byte, repeated keys included."""
    pairs = [(b"k", b"2"), (b"k", b"1"), (b"a", b"0"), (b"k", b"2")]
    block = props(*((USER_PROPERTY, pair) for pair in pairs))
    client = harness.client("s")
    client.subscribe(b"a")
    sent = publish(b"a", b"x", properties=block)
    harness.client("c").send(sent)
    assert client.received_bytes() == sent


@clause("5.0", "MQTT-3.3.2-15", "MQTT-3.3.2-16")
def test_mqtt5_3_3_2_15_request_and_response(harness: BrokerHarness) -> None:
    """A request is answered on its response topic with its correlation data."""
    asker = harness.client("asker", properties=make_properties(request_response_information=1))
    prefix = asker.connack.properties.response_information
    assert prefix
    answer_topic = f"{prefix}/1".encode()
    asker.subscribe(answer_topic, qos=1)
    server = harness.client("server")
    server.subscribe(b"service", qos=1)
    asked = make_properties(response_topic=answer_topic, correlation_data=b"\x01\x02")
    asker.publish(b"service", b"what?", qos=1, properties=asked)
    (request,) = server.consume()
    assert request.properties is not None
    assert request.properties.response_topic == answer_topic
    answer = make_properties(correlation_data=request.properties.correlation_data)
    server.publish(request.properties.response_topic or b"", b"that!", qos=1, properties=answer)
    (response,) = asker.consume()
    assert response.payload == b"that!"
    assert response.properties is not None
    assert response.properties.correlation_data == b"\x01\x02"


@clause("5.0", "MQTT-3.3.2-14", "MQTT-3.3.2-13", "MQTT-3.3.2-19")
@pytest.mark.parametrize(
    "data",
    [
        publish(b"a", properties=props((RESPONSE_TOPIC, b"a/+"))),
        publish(b"a", properties=props((RESPONSE_TOPIC, b"#"))),
        publish(b"a", properties=props((RESPONSE_TOPIC, b"\xff"))),
        publish(b"a", properties=props((RESPONSE_TOPIC, b"a\0"))),
        publish(b"a", properties=props((CONTENT_TYPE, b"\xc0\x80"))),
        publish(b"a", properties=props((CONTENT_TYPE, b"\xed\xa0\x80"))),
    ],
    ids=["+", "#", "not UTF-8", "U+0000", "content type overlong", "content type surrogate"],
)
def test_mqtt5_3_3_2_14_response_topic(harness: BrokerHarness, data: bytes) -> None:
    """A response topic is a valid topic name, a content type a valid string."""
    client = harness.client("c")
    client.send(data)
    assert closed_with(client) in {0x81, 0x82, 0x90}


@clause("5.0", "MQTT-3.3.2-16")
def test_mqtt5_3_3_2_16_correlation_data_is_any_bytes(harness: BrokerHarness) -> None:
    """Correlation data is binary: empty, zero bytes, not UTF-8."""
    client = harness.client("s")
    client.subscribe(b"a")
    for data in (b"", b"\0", b"\xff\xfe", b"x" * 300):
        sent = publish(b"a", b"p", properties=props((CORRELATION_DATA, data)))
        harness.client("c").send(sent)
        assert client.received_bytes() == sent


# --- topic names ---


@clause("5.0", "MQTT-3.3.2-1", "MQTT-3.3.2-2", "MQTT-4.7.0-1", "MQTT-4.7.3-1", "MQTT-4.7.3-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic", [b"a/+", b"#", b"a#", b"+a", b"a\0b", b"\xff", b"\xed\xbf\xbf"])
def test_mqtt5_3_3_2_2_invalid_topic_name(harness: BrokerHarness, topic: bytes, qos: int) -> None:
    """A topic name with wildcards, U+0000 or broken UTF-8 ends the connection; nobody gets the message."""
    watcher = harness.client("w")
    watcher.subscribe(b"#")
    client = harness.client("c")
    client.send(publish(topic, b"x", qos=qos, pid=1))
    assert closed_with(client) in {0x81, 0x82, 0x90}
    assert watcher.messages() == []


@clause("5.0", "MQTT-3.3.2-3")
def test_mqtt5_3_3_2_3_only_what_matches(harness: BrokerHarness) -> None:
    """A subscriber gets the topic name as published, and no other topics."""
    client = harness.client("s")
    client.subscribe(b"a/+/c")
    publisher = harness.client("c")
    for topic in (b"a/b/c", b"a/b/d", b"a/c", b"a//c", b"A/b/c"):
        publisher.publish(topic, b"x")
    assert client.topics() == [b"a/b/c", b"a//c"]


# --- expiry ---


@clause("5.0", "MQTT-3.3.2-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_3_2_6_expiry_is_forwarded(harness: BrokerHarness, qos: int) -> None:
    """Delivered at once the interval is what was sent."""
    client = harness.client("s")
    client.subscribe(b"a", qos=qos)
    harness.client("c").publish(b"a", b"x", qos=qos, properties=make_properties(message_expiry_s=100))
    (message,) = client.consume()
    assert message.properties is not None
    assert message.properties.message_expiry_s == 100


@clause("5.0", "MQTT-3.3.2-6")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_3_2_6_expiry_counts_down_in_the_queue(harness: BrokerHarness, qos: int) -> None:
    """The time a message waited for its client is taken off."""
    first = harness.client("s", session_expiry_s=600)
    first.subscribe(b"a", qos=qos)
    first.drop()
    harness.client("c").publish(b"a", b"x", qos=qos, properties=make_properties(message_expiry_s=100))
    harness.advance(30_000)
    again = harness.client("s", clean_start=False, session_expiry_s=600)
    (message,) = again.consume()
    assert message.properties is not None
    assert message.properties.message_expiry_s == 70


@clause("5.0", "MQTT-3.3.2-6")
def test_mqtt5_3_3_2_6_expiry_counts_down_while_retained(harness: BrokerHarness) -> None:
    """So is the time it was retained."""
    harness.client("c").publish(b"a", b"x", retain=True, properties=make_properties(message_expiry_s=100))
    harness.advance(40_000)
    late = harness.client("late")
    late.subscribe(b"a")
    (message,) = late.messages()
    assert message.properties is not None
    assert message.properties.message_expiry_s == 60


@clause("5.0", "MQTT-3.3.2-6")
def test_mqtt5_3_3_2_6_expiry_counts_down_in_the_window(harness: BrokerHarness) -> None:
    """So is the time it waited for room in the client's receive maximum."""
    client = harness.client("s", properties=make_properties(receive_maximum=1))
    client.subscribe(b"a", qos=1)
    publisher = harness.client("c")
    publisher.publish(b"a", b"first", qos=1)
    publisher.publish(b"a", b"second", qos=1, properties=make_properties(message_expiry_s=50))
    (first,) = client.messages()
    harness.advance(20_000)
    client.acknowledge(first)
    (second,) = client.messages()
    assert second.properties is not None
    assert second.properties.message_expiry_s == 30


@clause("5.0", "MQTT-3.3.2-5")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_3_2_5_expired_in_the_queue(harness: BrokerHarness, qos: int) -> None:
    """A message whose time has passed is not delivered; those behind it are."""
    first = harness.client("s", session_expiry_s=600)
    first.subscribe(b"a", qos=qos)
    first.drop()
    publisher = harness.client("c")
    publisher.publish(b"a", b"short", qos=qos, properties=make_properties(message_expiry_s=10))
    publisher.publish(b"a", b"long", qos=qos, properties=make_properties(message_expiry_s=100))
    publisher.publish(b"a", b"for ever", qos=qos)
    harness.advance(10_500)
    again = harness.client("s", clean_start=False, session_expiry_s=600)
    assert [message.payload for message in again.consume()] == [b"long", b"for ever"]


@clause("5.0", "MQTT-3.3.2-5")
def test_mqtt5_3_3_2_5_expired_while_retained(harness: BrokerHarness) -> None:
    """An expired retained message is as good as removed, also for the count of retained messages."""
    harness.client("c").publish(b"a", b"x", retain=True, properties=make_properties(message_expiry_s=10))
    harness.advance(12_000)
    late = harness.client("late")
    late.subscribe(b"a")
    assert late.messages() == []
    assert harness.broker.retained.usage.count == 0


@clause("5.0", "MQTT-3.3.2-5")
def test_mqtt5_3_3_2_5_expired_behind_a_full_window(harness: BrokerHarness) -> None:
    """What expired while the window was full is skipped when it opens."""
    client = harness.client("s", properties=make_properties(receive_maximum=1))
    client.subscribe(b"a", qos=1)
    publisher = harness.client("c")
    publisher.publish(b"a", b"first", qos=1)
    publisher.publish(b"a", b"short", qos=1, properties=make_properties(message_expiry_s=5))
    publisher.publish(b"a", b"last", qos=1)
    harness.advance(6_000)
    assert [message.payload for message in client.consume()] == [b"first", b"last"]


def test_expiry_zero(harness: BrokerHarness) -> None:
    """An interval of 0 is delivered at once or never."""
    present = harness.client("present")
    present.subscribe(b"a", qos=1)
    away = harness.client("away", session_expiry_s=60)
    away.subscribe(b"a", qos=1)
    away.drop()
    harness.client("c").publish(b"a", b"x", qos=1, properties=make_properties(message_expiry_s=0))
    assert len(present.consume()) == 1
    harness.advance(1_100)
    assert harness.client("away", clean_start=False).consume() == []


@clause("5.0", "MQTT-3.3.2-6")
def test_mqtt5_3_3_2_6_not_for_311_subscribers(harness: BrokerHarness) -> None:
    """A 3.1.1 subscriber has no word for it, but expiry still holds for what waits."""
    first = harness.client("old", version=4, clean_start=False)
    first.subscribe(b"a", qos=1)
    first.drop()
    publisher = harness.client("c")
    publisher.publish(b"a", b"short", qos=1, properties=make_properties(message_expiry_s=10))
    publisher.publish(b"a", b"long", qos=1, properties=make_properties(message_expiry_s=100))
    harness.advance(11_000)
    again = harness.client("old", version=4, clean_start=False)
    assert [message.payload for message in again.consume()] == [b"long"]


# --- between versions ---


@pytest.mark.parametrize(("sender", "receiver"), [(4, 5), (5, 4), (4, 4), (5, 5)])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_versions_mix(harness: BrokerHarness, sender: int, receiver: int, qos: int) -> None:
    """Publisher and subscriber need not speak the same version; properties are left out for 3.1.1."""
    client = harness.client("s", version=receiver)
    client.subscribe(b"a", qos=qos)
    properties = ALL_PROPERTIES if sender == 5 else None
    harness.client("c", version=sender).publish(b"a", b"payload", qos=qos, properties=properties)
    (message,) = client.consume()
    assert (message.topic, message.payload, message.qos) == (b"a", b"payload", qos)
    if receiver == 4 or sender == 4:
        assert message.properties is None
    else:
        assert message.properties == ALL_PROPERTIES


def test_payloads_of_all_sizes(harness: BrokerHarness) -> None:
    """From nothing to beyond each step of the remaining length."""
    client = harness.client("s")
    client.subscribe(b"a", qos=1)
    publisher = harness.client("c")
    for size in (0, 1, 120, 121, 122, 127, 128, 16_370, 16_383, 16_384):
        publisher.publish(b"a", bytes(size), qos=1)
        assert [len(message.payload) for message in client.consume()] == [size]


def test_payload_is_not_looked_at(harness: BrokerHarness) -> None:
    """A payload may hold anything, packets included."""
    client = harness.client("s")
    client.subscribe(b"a")
    payload = publish(b"b", b"nested") + hexa("00 00 ff ff") + publish(b"c")
    harness.client("c").publish(b"a", payload)
    assert [(message.topic, message.payload) for message in client.messages()] == [(b"a", payload)]


# --- topic aliases from clients ---


@clause("5.0", "MQTT-3.3.2-12")
def test_mqtt5_3_3_2_12_aliases_up_to_the_maximum(harness: BrokerHarness) -> None:
    """Every alias from 1 to the announced maximum can be set and used."""
    client = harness.client("c")
    most = client.connack.properties.topic_alias_maximum
    assert most
    watcher = harness.client("w")
    watcher.subscribe(b"#")
    for alias in range(1, most + 1):
        client.send(publish(b"t/%d" % alias, b"set", properties=props((TOPIC_ALIAS, alias))))
    for alias in range(most, 0, -1):
        client.send(publish(b"", b"used", properties=props((TOPIC_ALIAS, alias))))
    topics = watcher.topics()
    names = [b"t/%d" % alias for alias in range(1, most + 1)]
    assert topics == names + names[::-1]


@clause("5.0", "MQTT-3.3.2-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_3_2_12_alias_can_be_set_anew(harness: BrokerHarness, qos: int) -> None:
    """An alias with a topic replaces what it meant before; subscribers see topics, not the publisher's alias."""
    watcher = harness.client("w")
    watcher.subscribe(b"#", qos=2)
    client = harness.client("c")
    for number, topic in enumerate((b"one", b"", b"two", b"", b"one", b""), start=1):
        client.send(publish(topic, b"x", qos=qos, pid=number, properties=props((TOPIC_ALIAS, 1))))
    got = watcher.consume()
    assert [message.topic for message in got] == [b"one", b"one", b"two", b"two", b"one", b"one"]
    assert all(message.properties is None for message in got)


@clause("5.0", "MQTT-3.3.2-8", "MQTT-3.3.2-9", "MQTT-3.2.2-17")
def test_mqtt5_3_3_2_8_alias_out_of_range(harness: BrokerHarness) -> None:
    """Alias 0 and those above the maximum are answered with 0x94."""
    most = harness.client("m").connack.properties.topic_alias_maximum
    assert most
    for alias in (0, most + 1, 65_535):
        client = harness.client("c")
        client.send(publish(b"a", b"x", properties=props((TOPIC_ALIAS, alias))))
        assert closed_with(client) == 0x94


@clause("5.0", "MQTT-3.3.2-7")
def test_mqtt5_3_3_2_7_alias_ends_with_its_connection(harness: BrokerHarness) -> None:
    """The next connection, even of the same session, begins without aliases."""
    client = harness.client("c", session_expiry_s=60)
    client.send(publish(b"a", b"x", properties=props((TOPIC_ALIAS, 1))))
    client.drop()
    again = harness.client("c", clean_start=False)
    again.send(publish(b"", b"x", properties=props((TOPIC_ALIAS, 1))))
    assert closed_with(again) == 0x82


def test_alias_with_all_else(harness: BrokerHarness) -> None:
    """An alias beside other properties is taken out, the others stay in place."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    block = props((PAYLOAD_FORMAT, 1), (TOPIC_ALIAS, 2), (USER_PROPERTY, (b"k", b"v")), (MESSAGE_EXPIRY, 60))
    client.send(publish(b"a", b"x", properties=block))
    client.send(publish(b"", b"y", properties=block))
    for payload in (b"x", b"y"):
        message = watcher.expect(Publish)
        assert (message.topic, message.payload) == (b"a", payload)
        assert message.properties is not None
        assert message.properties.topic_alias is None
        assert message.properties.user == [("k", "v")]
        assert message.properties.message_expiry_s == 60


# --- one clause, one test ---


@clause("5.0", "MQTT-2.2.1-5")
@pytest.mark.parametrize("pid", [1, 255, 256, 65_535])
def test_mqtt5_2_2_1_5_answers_repeat_the_identifier(harness: BrokerHarness, pid: int) -> None:
    """PUBACK, PUBREC and PUBCOMP have the identifier of their PUBLISH."""
    harness.client("s").subscribe(b"a")
    client = harness.client("c")
    client.send(publish(b"a", qos=1, pid=pid))
    assert client.received_bytes() == ack(0x40, pid)
    client.send(publish(b"a", qos=2, pid=pid) + ack(0x62, pid))
    assert client.received_bytes() == ack(0x50, pid) + ack(0x70, pid)


@clause("5.0", "MQTT-3.3.1-7")
def test_mqtt5_3_3_1_7_empty_is_not_stored(harness: BrokerHarness) -> None:
    """A retained message without payload is not stored, with or without one before it."""
    client = harness.client("c")
    client.publish(b"a", b"", retain=True)
    client.publish(b"b", b"x", retain=True)
    client.publish(b"b", b"", qos=1, retain=True)
    assert harness.broker.retained.usage.count == 0


@clause("5.0", "MQTT-3.3.2-1")
@pytest.mark.parametrize("topic", [b"\xff", b"\xc0\x80", b"a\0"])
def test_mqtt5_3_3_2_1_topic_name_is_utf8(harness: BrokerHarness, topic: bytes) -> None:
    """The topic name is a valid string."""
    client = harness.client("c")
    client.send(publish(topic, b"x"))
    assert closed_with(client) == 0x81


@clause("5.0", "MQTT-3.3.2-9")
def test_mqtt5_3_3_2_9_alias_above_the_maximum(harness: BrokerHarness) -> None:
    """The announced maximum is accepted, one more is not."""
    client = harness.client("c")
    most = client.connack.properties.topic_alias_maximum or 0
    client.send(publish(b"a", b"x", properties=props((TOPIC_ALIAS, most))))
    client.ping()
    client.send(publish(b"a", b"x", properties=props((TOPIC_ALIAS, most + 1))))
    assert closed_with(client) == 0x94


@clause("5.0", "MQTT-3.3.2-13")
@pytest.mark.parametrize("topic", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt5_3_3_2_13_response_topic_is_utf8(harness: BrokerHarness, topic: bytes) -> None:
    """The response topic is a valid string."""
    client = harness.client("c")
    client.send(publish(b"a", properties=props((RESPONSE_TOPIC, topic))))
    assert closed_with(client) == 0x81


@clause("5.0", "MQTT-3.3.2-17")
def test_mqtt5_3_3_2_17_user_properties_unaltered(harness: BrokerHarness) -> None:
    """All user properties arrive, empty ones, long ones and repeated ones too."""
    pairs = [("", ""), ("k", "v" * 2_000), ("k", "v"), ("k", "v"), ("K", "V")]
    client = harness.client("s")
    client.subscribe(b"a", qos=1)
    harness.client("c").publish(b"a", b"x", qos=1, properties=make_properties(user=pairs))
    (message,) = client.consume()
    assert message.properties is not None
    assert message.properties.user == pairs


@clause("5.0", "MQTT-3.3.2-19")
@pytest.mark.parametrize("text", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt5_3_3_2_19_content_type_is_utf8(harness: BrokerHarness, text: bytes) -> None:
    """The content type is a valid string."""
    client = harness.client("c")
    client.send(publish(b"a", properties=props((CONTENT_TYPE, text))))
    assert closed_with(client) == 0x81


@clause("5.0", "MQTT-3.3.2-20")
@pytest.mark.parametrize("text", [b"", b"text/plain", "käse".encode()])
def test_mqtt5_3_3_2_20_content_type_unaltered(harness: BrokerHarness, text: bytes) -> None:
    """The content type arrives as it was sent."""
    client = harness.client("s")
    client.subscribe(b"a")
    sent = publish(b"a", b"x", properties=props((CONTENT_TYPE, text)))
    harness.client("c").send(sent)
    assert client.received_bytes() == sent


@clause("5.0", "MQTT-3.5.2-1")
def test_mqtt5_3_5_2_1_pubrec_codes(harness: BrokerHarness) -> None:
    """PUBREC says taken, nobody wanted it, or why not, each by a code it has; the decoder knows no others."""
    harness.client("s").subscribe(b"a")
    client = harness.client("c")
    codes = []
    for pid, topic in enumerate((b"a", b"nobody", b"$SYS/x"), start=1):
        client.send(publish(topic, b"x", qos=2, pid=pid))
        codes.append(client.expect_ack(PUBREC, pid).reason)
    assert codes == [0x00, 0x10, 0x87]


@clause("5.0", "MQTT-4.7.0-1")
@pytest.mark.parametrize("topic", [b"+", b"#", b"a/+/b", b"a/#"])
def test_mqtt5_4_7_0_1_wildcards_in_topic_names(harness: BrokerHarness, topic: bytes) -> None:
    """What is a fine filter is no topic name."""
    client = harness.client("c")
    assert client.subscribe(topic) == 0
    client.send(publish(topic, b"x"))
    assert closed_with(client) == 0x90


@clause("5.0", "MQTT-4.7.3-2")
def test_mqtt5_4_7_3_2_null_character(harness: BrokerHarness) -> None:
    """U+0000 is in no topic name."""
    client = harness.client("c")
    client.send(publish(b"a/\0", b"x"))
    assert closed_with(client) == 0x81


# --- payload format ---


@pytest.mark.parametrize("more", [(), ((TOPIC_ALIAS, 1),), ((MESSAGE_EXPIRY, 60),)], ids=["plain", "alias", "expiry"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_payload_that_is_not_what_it_says(harness: BrokerHarness, qos: int, more: tuple[tuple[int, int], ...]) -> None:
    """A payload said to be UTF-8 that is not reaches nobody: 0x99 in the answer, or in DISCONNECT at QoS 0."""
    watcher = harness.client("w")
    watcher.subscribe(b"a", qos=2)
    client = harness.client("c")
    client.send(publish(b"a", b"\xff", qos=qos, pid=1, properties=props((PAYLOAD_FORMAT, 1), *more)))
    if qos:
        assert client.expect_ack(PUBACK if qos == 1 else PUBREC, 1).reason == 0x99
        client.ping()
    else:
        assert closed_with(client) == 0x99
    assert watcher.messages() == []


@clause("5.0", "MQTT-3.3.2-4")
@pytest.mark.parametrize("payload", [b"", b"\0", "ß\ufeff😀\U0010ffff".encode(), b"x" * 3_000])
def test_mqtt5_3_3_2_4_text_payloads(harness: BrokerHarness, payload: bytes) -> None:
    """Well-formed text goes through, U+0000 included: a payload is no MQTT string."""
    client = harness.client("c")
    client.subscribe(b"a")
    sent = publish(b"a", payload, properties=props((PAYLOAD_FORMAT, 1)))
    client.send(sent)
    assert client.received_bytes() == sent


@clause("5.0", "MQTT-3.3.2-4")
def test_mqtt5_3_3_2_4_bytes_are_not_checked(harness: BrokerHarness) -> None:
    """With indicator 0, or none, a payload is any bytes."""
    client = harness.client("c")
    client.subscribe(b"a")
    for block in (props((PAYLOAD_FORMAT, 0)), b"\0"):
        sent = publish(b"a", b"\xff\xfe\0", properties=block)
        client.send(sent)
        assert client.received_bytes() == sent


@clause("5.0", "MQTT-3.3.1-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_3_1_9_only_what_was_there(harness: BrokerHarness, qos: int) -> None:
    """A retained message published right behind the SUBSCRIBE comes once: as a message, not as a retained one too."""
    client = harness.client("c")
    client.publish(b"a", b"old", retain=True)
    client.publish(b"b", b"kept", retain=True)
    client.send(subscribe(1, (b"+", qos)) + publish(b"a", b"new", qos=qos, pid=9, retain=1))
    got = {(message.payload, message.retain) for message in client.messages()}
    assert {(b"new", False), (b"kept", True)} <= got
    assert (b"new", True) not in got
