"""MQTT 5, sections 3.8 to 3.11: SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK."""

from __future__ import annotations

import pytest

from conformance.checks import closed_with
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.gates import TopicGate
from conformance.wire import SUBSCRIPTION_ID, USER_PROPERTY, hexa, packet, props, publish, subscribe, unsubscribe
from flockmq.mqtt.packets import Suback, Unsuback
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties

# --- SUBSCRIBE and its answer ---


@clause("5.0", "MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-2.2.1-6", "MQTT-3.8.4-7")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_8_4_1_suback(harness: BrokerHarness, qos: int) -> None:
    """SUBACK with the packet identifier and the granted QoS, which is the one asked for."""
    client = harness.client("c")
    client.send(subscribe(0xABCD, (b"a/b", qos)))
    assert client.received_bytes() == hexa("90 04 abcd 00") + bytes([qos])


@clause("5.0", "MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.9.3-1")
def test_mqtt5_3_8_4_6_a_code_for_each_filter(harness: BrokerHarness) -> None:
    """Many filters: one SUBACK with as many codes, in their order; all of them work."""
    client = harness.client("c")
    client.send(subscribe(7, (b"a", 2), (b"b", 0), (b"c", 1), (b"d", 2)))
    assert client.received_bytes() == hexa("90 07 0007 00 02 00 01 02")
    client.send(subscribe(8, (b"a", 2), (b"b", 0), (b"c", 1), (b"a/#/bad", 1), (b"d", 2)))
    answer = client.expect(Suback)
    assert (answer.packet_id, answer.reasons) == (8, [2, 0, 1, 0x8F, 2])
    publisher = harness.client("p")
    for topic in (b"a", b"b", b"c", b"d"):
        publisher.publish(topic, topic, qos=2)
    assert [(message.topic, message.qos) for message in client.consume()] == [
        (b"a", 2), (b"b", 0), (b"c", 1), (b"d", 2),
    ]  # fmt: skip


@clause("5.0", "MQTT-3.8.4-5")
def test_mqtt5_3_8_4_5_same_filter_twice_in_one_packet(harness: BrokerHarness) -> None:
    """As with two SUBSCRIBEs, the second one holds."""
    client = harness.client("c")
    client.send(subscribe(7, (b"a", 2), (b"a", 0)))
    assert client.expect(Suback).reasons == [2, 0]
    harness.client("p").publish(b"a", b"x", qos=2)
    assert [message.qos for message in client.messages()] == [0]


@clause("5.0", "MQTT-3.9.3-2", "MQTT-3.8.4-7", "MQTT-3.9.3-1")
def test_mqtt5_3_9_3_2_refused_filters(make_harness: MakeHarness) -> None:
    """A filter that is not allowed gets 0x87, an invalid one 0x8F, and the others are granted."""
    harness = make_harness(gate=TopicGate())
    client = harness.client("c")
    client.send(subscribe(3, (b"forbidden/a", 1), (b"fine", 1), (b"a+", 0), (b"$share/g/forbidden/a", 1)))
    assert client.expect(Suback).reasons == [0x87, 0x01, 0x8F, 0x87]
    assert set(harness.broker.sessions["c"].subscriptions) == {b"fine"}


INVALID_FILTERS = [b"a/#/b", b"#/a", b"a#", b"a/b#", b"+a", b"a+", b"a/+b/c", b"##", b"++", b"a/#/"]


@clause("5.0", "MQTT-4.7.1-1", "MQTT-4.7.1-2")
@pytest.mark.parametrize("topic_filter", INVALID_FILTERS)
def test_mqtt5_4_7_1_1_wildcards_in_the_wrong_place(harness: BrokerHarness, topic_filter: bytes) -> None:
    """# not last or not alone, + not alone in its level: SUBACK 0x8F."""
    client = harness.client("c")
    assert client.subscribe(topic_filter) == 0x8F
    client.ping()


@clause("5.0", "MQTT-3.8.3-1", "MQTT-4.7.3-1", "MQTT-4.7.3-2", "MQTT-3.10.3-1")
@pytest.mark.parametrize("topic_filter", [b"", b"a\0", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"])
def test_mqtt5_3_8_3_1_filter_is_no_string(harness: BrokerHarness, topic_filter: bytes) -> None:
    """A filter that is empty or no valid UTF-8 ends the connection, in SUBSCRIBE and UNSUBSCRIBE."""
    client = harness.client("c")
    client.send(subscribe(1, (topic_filter, 0)))
    assert closed_with(client) in {0x81, 0x82, 0x8F}
    client = harness.client("c")
    client.send(unsubscribe(1, topic_filter))
    assert closed_with(client) in {0x81, 0x82, 0x8F}


@clause("5.0", "MQTT-3.8.4-3")
def test_mqtt5_3_8_4_3_same_filter_replaces(harness: BrokerHarness) -> None:
    """The same filter again: QoS, options and identifier are the new ones, and there is still one copy."""
    client = harness.client("c")
    client.subscribe(b"a", qos=2, identifier=1)
    client.subscribe(b"a", qos=1, retain_as_published=True, identifier=2)
    assert len(harness.broker.sessions["c"].subscriptions) == 1
    harness.client("p").publish(b"a", b"x", qos=2, retain=True)
    (message,) = client.consume()
    assert (message.qos, message.retain) == (1, True)
    assert message.properties is not None
    assert message.properties.subscription_identifiers == [2]
    client.subscribe(b"a", retain_handling=2)
    harness.client("p").publish(b"a", b"y")
    (message,) = client.messages()
    assert message.properties is None, "a new subscription without identifier has none"


@clause("5.0", "MQTT-3.8.4-4")
def test_mqtt5_3_8_4_4_replacing_loses_nothing(harness: BrokerHarness) -> None:
    """Messages in flight and in the queue stay when their subscription is replaced; retained ones come again."""
    client = harness.client("c", properties=make_properties(receive_maximum=2))
    client.subscribe(b"a", qos=1)
    publisher = harness.client("p")
    publisher.publish(b"a", b"kept", qos=1, retain=True)
    for number in range(5):
        publisher.publish(b"a", b"%d" % number, qos=1)
    client.subscribe(b"a", qos=1)
    got = client.consume()
    assert [message.payload for message in got if not message.retain] == [b"kept", b"0", b"1", b"2", b"3", b"4"]
    assert [message.payload for message in got if message.retain] == [b"kept"]


@clause("5.0", "MQTT-3.8.4-8")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_mqtt5_3_8_4_8_lower_qos_wins(harness: BrokerHarness, published: int, granted: int) -> None:
    """A message comes at the lower of the QoS it was published with and the one granted."""
    client = harness.client("c")
    client.subscribe(b"a", qos=granted)
    harness.client("p").publish(b"a", b"x", qos=published)
    assert [message.qos for message in client.consume()] == [min(published, granted)]


@clause("5.0", "MQTT-3.8.4-1")
def test_mqtt5_3_8_4_1_suback_before_retained(harness: BrokerHarness) -> None:
    """Nothing demands it, but all clients like it: SUBACK first, then the retained messages."""
    harness.client("p").publish(b"a", b"x", retain=True)
    client = harness.client("c")
    client.send(subscribe(1, (b"a", 0), (b"#", 0)))
    names = [type(packet).__name__ for packet in client.received()]
    assert names == ["Suback", "Publish", "Publish"]


# --- options ---


@clause("5.0", "MQTT-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_8_3_3_no_local(harness: BrokerHarness, qos: int) -> None:
    """No Local keeps back what this client published, and nothing else."""
    client = harness.client("c")
    client.subscribe(b"a", qos=qos, no_local=True)
    client.publish(b"a", b"mine", qos=qos)
    harness.client("p").publish(b"a", b"theirs", qos=qos)
    assert [message.payload for message in client.consume()] == [b"theirs"]


@clause("5.0", "MQTT-3.8.3-3")
def test_mqtt5_3_8_3_3_no_local_is_by_client_id(harness: BrokerHarness) -> None:
    """It holds across connections of the same client id, and not for another subscription that overlaps."""
    first = harness.client("c", session_expiry_s=60)
    first.subscribe(b"a", qos=1, no_local=True)
    first.drop()
    again = harness.client("c", clean_start=False, session_expiry_s=60)
    again.publish(b"a", b"mine", qos=1)
    assert again.messages() == []
    again.subscribe(b"+", qos=0, identifier=5)
    again.publish(b"a", b"mine again", qos=1)
    (message,) = again.messages()
    assert message.qos == 0
    assert message.properties is not None
    assert message.properties.subscription_identifiers == [5]


@clause("5.0", "MQTT-3.8.3-4")
def test_mqtt5_3_8_3_4_no_local_on_shared(harness: BrokerHarness) -> None:
    """No Local on a shared subscription is a protocol error."""
    client = harness.client("c")
    client.send(subscribe(1, (b"$share/g/a", 0x04)))
    assert closed_with(client) == 0x82


# --- identifiers and overlap ---


def identifiers(client: HarnessClient) -> list[list[int]]:
    """Sorted identifiers of each message that came."""
    return [sorted(one.properties.subscription_identifiers) if one.properties else [] for one in client.messages()]


@clause("5.0", "MQTT-3.3.4-3")
@pytest.mark.parametrize("identifier", [1, 127, 128, 16_384, 268_435_455])
def test_mqtt5_3_3_4_3_identifier(harness: BrokerHarness, identifier: int) -> None:
    """The identifier of the subscription is on its messages, whatever its size."""
    client = harness.client("c")
    client.subscribe(b"a", identifier=identifier)
    harness.client("p").publish(b"a", b"x")
    assert identifiers(client) == [[identifier]]


@clause("5.0", "MQTT-3.3.4-3")
def test_mqtt5_3_3_4_3_identifier_on_the_wire(harness: BrokerHarness) -> None:
    """Byte for byte, for all filters of the SUBSCRIBE."""
    client = harness.client("c")
    client.send(subscribe(1, (b"a", 0), (b"b", 0), properties=props((SUBSCRIPTION_ID, 300))))
    assert client.received_bytes() == hexa("90 05 0001 00 00 00")
    client.send(publish(b"a", b"x") + publish(b"b", b"y"))
    assert client.received_bytes() == hexa("30 08 0001 61 03 0b ac02 78") + hexa("30 08 0001 62 03 0b ac02 79")


@clause("5.0", "MQTT-3.3.4-4", "MQTT-3.3.4-3", "MQTT-3.3.4-2")
def test_mqtt5_3_3_4_4_one_copy_with_all_identifiers(harness: BrokerHarness) -> None:
    """Overlapping subscriptions: one copy, the highest QoS, all identifiers."""
    client = harness.client("c")
    client.subscribe(b"a/b", qos=0, identifier=10)
    client.subscribe(b"a/+", qos=2, identifier=20)
    client.subscribe(b"#", qos=1, identifier=30)
    client.subscribe(b"a/#", qos=1)
    client.subscribe(b"c", qos=2, identifier=40)
    harness.client("p").publish(b"a/b", b"x", qos=2)
    (message,) = client.consume()
    assert message.qos == 2
    assert message.properties is not None
    assert sorted(message.properties.subscription_identifiers) == [10, 20, 30]


@clause("5.0", "MQTT-3.3.4-2")
@pytest.mark.parametrize("published", [0, 1, 2])
def test_mqtt5_3_3_4_2_highest_qos_of_overlapping(harness: BrokerHarness, published: int) -> None:
    """The highest granted QoS of all that match counts."""
    client = harness.client("c")
    for number, qos in enumerate((1, 0, 2, 0)):
        client.subscribe((b"a", b"+", b"#", b"a/#")[number], qos=qos)
    harness.client("p").publish(b"a", b"x", qos=published)
    assert [message.qos for message in client.consume()] == [published]


@clause("5.0", "MQTT-3.3.4-5", "MQTT-3.3.4-4")
def test_mqtt5_3_3_4_5_shared_and_plain(harness: BrokerHarness) -> None:
    """A shared subscription is apart from a plain one: two copies, each with the identifiers that led to it."""
    client = harness.client("c")
    client.subscribe(b"a", identifier=1)
    client.subscribe(b"$share/g/a", identifier=2)
    harness.client("p").publish(b"a", b"x")
    assert sorted(identifiers(client)) == [[1], [2]]


@clause("5.0", "MQTT-3.3.4-3")
def test_mqtt5_3_3_4_3_identifier_on_retained(harness: BrokerHarness) -> None:
    """A retained message sent for a subscription carries its identifier."""
    harness.client("p").publish(b"a", b"x", retain=True)
    client = harness.client("c")
    client.subscribe(b"+", identifier=8)
    assert identifiers(client) == [[8]]


@clause("5.0", "MQTT-3.3.4-3")
def test_mqtt5_3_3_4_3_identifier_survives_resume(harness: BrokerHarness) -> None:
    """The identifier belongs to the session: it is on queued messages too."""
    first = harness.client("c", session_expiry_s=60)
    first.subscribe(b"a", qos=1, identifier=77)
    first.drop()
    harness.client("p").publish(b"a", b"x", qos=1)
    again = harness.client("c", clean_start=False)
    assert identifiers(again) == [[77]]


@clause("5.0", "MQTT-3.3.1-13")
def test_mqtt5_3_3_1_13_overlap_of_retain_as_published(harness: BrokerHarness) -> None:
    """One copy for two subscriptions, of which one wants RETAIN as published: it gets it."""
    client = harness.client("c")
    client.subscribe(b"a")
    client.subscribe(b"+", retain_as_published=True)
    harness.client("p").publish(b"a", b"x", retain=True)
    assert [message.retain for message in client.messages()] == [True]


# --- UNSUBSCRIBE ---


@clause("5.0", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-2.2.1-6", "MQTT-3.11.3-1", "MQTT-3.11.3-2", "MQTT-3.10.4-6")
def test_mqtt5_3_10_4_5_unsuback(harness: BrokerHarness) -> None:
    """One UNSUBACK with the packet identifier and a code for each filter in order: 0x00 deleted, 0x11 was not there."""
    client = harness.client("c")
    client.send(subscribe(1, (b"a", 0), (b"b/+", 0), (b"$share/g/c", 0)))
    client.received()
    client.send(unsubscribe(0x0102, b"a", b"nope", b"b/+", b"$share/g/c", b"$share/h/c", b"a"))
    assert client.received_bytes() == hexa("b0 09 0102 00 00 11 00 00 11 11")
    assert not harness.broker.sessions["c"].subscriptions


@clause("5.0", "MQTT-3.10.4-1")
def test_mqtt5_3_10_4_1_compared_by_character(harness: BrokerHarness) -> None:
    """A filter is deleted only by exactly the same filter, not by one that matches it."""
    client = harness.client("c")
    client.subscribe(b"a/b")
    for other in (b"a/+", b"#", b"a/B", b"a/b/", b"/a/b"):
        assert client.unsubscribe(other) == 0x11
    harness.client("p").publish(b"a/b", b"x")
    assert client.payloads() == [b"x"]
    assert client.unsubscribe(b"a/b") == 0


@clause("5.0", "MQTT-3.10.4-2")
@pytest.mark.parametrize("topic_filter", [b"a/b", b"a/+", b"#", b"$share/g/a/b"])
def test_mqtt5_3_10_4_2_no_new_messages(harness: BrokerHarness, topic_filter: bytes) -> None:
    """After UNSUBSCRIBE nothing more is added, also on a topic that was published before."""
    client = harness.client("c")
    client.subscribe(topic_filter, qos=1)
    publisher = harness.client("p")
    publisher.publish(b"a/b", b"1", qos=1)
    assert len(client.consume()) == 1
    client.unsubscribe(topic_filter)
    assert publisher.publish(b"a/b", b"2", qos=1) == 0x10
    assert client.messages() == []


@clause("5.0", "MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_10_4_3_deliveries_are_completed(harness: BrokerHarness, qos: int) -> None:
    """What was sent before UNSUBSCRIBE is completed, also over a reconnect."""
    client = harness.client("c", session_expiry_s=60)
    client.subscribe(b"a", qos=qos)
    harness.client("p").publish(b"a", b"x", qos=qos)
    (message,) = client.messages()
    client.unsubscribe(b"a")
    client.drop()
    again = harness.client("c", clean_start=False)
    (repeated,) = again.messages()
    assert (repeated.dup, repeated.packet_id) == (True, message.packet_id)
    again.acknowledge(repeated)
    again.ping()
    again.expect_nothing()


@clause("5.0", "MQTT-3.10.4-5")
def test_mqtt5_3_10_4_5_unsubscribe_without_any_subscription(harness: BrokerHarness) -> None:
    """UNSUBACK also when there never was a subscription; an invalid filter is simply not there."""
    client = harness.client("c")
    client.send(unsubscribe(9, b"a"))
    assert client.expect(Unsuback).reasons == [0x11]
    client.send(unsubscribe(10, b"a/#/b"))
    assert client.expect(Unsuback).reasons[0] in {0x11, 0x8F}


# --- sizes of answers ---


@clause(
    "5.0",
    "MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.11.2-1", "MQTT-3.11.2-2",
    "MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3", "MQTT-3.1.2-24",
)  # fmt: skip
def test_mqtt5_3_9_2_1_answers_fit_the_client(make_harness: MakeHarness) -> None:
    """However small the client's packets: no reason string or user property makes an answer too large for it."""
    harness = make_harness(gate=TopicGate())
    client = harness.client("c", properties=make_properties(maximum_packet_size=30))
    client.send(subscribe(1, (b"forbidden/" + b"x" * 200, 1), (b"a/#/b", 0)))
    client.send(unsubscribe(2, b"nope"))
    client.send(publish(b"forbidden/" + b"x" * 200, qos=1, pid=3))
    client.send(publish(b"forbidden/" + b"x" * 200, qos=2, pid=4))
    packets = client.received()
    assert [type(packet).__name__ for packet in packets] == ["Suback", "Unsuback", "Ack", "Ack"]


@clause("5.0", "MQTT-3.1.2-24")
def test_mqtt5_3_1_2_24_suback_too_large(harness: BrokerHarness) -> None:
    """An answer that is too large even without properties is not sent either."""
    client = harness.client("c", properties=make_properties(maximum_packet_size=40))
    client.send(subscribe(1, *((b"t/%d" % number, 0) for number in range(100))))
    out = client.received_bytes()
    assert out == b"" or (out[0] == 0xE0 and len(out) <= 40 and client.closed), out[:60].hex(" ")


@clause("5.0", "MQTT-3.1.2-29")
def test_mqtt5_3_1_2_29_request_problem_information_0(make_harness: MakeHarness) -> None:
    """With Request Problem Information 0 no answer carries a reason string or user properties; PUBLISH still may."""
    harness = make_harness(gate=TopicGate())
    client = harness.client("c", properties=make_properties(request_problem_information=0))
    client.send(subscribe(1, (b"forbidden/a", 1), (b"a/#/b", 0), (b"a", 0)))
    client.send(unsubscribe(2, b"nope"))
    client.send(publish(b"forbidden/a", qos=1, pid=3))
    client.send(publish(b"forbidden/a", qos=2, pid=4))
    client.send(hexa("62 02 0063") + hexa("50 02 0063"))
    for answer in client.received():
        assert answer.fields()["properties"] is None, answer
    publisher = harness.client("p")
    publisher.publish(b"a", b"x", properties=make_properties(user=[("k", "v")]))
    (message,) = client.messages()
    assert message.properties is not None
    assert message.properties.user == [("k", "v")]


# --- one clause, one test ---


@clause("5.0", "MQTT-2.2.1-6")
@pytest.mark.parametrize("pid", [1, 255, 256, 65_535])
def test_mqtt5_2_2_1_6_answers_repeat_the_identifier(harness: BrokerHarness, pid: int) -> None:
    """SUBACK and UNSUBACK have the identifier of their request."""
    client = harness.client("c")
    client.send(subscribe(pid, (b"a", 0)))
    assert client.expect(Suback).packet_id == pid
    client.send(unsubscribe(pid, b"a"))
    assert client.expect(Unsuback).packet_id == pid


@clause("5.0", "MQTT-3.8.4-2")
def test_mqtt5_3_8_4_2_suback_identifiers(harness: BrokerHarness) -> None:
    """Several SUBSCRIBEs under way are told apart by their identifiers."""
    client = harness.client("c")
    client.send(b"".join(subscribe(pid, (b"a/%d" % pid, 0)) for pid in (9, 3, 7)))
    assert [one.packet_id for one in client.received() if isinstance(one, Suback)] == [9, 3, 7]


@clause("5.0", "MQTT-3.8.4-7")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_3_8_4_7_granted_qos_or_failure(harness: BrokerHarness, qos: int) -> None:
    """What a reason code grants is what is delivered; a failure delivers nothing."""
    client = harness.client("c")
    assert client.subscribe(b"a", qos=qos) == qos
    assert client.subscribe(b"a/#/b", qos=qos) >= 0x80
    harness.client("p").publish(b"a", b"x", qos=2)
    assert [message.qos for message in client.consume()] == [qos]


@clause("5.0", "MQTT-3.9.3-1")
def test_mqtt5_3_9_3_1_order_of_codes(harness: BrokerHarness) -> None:
    """The codes stand in the order of the filters, failures among them."""
    client = harness.client("c")
    client.send(subscribe(1, (b"+x", 0), (b"a", 2), (b"x#", 0), (b"b", 1), (b"c", 0)))
    assert client.expect(Suback).reasons == [0x8F, 2, 0x8F, 1, 0]


@clause("5.0", "MQTT-3.10.3-1")
@pytest.mark.parametrize("topic_filter", [b"\xff", b"a\0", b"\xed\xa0\x80"])
def test_mqtt5_3_10_3_1_unsubscribe_filter_is_utf8(harness: BrokerHarness, topic_filter: bytes) -> None:
    """Filters in UNSUBSCRIBE are valid strings."""
    client = harness.client("c")
    client.send(unsubscribe(1, b"fine", topic_filter))
    assert closed_with(client) == 0x81


@clause("5.0", "MQTT-3.10.4-4")
def test_mqtt5_3_10_4_4_unsuback(harness: BrokerHarness) -> None:
    """Every UNSUBSCRIBE gets its UNSUBACK."""
    client = harness.client("c")
    client.send(unsubscribe(5, b"a") + unsubscribe(6, b"a"))
    assert client.received_bytes() == hexa("b0 04 0005 00 11 b0 04 0006 00 11")


@clause("5.0", "MQTT-3.10.4-6")
def test_mqtt5_3_10_4_6_many_filters(harness: BrokerHarness) -> None:
    """Many filters in one UNSUBSCRIBE are all deleted, one answer says so."""
    client = harness.client("c")
    filters = [b"a", b"b/+", b"c/#"]
    for topic_filter in filters:
        client.subscribe(topic_filter)
    client.send(unsubscribe(1, *filters))
    assert client.expect(Unsuback).reasons == [0, 0, 0]
    client.expect_nothing()
    assert not harness.broker.sessions["c"].subscriptions


@clause("5.0", "MQTT-3.11.3-1")
def test_mqtt5_3_11_3_1_order_of_codes(harness: BrokerHarness) -> None:
    """The codes stand in the order of the filters."""
    client = harness.client("c")
    client.subscribe(b"b")
    client.send(unsubscribe(1, b"a", b"b", b"c", b"b"))
    assert client.expect(Unsuback).reasons == [0x11, 0, 0x11, 0x11]


@clause("5.0", "MQTT-3.11.3-2")
def test_mqtt5_3_11_3_2_one_code_for_each(harness: BrokerHarness) -> None:
    """As many codes as filters, each of the table; the decoder knows no others."""
    client = harness.client("c")
    client.send(unsubscribe(1, *(b"t/%d" % number for number in range(40))))
    assert client.expect(Unsuback).reasons == [0x11] * 40


# --- one clause, one test: answers fit the client, whatever they could say more ---

SMALL = 24
"""Bytes that the smallest CONNACK and every answer without text still fit in."""
LONG_TOPIC = b"forbidden/" + b"x" * 300


def small_client(make_harness: MakeHarness) -> HarnessClient:
    """A client that takes hardly anything, under rules that refuse much."""
    harness = make_harness(gate=TopicGate())
    return harness.client("c", properties=make_properties(maximum_packet_size=SMALL))


def answers(client: HarnessClient, data: bytes, count: int = 1) -> None:
    """There is an answer, it fits, and it has neither text nor user properties then."""
    client.send(data)
    packets = client.received()
    assert len(packets) == count
    assert all(packet.fields()["properties"] is None for packet in packets)


@clause("5.0", "MQTT-3.4.2-2")
def test_mqtt5_3_4_2_2_puback_without_reason_string(make_harness: MakeHarness) -> None:
    """PUBACK leaves its reason string out rather than being too large."""
    answers(small_client(make_harness), publish(LONG_TOPIC, qos=1, pid=1))


@clause("5.0", "MQTT-3.4.2-3")
def test_mqtt5_3_4_2_3_puback_without_user_properties(make_harness: MakeHarness) -> None:
    """PUBACK does not return user properties of the PUBLISH."""
    block = props((USER_PROPERTY, (b"k", b"v" * 100)))
    answers(small_client(make_harness), publish(LONG_TOPIC, qos=1, pid=1, properties=block))


@clause("5.0", "MQTT-3.5.2-2")
def test_mqtt5_3_5_2_2_pubrec_without_reason_string(make_harness: MakeHarness) -> None:
    """PUBREC leaves its reason string out rather than being too large."""
    answers(small_client(make_harness), publish(LONG_TOPIC, qos=2, pid=1))


@clause("5.0", "MQTT-3.5.2-3")
def test_mqtt5_3_5_2_3_pubrec_without_user_properties(make_harness: MakeHarness) -> None:
    """PUBREC does not return user properties of the PUBLISH."""
    block = props((USER_PROPERTY, (b"k", b"v" * 100)))
    answers(small_client(make_harness), publish(LONG_TOPIC, qos=2, pid=1, properties=block))


@clause("5.0", "MQTT-3.6.2-2")
def test_mqtt5_3_6_2_2_pubrel_without_reason_string(make_harness: MakeHarness) -> None:
    """PUBREL of an identifier that is not in use fits."""
    answers(small_client(make_harness), hexa("50 02 0009"))


@clause("5.0", "MQTT-3.6.2-3")
def test_mqtt5_3_6_2_3_pubrel_without_user_properties(make_harness: MakeHarness) -> None:
    """PUBREL does not return user properties of the PUBREC."""
    block = props((USER_PROPERTY, (b"k", b"v" * 100)))
    answers(small_client(make_harness), packet(0x50, hexa("0009 00") + block))


@clause("5.0", "MQTT-3.7.2-1")
def test_mqtt5_3_7_2_1_pubcomp_codes(harness: BrokerHarness) -> None:
    """PUBCOMP says done, or that there was nothing to do."""
    client = harness.client("c")
    client.send(publish(b"a", qos=2, pid=1) + hexa("62 02 0001 62 02 0001"))
    assert client.received_bytes() == hexa("50 03 0001 10 70 02 0001 70 03 0001 92")


@clause("5.0", "MQTT-3.7.2-2")
def test_mqtt5_3_7_2_2_pubcomp_without_reason_string(make_harness: MakeHarness) -> None:
    """PUBCOMP of an identifier that is not in use fits."""
    answers(small_client(make_harness), hexa("62 02 0009"))


@clause("5.0", "MQTT-3.7.2-3")
def test_mqtt5_3_7_2_3_pubcomp_without_user_properties(make_harness: MakeHarness) -> None:
    """PUBCOMP does not return user properties of the PUBREL."""
    block = props((USER_PROPERTY, (b"k", b"v" * 100)))
    answers(small_client(make_harness), packet(0x62, hexa("0009 00") + block))


@clause("5.0", "MQTT-3.9.2-2")
def test_mqtt5_3_9_2_2_suback_without_user_properties(make_harness: MakeHarness) -> None:
    """SUBACK does not return user properties of the SUBSCRIBE."""
    block = props((USER_PROPERTY, (b"k", b"v" * 100)))
    answers(small_client(make_harness), subscribe(1, (LONG_TOPIC, 0), properties=block))


@clause("5.0", "MQTT-3.11.2-1")
def test_mqtt5_3_11_2_1_unsuback_without_reason_string(make_harness: MakeHarness) -> None:
    """UNSUBACK fits."""
    answers(small_client(make_harness), unsubscribe(1, LONG_TOPIC))


@clause("5.0", "MQTT-3.11.2-2")
def test_mqtt5_3_11_2_2_unsuback_without_user_properties(make_harness: MakeHarness) -> None:
    """UNSUBACK does not return user properties of the UNSUBSCRIBE."""
    block = props((USER_PROPERTY, (b"k", b"v" * 100)))
    answers(small_client(make_harness), unsubscribe(1, LONG_TOPIC, properties=block))
