"""MQTT 5, sections 4.3, 4.4 and 4.6: delivery at QoS 0, 1 and 2, redelivery and order."""

from __future__ import annotations

import pytest

from conformance.clauses import clause
from conformance.conftest import MakeHarness
from conformance.wire import ack, hexa, publish
from flockmq.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from flockmq.node.settings import Limits
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties


def subscribed(harness: BrokerHarness, qos: int, **options: object) -> HarnessClient:
    """A client with a session that lasts, subscribed to a."""
    client = harness.client("s", session_expiry_s=600, properties=make_properties(**options))
    client.subscribe(b"a", qos=qos)
    return client


def back(harness: BrokerHarness) -> HarnessClient:
    """The same client, connected again."""
    client = harness.client("s", clean_start=False, session_expiry_s=600)
    assert client.connack.session_present
    return client


# --- receiving from publishers ---


@clause("5.0", "MQTT-4.3.2-4", "MQTT-4.3.2-5")
@pytest.mark.parametrize("dup", [0, 1])
def test_mqtt5_4_3_2_5_identifier_is_free_after_puback(harness: BrokerHarness, dup: int) -> None:
    """After PUBACK the same identifier is a new message, whatever DUP says."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    client.send(publish(b"a", b"1", qos=1, pid=5))
    client.send(publish(b"a", b"2", qos=1, pid=5, dup=dup))
    assert client.received_bytes() == hexa("40 02 0005 40 02 0005")
    assert watcher.payloads() == [b"1", b"2"]


@clause("5.0", "MQTT-4.3.3-8", "MQTT-4.3.3-10")
@pytest.mark.parametrize("dup", [0, 1])
def test_mqtt5_4_3_3_10_no_second_delivery(harness: BrokerHarness, dup: int) -> None:
    """Until PUBREL the same identifier gets PUBREC again, and subscribers get nothing more."""
    watcher = harness.client("w")
    watcher.subscribe(b"a", qos=2)
    client = harness.client("c")
    client.send(publish(b"a", b"x", qos=2, pid=5))
    for _ in range(3):
        client.send(publish(b"a", b"x", qos=2, pid=5, dup=dup))
    assert client.received_bytes() == hexa("50 02 0005") * 4
    assert [message.payload for message in watcher.consume()] == [b"x"]


@clause("5.0", "MQTT-4.3.3-10")
def test_mqtt5_4_3_3_10_over_reconnect(harness: BrokerHarness) -> None:
    """An unreleased identifier is session state: a repeat on the next connection is still a repeat."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c", session_expiry_s=60)
    client.send(publish(b"a", b"x", qos=2, pid=5))
    client.drop()
    again = harness.client("c", clean_start=False, session_expiry_s=60)
    again.send(publish(b"a", b"x", qos=2, pid=5, dup=1))
    assert again.received_bytes() == hexa("50 02 0005")
    again.send(ack(0x62, 5))
    assert again.received_bytes() == hexa("70 02 0005")
    assert watcher.payloads() == [b"x"]


@clause("5.0", "MQTT-4.3.3-11", "MQTT-4.3.3-12")
def test_mqtt5_4_3_3_12_identifier_is_free_after_pubcomp(harness: BrokerHarness) -> None:
    """PUBREL is answered by PUBCOMP; then the identifier means a new message."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    for payload in (b"1", b"2", b"3"):
        client.send(publish(b"a", payload, qos=2, pid=5, dup=1))
        client.send(ack(0x62, 5))
    assert client.received_bytes() == hexa("50 02 0005 70 02 0005") * 3
    assert watcher.payloads() == [b"1", b"2", b"3"]


@clause("5.0", "MQTT-4.3.3-11", "MQTT-3.7.2-1", "MQTT-3.7.2-2", "MQTT-3.7.2-3")
def test_mqtt5_4_3_3_11_pubrel_of_nothing(harness: BrokerHarness) -> None:
    """PUBREL for an identifier that is not in use: PUBCOMP 0x92, in its shortest form."""
    client = harness.client("c")
    client.send(ack(0x62, 9))
    assert client.received_bytes() == hexa("70 03 0009 92")
    client.send(ack(0x62, 9, hexa("92 00")))
    assert client.received_bytes() == hexa("70 03 0009 92")


@clause("5.0", "MQTT-4.3.3-9")
def test_mqtt5_4_3_3_9_identifier_after_refusal(harness: BrokerHarness) -> None:
    """After a PUBREC that refuses, the identifier is free: no PUBREL is awaited and it means a new message."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    client.send(publish(b"$SYS/broker/version", b"mine", qos=2, pid=5))
    assert client.expect_ack(PUBREC, 5).reason >= 0x80
    client.send(publish(b"a", b"x", qos=2, pid=5))
    assert client.expect_ack(PUBREC, 5).reason == 0
    assert watcher.payloads() == [b"x"]


@clause("5.0", "MQTT-4.3.3-13")
def test_mqtt5_4_3_3_13_handshake_goes_on_after_expiry(harness: BrokerHarness) -> None:
    """The publisher's handshake is completed although the message has expired meanwhile."""
    client = harness.client("c")
    client.send(Publish(b"a", b"x", 2, False, False, 5, make_properties(message_expiry_s=1)))
    client.expect_ack(PUBREC, 5)
    harness.advance(5_000)
    client.send(ack(0x62, 5))
    assert client.received_bytes() == hexa("70 02 0005")


@clause("5.0", "MQTT-4.6.0-2", "MQTT-4.6.0-3", "MQTT-4.6.0-4")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_6_0_2_answers_in_order(harness: BrokerHarness, qos: int) -> None:
    """PUBACKs and PUBRECs come in the order of the PUBLISHes, also over several topics; PUBCOMPs likewise."""
    client = harness.client("c")
    ids = [9, 3, 7, 1, 65_535, 2]
    client.send(b"".join(publish(b"t/%d" % (pid % 3), b"x", qos=qos, pid=pid) for pid in ids))
    assert [packet.packet_id for packet in client.received() if isinstance(packet, Ack)] == ids
    if qos == 2:
        client.send(b"".join(ack(0x62, pid) for pid in ids))
        assert client.received_bytes() == b"".join(ack(0x70, pid) for pid in ids)


# --- sending to subscribers ---


@clause("5.0", "MQTT-4.3.1-1", "MQTT-3.3.1-2")
def test_mqtt5_4_3_1_1_qos_0(harness: BrokerHarness) -> None:
    """QoS 0 goes out as 0x30: QoS 0, DUP 0, and is never repeated."""
    client = subscribed(harness, 0)
    harness.client("p").publish(b"a", b"x")
    assert client.received_bytes() == hexa("30 05 0001 61 00 78")
    client.drop()
    assert back(harness).messages() == []


@clause("5.0", "MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-4.3.3-1", "MQTT-4.3.3-2", "MQTT-2.2.1-4")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_3_2_1_unused_identifiers(harness: BrokerHarness, qos: int) -> None:
    """Every message in flight has its own identifier, none is 0, none has DUP."""
    client = subscribed(harness, qos)
    publisher = harness.client("p")
    for number in range(200):
        publisher.publish(b"a", b"%d" % number, qos=qos)
    messages = client.messages()
    assert len(messages) == 200
    assert len({message.packet_id for message in messages}) == 200
    assert all(message.packet_id > 0 and not message.dup and message.qos == qos for message in messages)


@clause("5.0", "MQTT-2.2.1-4", "MQTT-4.3.2-1")
def test_mqtt5_2_2_1_4_identifiers_go_round(harness: BrokerHarness) -> None:
    """After 65,535 identifiers they begin anew; one that is still unacknowledged is not given again."""
    client = subscribed(harness, 1)
    publisher = harness.client("p")
    publisher.publish(b"a", b"held", qos=1)
    (held,) = client.messages()
    batch = b"".join(publish(b"a", b"x", qos=1, pid=1) for _ in range(1000))
    if harness.feeding == "bytes":
        pytest.skip("a million single bytes prove nothing more")
    seen: set[int] = set()
    total = 0
    for _ in range(67):
        publisher.send(batch)
        publisher.received_bytes()
        while messages := client.messages():
            ids = {message.packet_id for message in messages}
            assert len(ids) == len(messages)
            assert held.packet_id not in ids
            assert 0 not in ids
            seen |= ids
            total += len(messages)
            client.send(b"".join(ack(0x40, message.packet_id) for message in messages))
        if total >= 65_534:
            break
    client.acknowledge(held)
    rest = client.consume()
    for _ in range(3):
        publisher.send(batch)
        publisher.received_bytes()
        rest += client.consume()
    assert total + len(rest) > 65_535 + 1000
    assert all(message.packet_id > 0 for message in rest)


@clause("5.0", "MQTT-4.3.2-3", "MQTT-4.4.0-1", "MQTT-3.3.1-1")
def test_mqtt5_4_4_0_1_qos_1_redelivery(harness: BrokerHarness) -> None:
    """On resume everything unacknowledged comes again: same identifier, DUP set, same content, first order."""
    client = subscribed(harness, 1)
    publisher = harness.client("p")
    for number in range(6):
        publisher.publish(b"a", b"%d" % number, qos=1, properties=make_properties(user=[("n", str(number))]))
    first = client.messages()
    for index in (1, 4):
        client.acknowledge(first[index])
    client.drop()
    again = back(harness).messages()
    expected = [first[index] for index in (0, 2, 3, 5)]
    assert [message.packet_id for message in again] == [message.packet_id for message in expected]
    assert [message.payload for message in again] == [message.payload for message in expected]
    assert [message.properties for message in again] == [message.properties for message in expected]
    assert all(message.dup for message in again)


@clause("5.0", "MQTT-4.4.0-1")
def test_mqtt5_4_4_0_1_only_on_resume(harness: BrokerHarness) -> None:
    """Nothing is sent again while the connection lasts, however long the client takes."""
    client = subscribed(harness, 2)
    publisher = harness.client("p")
    publisher.publish(b"a", b"1", qos=1)
    publisher.publish(b"a", b"2", qos=2)
    assert len(client.messages()) == 2
    harness.advance(3_600_000)
    client.ping()
    client.expect_nothing()


@clause("5.0", "MQTT-4.4.0-1")
def test_mqtt5_4_4_0_1_again_and_again(harness: BrokerHarness) -> None:
    """As often as the client comes back without acknowledging, and not after it did."""
    client = subscribed(harness, 1)
    harness.client("p").publish(b"a", b"x", qos=1)
    (message,) = client.messages()
    for _ in range(3):
        client.drop()
        client = back(harness)
        (repeated,) = client.messages()
        assert (repeated.packet_id, repeated.dup) == (message.packet_id, True)
    client.acknowledge(repeated)
    client.drop()
    assert back(harness).messages() == []


@clause("5.0", "MQTT-4.3.3-3", "MQTT-4.3.3-4", "MQTT-4.3.3-5", "MQTT-4.3.3-6", "MQTT-3.6.2-1", "MQTT-4.4.0-1")
def test_mqtt5_4_3_3_6_qos_2_stages(harness: BrokerHarness) -> None:
    """PUBLISH is repeated until PUBREC; from then on PUBREL, never PUBLISH, until PUBCOMP."""
    client = subscribed(harness, 2)
    harness.client("p").publish(b"a", b"x", qos=2)
    (message,) = client.messages()
    pid = message.packet_id
    client.drop()
    client = back(harness)
    (repeated,) = client.messages()
    assert (repeated.packet_id, repeated.dup, repeated.qos) == (pid, True, 2)
    client.send(ack(0x50, pid))
    assert client.received_bytes() == ack(0x62, pid)
    for _ in range(2):
        client.drop()
        client = back(harness)
        assert client.received_bytes() == ack(0x62, pid)
    client.send(ack(0x70, pid))
    client.drop()
    back(harness).expect_nothing()


@clause("5.0", "MQTT-4.3.3-4", "MQTT-4.6.0-4", "MQTT-2.2.1-5")
def test_mqtt5_4_6_0_4_pubrel_in_order_of_pubrec(harness: BrokerHarness) -> None:
    """PUBRELs follow the order of the client's PUBRECs, also when that is not the order of the PUBLISHes."""
    client = subscribed(harness, 2)
    publisher = harness.client("p")
    for number in range(5):
        publisher.publish(b"a", b"%d" % number, qos=2)
    ids = [message.packet_id for message in client.messages()]
    order = [ids[index] for index in (3, 0, 4, 1, 2)]
    client.send(b"".join(ack(0x50, pid) for pid in order))
    assert client.received_bytes() == b"".join(ack(0x62, pid) for pid in order)
    client.drop()
    assert back(harness).received_bytes() == b"".join(ack(0x62, pid) for pid in order)


@clause("5.0", "MQTT-3.6.2-1", "MQTT-3.6.2-2", "MQTT-3.6.2-3")
def test_mqtt5_3_6_2_1_pubrec_of_nothing(harness: BrokerHarness) -> None:
    """PUBREC for an identifier that is not in use: PUBREL 0x92; PUBACK and PUBCOMP of nothing are ignored."""
    client = subscribed(harness, 2)
    client.send(ack(0x50, 9))
    assert client.received_bytes() == hexa("62 03 0009 92")
    client.send(ack(0x40, 9) + ack(0x70, 9) + ack(0x40, 10, hexa("80 00")) + ack(0x50, 11, hexa("80 00")))
    client.ping()
    client.expect_nothing()


@clause("5.0", "MQTT-4.4.0-2", "MQTT-4.8.2-6")
@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_4_0_2_refused_by_the_client(harness: BrokerHarness, qos: int, reason: int) -> None:
    """A PUBACK or PUBREC of 0x80 and above ends the delivery: no PUBREL, no repetition, the window is free again."""
    client = subscribed(harness, qos, receive_maximum=1)
    publisher = harness.client("p")
    publisher.publish(b"a", b"1", qos=qos)
    publisher.publish(b"a", b"2", qos=qos)
    (message,) = client.messages()
    client.acknowledge(message, reason)
    (second,) = client.messages()
    assert second.payload == b"2"
    client.expect_nothing()
    client.drop()
    assert [one.payload for one in back(harness).messages()] == [b"2"]


@clause("5.0", "MQTT-4.3.2-3", "MQTT-4.3.3-3")
def test_mqtt5_4_3_2_3_acknowledgement_of_the_wrong_kind(harness: BrokerHarness) -> None:
    """PUBACK does not settle a QoS 2 message, nor PUBREC or PUBCOMP one of QoS 1."""
    client = subscribed(harness, 2)
    publisher = harness.client("p")
    publisher.publish(b"a", b"one", qos=1)
    publisher.publish(b"a", b"two", qos=2)
    one, two = client.messages()
    client.send(ack(0x40, two.packet_id) + ack(0x70, two.packet_id) + ack(0x70, one.packet_id))
    if not client.closed:
        client.drop()
    assert [message.payload for message in back(harness).messages()] == [b"one", b"two"]


@clause("5.0", "MQTT-4.3.3-7")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_3_3_7_no_expiry_once_sent(harness: BrokerHarness, qos: int) -> None:
    """A message that was sent does not expire: it is repeated, and its handshake completed."""
    client = subscribed(harness, qos)
    harness.client("p").publish(b"a", b"x", qos=qos, properties=make_properties(message_expiry_s=5))
    assert len(client.messages()) == 1
    client.drop()
    harness.advance(20_000)
    client = back(harness)
    (repeated,) = client.messages()
    assert repeated.dup
    client.acknowledge(repeated)
    client.drop()
    assert back(harness).messages() == []


@clause("5.0", "MQTT-4.6.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_4_6_0_1_repeated_in_order(harness: BrokerHarness, qos: int) -> None:
    """Repetitions come in the order of the first sending, over several topics, and before what is new."""
    client = harness.client("s", session_expiry_s=600)
    client.subscribe(b"#", qos=qos)
    publisher = harness.client("p")
    topics = [b"a", b"a", b"b", b"a", b"c", b"c", b"b"]
    for number, topic in enumerate(topics):
        publisher.publish(topic, b"%d" % number, qos=qos)
    first = client.messages()
    client.drop()
    publisher.publish(b"a", b"new", qos=qos)
    again = back(harness).messages()
    assert [message.packet_id for message in again[:-1]] == [message.packet_id for message in first]
    assert [message.payload for message in again] == [b"%d" % number for number in range(7)] + [b"new"]
    assert [message.dup for message in again] == [True] * 7 + [False]


@clause("5.0", "MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt5_4_6_0_5_order_of_one_publisher(harness: BrokerHarness, qos: int) -> None:
    """Messages of one publisher to one topic arrive in order, through queue and window."""
    client = harness.client("s", properties=make_properties(receive_maximum=3))
    client.subscribe(b"a/#", qos=qos)
    publisher = harness.client("p")
    data = b""
    for number in range(60):
        topic = b"a/%d" % (number % 2)
        data += publish(topic, b"%d" % number, qos=qos, pid=number + 1)
    publisher.send(data)
    got = client.consume()
    for topic in (b"a/0", b"a/1"):
        numbers = [int(message.payload) for message in got if message.topic == topic]
        assert numbers == sorted(numbers)
        assert len(numbers) == 30


@clause("5.0", "MQTT-4.5.0-1")
def test_mqtt5_4_5_0_1_every_matching_session(harness: BrokerHarness) -> None:
    """An accepted message is in the session of every client that matches, connected or away."""
    present = harness.client("present")
    present.subscribe(b"a", qos=1)
    away = harness.client("away", session_expiry_s=60)
    away.subscribe(b"+", qos=2)
    away.drop()
    deaf = harness.client("deaf")
    deaf.subscribe(b"b", qos=1)
    assert harness.client("p").publish(b"a", b"x", qos=1) == 0
    assert [message.payload for message in present.consume()] == [b"x"]
    assert [message.payload for message in harness.client("away", clean_start=False).consume()] == [b"x"]
    assert deaf.messages() == []


def test_handshakes_interleave(harness: BrokerHarness) -> None:
    """Client and broker use the same identifiers in both directions without confusion."""
    client = harness.client("c")
    client.subscribe(b"a", qos=2)
    client.send(publish(b"a", b"x", qos=2, pid=1))
    (message,) = client.messages()
    assert client.expect_ack(PUBREC, 1).reason == 0
    assert message.packet_id == 1, "the broker's own numbering begins at 1 too"
    client.send(ack(0x50, 1))
    client.expect_ack(PUBREL, 1)
    client.send(ack(0x62, 1))
    client.expect_ack(PUBCOMP, 1)
    client.send(ack(0x70, 1))
    client.send(publish(b"a", b"y", qos=1, pid=1))
    assert client.expect_ack(PUBACK, 1).reason == 0
    assert client.payloads() == [b"y"]


# --- one clause, one test ---


@clause("5.0", "MQTT-3.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt5_3_3_1_1_dup_on_redelivery(harness: BrokerHarness, qos: int) -> None:
    """The first sending has DUP 0, every later one DUP 1."""
    client = subscribed(harness, qos)
    harness.client("p").publish(b"a", b"x", qos=qos)
    seen = [message.dup for message in client.messages()]
    for _ in range(2):
        client.drop()
        client = back(harness)
        seen += [message.dup for message in client.messages()]
    assert seen == [False, True, True]


@clause("5.0", "MQTT-4.3.2-2")
def test_mqtt5_4_3_2_2_first_sending_of_qos_1(harness: BrokerHarness) -> None:
    """0x32: QoS 1, DUP 0, then the packet identifier."""
    client = subscribed(harness, 1)
    harness.client("p").publish(b"a", b"x", qos=1)
    assert client.received_bytes() == hexa("32 07 0001 61 0001 00 78")


@clause("5.0", "MQTT-4.3.2-4")
def test_mqtt5_4_3_2_4_puback(harness: BrokerHarness) -> None:
    """PUBACK comes once the message is with those who want it."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    client.send(publish(b"a", b"x", qos=1, pid=77))
    assert client.received_bytes() == ack(0x40, 77)
    assert watcher.payloads() == [b"x"]


@clause("5.0", "MQTT-4.3.3-1")
def test_mqtt5_4_3_3_1_identifier_stays_in_use_until_pubcomp(harness: BrokerHarness) -> None:
    """A QoS 2 identifier is not given to another message before PUBCOMP."""
    client = subscribed(harness, 2)
    publisher = harness.client("p")
    publisher.publish(b"a", b"x", qos=2)
    (first,) = client.messages()
    client.send(ack(0x50, first.packet_id))
    for _ in range(100):
        publisher.publish(b"a", b"y", qos=2)
    assert first.packet_id not in {message.packet_id for message in client.messages()}


@clause("5.0", "MQTT-4.3.3-2")
def test_mqtt5_4_3_3_2_first_sending_of_qos_2(harness: BrokerHarness) -> None:
    """0x34: QoS 2, DUP 0, then the packet identifier."""
    client = subscribed(harness, 2)
    harness.client("p").publish(b"a", b"x", qos=2)
    assert client.received_bytes() == hexa("34 07 0001 61 0001 00 78")


@clause("5.0", "MQTT-4.3.3-3")
def test_mqtt5_4_3_3_3_publish_until_pubrec(harness: BrokerHarness) -> None:
    """Without PUBREC the PUBLISH is repeated on resume, with it the PUBREL."""
    client = subscribed(harness, 2)
    harness.client("p").publish(b"a", b"x", qos=2)
    client.drop()
    client = back(harness)
    assert len(client.messages()) == 1
    client.send(ack(0x50, 1))
    client.received()
    client.drop()
    assert back(harness).received_bytes() == ack(0x62, 1)


@clause("5.0", "MQTT-4.3.3-4")
def test_mqtt5_4_3_3_4_pubrel_for_pubrec(harness: BrokerHarness) -> None:
    """Every PUBREC below 0x80 is answered by PUBREL, 0x10 included and repeats as well."""
    client = subscribed(harness, 2)
    harness.client("p").publish(b"a", b"x", qos=2)
    client.received()
    client.send(ack(0x50, 1, hexa("10 00")))
    assert client.received_bytes() == ack(0x62, 1)
    client.send(ack(0x50, 1))
    assert client.received_bytes() == ack(0x62, 1)


@clause("5.0", "MQTT-4.3.3-5")
def test_mqtt5_4_3_3_5_pubrel_until_pubcomp(harness: BrokerHarness) -> None:
    """PUBREL is repeated on every resume until PUBCOMP, then no more."""
    client = subscribed(harness, 2)
    harness.client("p").publish(b"a", b"x", qos=2)
    client.send(ack(0x50, 1))
    for _ in range(3):
        client.drop()
        client = back(harness)
        assert client.received_bytes() == ack(0x62, 1)
    client.send(ack(0x70, 1, hexa("92 00")))
    client.drop()
    back(harness).expect_nothing()


@clause("5.0", "MQTT-4.3.3-8")
def test_mqtt5_4_3_3_8_pubrec(harness: BrokerHarness) -> None:
    """PUBREC has the identifier of the PUBLISH; the message is on its way at once."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    client.send(publish(b"a", b"x", qos=2, pid=77))
    assert client.received_bytes() == ack(0x50, 77)
    assert watcher.payloads() == [b"x"]


@clause("5.0", "MQTT-4.6.0-3")
def test_mqtt5_4_6_0_3_pubrecs_in_order(harness: BrokerHarness) -> None:
    """PUBRECs in the order of the PUBLISHes, repeats in their place."""
    client = harness.client("c")
    ids = [5, 3, 5, 9, 3, 1]
    client.send(b"".join(publish(b"t/%d" % pid, qos=2, pid=pid) for pid in ids))
    assert [packet.packet_id for packet in client.received() if isinstance(packet, Ack)] == ids


@clause("5.0", "MQTT-4.6.0-6")
def test_mqtt5_4_6_0_6_every_topic_is_ordered(harness: BrokerHarness) -> None:
    """Without any setting every topic keeps its order, also over a disconnect."""
    client = subscribed(harness, 1, receive_maximum=2)
    publisher = harness.client("p")
    for number in range(5):
        publisher.publish(b"a", b"%d" % number, qos=1)
    got = client.messages()
    client.drop()
    for number in range(5, 10):
        publisher.publish(b"a", b"%d" % number, qos=1)
    fresh = [message for message in back(harness).consume() if message.payload not in {one.payload for one in got}]
    assert [int(message.payload) for message in got + fresh] == list(range(10))


@clause("5.0", "MQTT-4.6.0-3", "MQTT-4.3.3-10")
def test_mqtt5_4_6_0_3_repeats_among_new_ones(harness: BrokerHarness) -> None:
    """New messages and repeats of one topic in one read: PUBRECs in order, and each message delivered once."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    first = [publish(b"a", b"%d" % pid, qos=2, pid=pid) for pid in (10, 11, 12)]
    client.send(b"".join(first))
    ids = [5, 11, 5, 6, 10, 7, 7]
    client.send(b"".join(publish(b"a", b"%d" % pid, qos=2, pid=pid) for pid in ids))
    assert client.received_bytes() == b"".join(ack(0x50, pid) for pid in (10, 11, 12, *ids))
    assert watcher.payloads() == [b"10", b"11", b"12", b"5", b"6", b"7"]


@clause("5.0", "MQTT-4.3.3-10")
def test_mqtt5_4_3_3_10_twice_in_one_read(harness: BrokerHarness) -> None:
    """The same identifier twice in one read is one message, however many others are unreleased."""
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c")
    for others in range(6):
        if others:
            client.send(publish(b"b", qos=2, pid=100 + others))
        client.send(publish(b"a", b"%d" % others, qos=2, pid=1) + publish(b"a", b"%d" % others, qos=2, pid=1, dup=1))
        client.send(ack(0x62, 1))
        client.send(publish(b"a", b"again", qos=2, pid=1) * 2 + ack(0x62, 1))
    assert watcher.payloads() == [text for others in range(6) for text in (b"%d" % others, b"again")]


@clause("5.0", "MQTT-4.3.3-9")
def test_mqtt5_4_3_3_9_refused_twice_in_one_read(harness: BrokerHarness) -> None:
    """A refused message that is repeated in the same read is refused again: never taken as delivered."""
    client = harness.client("c")
    client.send(publish(b"$SYS/x", b"x", qos=2, pid=1) * 2)
    assert [one.reason for one in client.received() if isinstance(one, Ack)] == [0x87, 0x87]


@clause("5.0", "MQTT-3.3.4-7", "MQTT-4.3.3-10")
def test_mqtt5_3_3_4_7_nothing_is_lost_beyond_the_maximum(make_harness: MakeHarness) -> None:
    """What came beyond the receive maximum was not taken: sent again on the next connection it is delivered."""
    harness = make_harness(limits=Limits(receive_max=3))
    watcher = harness.client("w")
    watcher.subscribe(b"a")
    client = harness.client("c", session_expiry_s=60)
    packets = [publish(b"a", b"%d" % pid, qos=2, pid=pid) for pid in (1, 2, 3, 4, 5)]
    client.send(b"".join(packets))
    assert client.closed
    again = harness.client("c", clean_start=False, session_expiry_s=60)
    for pid in (1, 2, 3, 4, 5):
        again.send(publish(b"a", b"%d" % pid, qos=2, pid=pid, dup=1) + ack(0x62, pid))
    assert not again.closed
    assert watcher.payloads() == [b"1", b"2", b"3", b"4", b"5"]


def test_no_limit_on_unreleased_messages(make_harness: MakeHarness) -> None:
    """A limit of 0 is no limit: what the protocol allows is taken."""
    harness = make_harness(limits=Limits(receive_max=0))
    client = harness.client("c")
    client.send(b"".join(publish(b"a", qos=2, pid=pid) for pid in range(1, 50)))
    client.ping()
