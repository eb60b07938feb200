"""MQTT 3.1.1, sections 3.3 to 3.7, 4.3 to 4.6: messages, retained messages, QoS and redelivery."""

from __future__ import annotations

import pytest

from conformance.checks import closed_silently
from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.gates import TopicGate
from conformance.wire import ack, hexa, publish3, subscribe3
from flockmq.mqtt.packets import Ack
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, HarnessClient


def client3(harness: BrokerHarness, name: str = "c") -> HarnessClient:
    """A 3.1.1 client with a clean session."""
    return harness.client(name, version=4)


def kept(harness: BrokerHarness, name: str = "s") -> HarnessClient:
    """A 3.1.1 client with a session that is kept."""
    return harness.client(name, version=4, clean_start=False)


@clause("3.1.1", "MQTT-3.3.4-1", "MQTT-2.3.1-6", "MQTT-4.3.2-2", "MQTT-4.3.3-2")
def test_mqtt311_3_3_4_1_answer_by_qos(harness: BrokerHarness) -> None:
    """QoS 0: nothing; QoS 1: PUBACK; QoS 2: PUBREC, PUBCOMP; always four bytes, with the publisher's identifier."""
    client = client3(harness)
    client.send(publish3(b"a", b"x"))
    assert client.received_bytes() == b""
    client.send(publish3(b"a", b"x", qos=1, pid=0x1234))
    assert client.received_bytes() == hexa("40 02 1234")
    client.send(publish3(b"a", b"x", qos=2, pid=0x4321))
    assert client.received_bytes() == hexa("50 02 4321")
    client.send(ack(0x62, 0x4321))
    assert client.received_bytes() == hexa("70 02 4321")
    client.send(ack(0x62, 0x4321))
    assert client.received_bytes() == hexa("70 02 4321"), "a PUBREL again, for example after a reconnect"


@clause("3.1.1", "MQTT-2.3.1-5", "MQTT-4.3.1-1", "MQTT-3.3.1-2")
def test_mqtt311_2_3_1_5_qos_0(harness: BrokerHarness) -> None:
    """QoS 0 goes out with QoS 0, DUP 0 and no identifier: byte for byte what came in."""
    client = client3(harness)
    client.subscribe(b"a/b", qos=2)
    client.send(hexa("30 07 0003 612f62 00 01"))
    assert client.received_bytes() == hexa("30 07 0003 612f62 00 01")


@clause("3.1.1", "MQTT-3.3.1-2")
def test_mqtt311_3_3_1_2_dup_at_qos_0(harness: BrokerHarness) -> None:
    """DUP on QoS 0 is a violation."""
    client = client3(harness)
    client.send(publish3(b"a", dup=1))
    closed_silently(client)


@clause("3.1.1", "MQTT-3.3.1-4")
def test_mqtt311_3_3_1_4_qos_3(harness: BrokerHarness) -> None:
    """QoS 3 closes."""
    client = client3(harness)
    client.send(publish3(b"a", qos=3, pid=1))
    closed_silently(client)


@clause("3.1.1", "MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt311_3_3_1_3_dup_is_not_forwarded(harness: BrokerHarness, qos: int) -> None:
    """A publisher's DUP does not reach subscribers."""
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"a", qos=2)
    client3(harness).send(publish3(b"a", b"x", qos=qos, pid=1, dup=1))
    assert [(message.payload, message.dup) for message in subscriber.messages()] == [(b"x", False)]


# --- retained ---


@clause("3.1.1", "MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_3_3_1_5_retained(harness: BrokerHarness, qos: int) -> None:
    """The last retained message of each matching topic, with its QoS and RETAIN 1, goes to a new subscription."""
    publisher = client3(harness)
    publisher.publish(b"a/1", b"old", qos=qos, retain=True)
    publisher.publish(b"a/1", b"new", qos=qos, retain=True)
    publisher.publish(b"a/2", b"other", qos=qos, retain=True)
    late = client3(harness, "late")
    late.subscribe(b"a/+", qos=2)
    got = sorted((message.payload, message.qos, message.retain) for message in late.consume())
    assert got == [(b"new", qos, True), (b"other", qos, True)]


@clause("3.1.1", "MQTT-3.3.1-7")
def test_mqtt311_3_3_1_7_qos_0_replaces(harness: BrokerHarness) -> None:
    """A retained QoS 0 message replaces one of QoS 2."""
    publisher = client3(harness)
    publisher.publish(b"a", b"qos 2", qos=2, retain=True)
    publisher.publish(b"a", b"qos 0", retain=True)
    late = client3(harness, "late")
    late.subscribe(b"a", qos=2)
    assert [(message.payload, message.qos) for message in late.messages()] == [(b"qos 0", 0)]


@clause("3.1.1", "MQTT-3.3.1-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_3_3_1_9_retain_is_cleared(harness: BrokerHarness, qos: int) -> None:
    """RETAIN is 0 towards a subscription that was there."""
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"a", qos=qos)
    client3(harness).publish(b"a", b"x", qos=qos, retain=True)
    assert [message.retain for message in subscriber.consume()] == [False]


@clause("3.1.1", "MQTT-3.3.1-10", "MQTT-3.3.1-11")
def test_mqtt311_3_3_1_10_empty_retained(harness: BrokerHarness) -> None:
    """Without payload: forwarded, removes what was retained, is not stored."""
    publisher = client3(harness)
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"a")
    publisher.publish(b"a", b"x", retain=True)
    publisher.publish(b"a", b"", retain=True)
    assert [(message.payload, message.retain) for message in subscriber.messages()] == [(b"x", False), (b"", False)]
    late = client3(harness, "late")
    late.subscribe(b"a")
    assert late.messages() == []


@clause("3.1.1", "MQTT-3.3.1-12")
def test_mqtt311_3_3_1_12_without_retain(harness: BrokerHarness) -> None:
    """RETAIN 0 neither stores nor removes."""
    publisher = client3(harness)
    publisher.publish(b"a", b"kept", retain=True)
    publisher.publish(b"a", b"")
    publisher.publish(b"b", b"x")
    late = client3(harness, "late")
    late.subscribe(b"#")
    assert late.payloads() == [b"kept"]


# --- topics and rights ---


@clause("3.1.1", "MQTT-3.3.2-1", "MQTT-3.3.2-2", "MQTT-4.7.1-1", "MQTT-4.7.3-1", "MQTT-4.7.3-2", "MQTT-4.8.0-1")
@pytest.mark.parametrize("topic", [b"a/+", b"#", b"", b"a\0", b"\xff", b"\xed\xa0\x80"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_3_3_2_2_invalid_topic_name(harness: BrokerHarness, topic: bytes, qos: int) -> None:
    """An invalid topic name closes the connection; nobody gets the message and it is not acknowledged."""
    watcher = client3(harness, "w")
    watcher.subscribe(b"#")
    client = client3(harness)
    client.send(publish3(topic, b"x", qos=qos, pid=1))
    closed_silently(client)
    assert watcher.messages() == []


@clause("3.1.1", "MQTT-3.3.2-3", "MQTT-4.7.3-4")
def test_mqtt311_3_3_2_3_only_what_matches(harness: BrokerHarness) -> None:
    """Only matching names, as they were published."""
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"a/+/c")
    publisher = client3(harness)
    for topic in (b"a/b/c", b"a/B/c", b"a/b/C", b"a/c", b"a//c"):
        publisher.publish(topic, b"x")
    assert subscriber.topics() == [b"a/b/c", b"a/B/c", b"a//c"]


@clause("3.1.1", "MQTT-3.3.5-2")
def test_mqtt311_3_3_5_2_not_allowed(make_harness: MakeHarness) -> None:
    """A publish that is not allowed is acknowledged as usual (or the connection closed), and reaches nobody."""
    harness = make_harness(gate=TopicGate())
    watcher = client3(harness, "w")
    watcher.subscribe(b"#", qos=2)
    client = client3(harness)
    client.send(publish3(b"forbidden", b"x") + publish3(b"forbidden", b"x", qos=1, pid=1, retain=1))
    assert client.received_bytes() in {hexa("40 02 0001"), b""}
    if not client.closed:
        client.send(publish3(b"forbidden", b"x", qos=2, pid=2))
        assert client.received_bytes() == hexa("50 02 0002")
        client.send(ack(0x62, 2))
        assert client.received_bytes() == hexa("70 02 0002")
    assert watcher.messages() == []
    assert harness.broker.retained.usage.count == 0


@clause("3.1.1", "MQTT-4.8.0-2")
def test_mqtt311_4_8_0_2_quota(make_harness: MakeHarness) -> None:
    """What can't be taken now, and has no word in 3.1.1, must not be acknowledged: the connection is closed."""
    harness = make_harness(BrokerSettings(retained_messages_max=1))
    client = client3(harness)
    client.publish(b"a", b"x", qos=1, retain=True)
    client.send(publish3(b"b", b"x", qos=1, pid=9, retain=1))
    closed_silently(client)


@clause("3.1.1", "MQTT-3.3.5-1")
def test_mqtt311_3_3_5_1_overlap(harness: BrokerHarness) -> None:
    """Overlapping subscriptions: the highest QoS, one copy."""
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"a/b", qos=0)
    subscriber.subscribe(b"a/#", qos=2)
    subscriber.subscribe(b"+/b", qos=1)
    client3(harness).publish(b"a/b", b"x", qos=2)
    assert [message.qos for message in subscriber.consume()] == [2]


@clause("3.1.1", "MQTT-3.8.4-6")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_mqtt311_3_8_4_6_lower_qos_wins(harness: BrokerHarness, published: int, granted: int) -> None:
    """The lower of published and granted QoS."""
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"a", qos=granted)
    client3(harness).publish(b"a", b"x", qos=published)
    assert [message.qos for message in subscriber.consume()] == [min(published, granted)]


# --- receiving QoS 1 and 2 ---


@clause("3.1.1", "MQTT-4.3.2-2")
def test_mqtt311_4_3_2_2_identifier_is_free_after_puback(harness: BrokerHarness) -> None:
    """After PUBACK the same identifier is a new message, whatever DUP says."""
    watcher = client3(harness, "w")
    watcher.subscribe(b"a")
    client = client3(harness)
    for dup in (0, 1, 0):
        client.send(publish3(b"a", b"x", qos=1, pid=7, dup=dup))
    assert client.received_bytes() == hexa("40 02 0007") * 3
    assert len(watcher.messages()) == 3


@clause("3.1.1", "MQTT-4.3.3-2")
def test_mqtt311_4_3_3_2_exactly_once(harness: BrokerHarness) -> None:
    """Until PUBREL the identifier is the same message, also over a reconnect; after PUBCOMP it is a new one."""
    watcher = client3(harness, "w")
    watcher.subscribe(b"a", qos=2)
    client = kept(harness, "c")
    client.send(publish3(b"a", b"1", qos=2, pid=7))
    client.send(publish3(b"a", b"1", qos=2, pid=7, dup=1))
    assert client.received_bytes() == hexa("50 02 0007") * 2
    client.drop()
    client = kept(harness, "c")
    client.send(publish3(b"a", b"1", qos=2, pid=7, dup=1))
    assert client.received_bytes() == hexa("50 02 0007")
    client.send(ack(0x62, 7))
    assert client.received_bytes() == hexa("70 02 0007")
    client.send(publish3(b"a", b"2", qos=2, pid=7))
    assert client.received_bytes() == hexa("50 02 0007")
    assert [message.payload for message in watcher.consume()] == [b"1", b"2"]


@clause("3.1.1", "MQTT-4.6.0-2", "MQTT-4.6.0-3", "MQTT-4.6.0-4")
def test_mqtt311_4_6_0_2_answers_in_order(harness: BrokerHarness) -> None:
    """PUBACKs and PUBRECs in the order of the PUBLISHes, PUBRELs in the order of the PUBRECs."""
    client = client3(harness)
    ids = [5, 2, 9, 1]
    client.send(b"".join(publish3(b"t/%d" % pid, qos=1, pid=pid) for pid in ids))
    client.send(b"".join(publish3(b"t/%d" % pid, qos=2, pid=pid) for pid in ids))
    assert [packet.packet_id for packet in client.received() if isinstance(packet, Ack)] == ids + ids
    subscriber = kept(harness)
    subscriber.subscribe(b"q", qos=2)
    publisher = client3(harness, "p")
    for _ in range(4):
        publisher.publish(b"q", b"x", qos=2)
    got = [message.packet_id for message in subscriber.messages()]
    order = [got[2], got[0], got[3], got[1]]
    subscriber.send(b"".join(ack(0x50, pid) for pid in order))
    assert subscriber.received_bytes() == b"".join(ack(0x62, pid) for pid in order)


# --- sending QoS 1 and 2 ---


@clause("3.1.1", "MQTT-4.3.2-1", "MQTT-2.3.1-4", "MQTT-2.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt311_4_3_2_1_identifiers(harness: BrokerHarness, qos: int) -> None:
    """Messages in flight have different identifiers that are not 0, and DUP 0."""
    subscriber = kept(harness)
    subscriber.subscribe(b"a", qos=qos)
    publisher = client3(harness)
    for _ in range(50):
        publisher.publish(b"a", b"x", qos=qos)
    messages = subscriber.messages()
    assert len({message.packet_id for message in messages}) == 50
    assert all(message.packet_id and not message.dup for message in messages)


@clause("3.1.1", "MQTT-3.3.1-1", "MQTT-4.4.0-1", "MQTT-4.6.0-1", "MQTT-4.3.2-1")
def test_mqtt311_4_4_0_1_redelivery(harness: BrokerHarness) -> None:
    """On resume what is unacknowledged comes again in order, with its identifier and DUP."""
    subscriber = kept(harness)
    subscriber.subscribe(b"#", qos=2)
    publisher = client3(harness)
    for number in range(6):
        publisher.publish(b"t/%d" % (number % 2), b"%d" % number, qos=1 + number % 2)
    first = subscriber.messages()
    subscriber.acknowledge(first[2])
    subscriber.drop()
    again = kept(harness).messages()
    expected = [message for message in first if message is not first[2]]
    assert [(one.packet_id, one.payload, one.qos) for one in again] == [
        (one.packet_id, one.payload, one.qos) for one in expected
    ]
    assert all(one.dup for one in again)


@clause("3.1.1", "MQTT-4.3.3-1", "MQTT-4.4.0-1", "MQTT-2.3.1-6")
def test_mqtt311_4_3_3_1_qos_2_stages(harness: BrokerHarness) -> None:
    """PUBLISH until PUBREC, then PUBREL until PUBCOMP, never back."""
    subscriber = kept(harness)
    subscriber.subscribe(b"a", qos=2)
    client3(harness).publish(b"a", b"x", qos=2)
    (message,) = subscriber.messages()
    pid = message.packet_id
    subscriber.send(ack(0x50, pid))
    assert subscriber.received_bytes() == ack(0x62, pid)
    subscriber.send(ack(0x50, pid))
    assert subscriber.received_bytes() == ack(0x62, pid), "a PUBREC again is answered again"
    subscriber.drop()
    subscriber = kept(harness)
    assert subscriber.received_bytes() == ack(0x62, pid)
    subscriber.send(ack(0x70, pid))
    subscriber.drop()
    kept(harness).expect_nothing()


@clause("3.1.1", "MQTT-4.5.0-1", "MQTT-3.1.2-5")
def test_mqtt311_4_5_0_1_every_matching_session(harness: BrokerHarness) -> None:
    """An accepted message is in every matching session, connected or not."""
    present = client3(harness, "present")
    present.subscribe(b"a", qos=1)
    away = kept(harness, "away")
    away.subscribe(b"+", qos=1)
    away.drop()
    client3(harness).publish(b"a", b"x", qos=1)
    assert [message.payload for message in present.consume()] == [b"x"]
    assert [message.payload for message in kept(harness, "away").consume()] == [b"x"]


@clause("3.1.1", "MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt311_4_6_0_6_order(make_harness: MakeHarness, qos: int) -> None:
    """Messages of one client to one topic arrive in order, also through a small window."""
    harness = make_harness(limits=Limits(inflight_max=3))
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"#", qos=qos)
    publisher = client3(harness)
    publisher.send(b"".join(publish3(b"t/%d" % (n % 3), b"%d" % n, qos=qos, pid=n + 1) for n in range(60)))
    got = subscriber.consume()
    assert len(got) == 60
    for topic in (b"t/0", b"t/1", b"t/2"):
        numbers = [int(message.payload) for message in got if message.topic == topic]
        assert numbers == sorted(numbers)


def test_packet_size_limit_311(make_harness: MakeHarness) -> None:
    """A packet beyond the listener's limit closes a 3.1.1 connection."""
    harness = make_harness(limits=Limits(packet_bytes_max=100))
    client = client3(harness)
    client.send(publish3(b"a", b"x" * 100))
    closed_silently(client)


def test_too_many_unreleased_311(make_harness: MakeHarness) -> None:
    """The bound on unreleased QoS 2 messages holds for 3.1.1 by closing."""
    harness = make_harness(limits=Limits(receive_max=3))
    client = client3(harness)
    client.send(b"".join(publish3(b"a", b"x", qos=2, pid=pid) for pid in (1, 2, 3)))
    client.received()
    client.send(publish3(b"a", b"x", qos=2, pid=4))
    closed_silently(client)


def test_subscribe_and_publish_in_one_read(harness: BrokerHarness) -> None:
    """Order within a read is kept: the subscription is there when the publish is routed."""
    client = client3(harness)
    client.send(publish3(b"a", b"before") + subscribe3(1, (b"a", 0)) + publish3(b"a", b"after"))
    assert client.received_bytes() == hexa("90 03 0001 00") + publish3(b"a", b"after")


# --- one clause, one test ---


@clause("3.1.1", "MQTT-2.3.1-4")
def test_mqtt311_2_3_1_4_identifier_of_the_server(harness: BrokerHarness) -> None:
    """The server repeats with the same identifier and reuses it only after the acknowledgement."""
    subscriber = kept(harness)
    subscriber.subscribe(b"a", qos=1)
    publisher = client3(harness)
    publisher.publish(b"a", b"1", qos=1)
    (first,) = subscriber.messages()
    subscriber.drop()
    subscriber = kept(harness)
    (again,) = subscriber.messages()
    assert again.packet_id == first.packet_id
    publisher.publish(b"a", b"2", qos=1)
    (second,) = subscriber.messages()
    assert second.packet_id != first.packet_id


@clause("3.1.1", "MQTT-2.3.1-6")
@pytest.mark.parametrize("pid", [1, 255, 256, 65_535])
def test_mqtt311_2_3_1_6_answers_repeat_the_identifier(harness: BrokerHarness, pid: int) -> None:
    """PUBACK, PUBREC and PUBCOMP have the identifier of their PUBLISH."""
    client = client3(harness)
    client.send(publish3(b"a", qos=1, pid=pid) + publish3(b"a", qos=2, pid=pid) + ack(0x62, pid))
    assert client.received_bytes() == ack(0x40, pid) + ack(0x50, pid) + ack(0x70, pid)


@clause("3.1.1", "MQTT-3.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt311_3_3_1_1_dup_on_redelivery(harness: BrokerHarness, qos: int) -> None:
    """The first sending has DUP 0, every later one DUP 1."""
    subscriber = kept(harness)
    subscriber.subscribe(b"a", qos=qos)
    client3(harness).publish(b"a", b"x", qos=qos)
    seen = [message.dup for message in subscriber.messages()]
    for _ in range(2):
        subscriber.drop()
        subscriber = kept(harness)
        seen += [message.dup for message in subscriber.messages()]
    assert seen == [False, True, True]


@clause("3.1.1", "MQTT-3.3.1-6")
def test_mqtt311_3_3_1_6_last_retained_of_each_topic(harness: BrokerHarness) -> None:
    """A new subscription gets the last retained message of each matching topic."""
    publisher = client3(harness)
    for number in range(3):
        for topic in (b"a/1", b"a/2", b"b"):
            publisher.publish(topic, b"%d" % number, retain=True)
    late = client3(harness, "late")
    late.subscribe(b"a/+")
    assert sorted((message.topic, message.payload) for message in late.messages()) == [(b"a/1", b"2"), (b"a/2", b"2")]


@clause("3.1.1", "MQTT-3.3.1-8")
def test_mqtt311_3_3_1_8_retain_flag_for_new_subscriptions(harness: BrokerHarness) -> None:
    """RETAIN is 1 on what a new subscription is sent, byte for byte."""
    client = client3(harness)
    client.publish(b"a", b"x", retain=True)
    client.send(subscribe3(1, (b"a", 0)))
    assert client.received_bytes() == hexa("90 03 0001 00 31 04 0001 61 78")


@clause("3.1.1", "MQTT-3.3.1-11")
def test_mqtt311_3_3_1_11_empty_is_not_stored(harness: BrokerHarness) -> None:
    """A retained message without payload is not stored."""
    client3(harness).publish(b"a", b"", retain=True)
    assert harness.broker.retained.usage.count == 0


@clause("3.1.1", "MQTT-3.3.2-1")
@pytest.mark.parametrize("topic", [b"\xff", b"\xc0\x80", b"a\0"])
def test_mqtt311_3_3_2_1_topic_name_is_utf8(harness: BrokerHarness, topic: bytes) -> None:
    """The topic name is a valid string."""
    client = client3(harness)
    client.send(publish3(topic, b"x"))
    closed_silently(client)


@clause("3.1.1", "MQTT-4.3.1-1")
def test_mqtt311_4_3_1_1_qos_0(harness: BrokerHarness) -> None:
    """QoS 0 goes out as 0x30, also when it was published with more."""
    client = client3(harness)
    client.subscribe(b"a", qos=0)
    client3(harness, "p").publish(b"a", b"x", qos=2)
    assert client.received_bytes() == hexa("30 04 0001 61 78")


@clause("3.1.1", "MQTT-4.6.0-1")
def test_mqtt311_4_6_0_1_repeated_in_order(harness: BrokerHarness) -> None:
    """Repetitions come in the order of the first sending."""
    subscriber = kept(harness)
    subscriber.subscribe(b"#", qos=2)
    publisher = client3(harness)
    for number in range(10):
        publisher.publish(b"t/%d" % (number % 3), b"%d" % number, qos=1 + number % 2)
    subscriber.drop()
    assert [int(message.payload) for message in kept(harness).messages()] == list(range(10))


@clause("3.1.1", "MQTT-4.6.0-3")
def test_mqtt311_4_6_0_3_pubrecs_in_order(harness: BrokerHarness) -> None:
    """PUBRECs in the order of the PUBLISHes."""
    client = client3(harness)
    ids = [5, 3, 9, 1]
    client.send(b"".join(publish3(b"t/%d" % pid, qos=2, pid=pid) for pid in ids))
    assert client.received_bytes() == b"".join(ack(0x50, pid) for pid in ids)


@clause("3.1.1", "MQTT-4.6.0-4")
def test_mqtt311_4_6_0_4_pubrels_in_order(harness: BrokerHarness) -> None:
    """PUBRELs in the order of the PUBRECs, also when repeated."""
    subscriber = kept(harness)
    subscriber.subscribe(b"a", qos=2)
    publisher = client3(harness)
    for _ in range(4):
        publisher.publish(b"a", b"x", qos=2)
    ids = [message.packet_id for message in subscriber.messages()]
    order = [ids[3], ids[1], ids[0], ids[2]]
    subscriber.send(b"".join(ack(0x50, pid) for pid in order))
    assert subscriber.received_bytes() == b"".join(ack(0x62, pid) for pid in order)
    subscriber.drop()
    assert kept(harness).received_bytes() == b"".join(ack(0x62, pid) for pid in order)


@clause("3.1.1", "MQTT-4.6.0-5")
def test_mqtt311_4_6_0_5_every_topic_is_ordered(harness: BrokerHarness) -> None:
    """Without any setting every topic keeps its order."""
    subscriber = client3(harness, "s")
    subscriber.subscribe(b"a", qos=1)
    client3(harness).send(b"".join(publish3(b"a", b"%d" % n, qos=1, pid=n + 1) for n in range(50)))
    assert [int(message.payload) for message in subscriber.consume()] == list(range(50))
