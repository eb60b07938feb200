from __future__ import annotations

import pytest

from flockmq.mqtt.packets import PUBACK, Pingreq, Pingresp, Publish, Suback
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness import BrokerHarness, make_properties


def test_properties_from_keywords() -> None:
    assert make_properties(session_expiry_s=7).session_expiry_s == 7
    with pytest.raises(AssertionError, match="no property 'colour'"):
        make_properties(colour="red")


def test_expect_says_what_came_instead() -> None:
    client = BrokerHarness().client("c")
    with pytest.raises(AssertionError, match="No Suback came, nothing at all"):
        client.expect(Suback)
    client.send(Pingreq())
    with pytest.raises(AssertionError, match="Expected a Suback, came Pingresp"):
        client.expect(Suback)
    client.send(Pingreq())
    with pytest.raises(AssertionError, match="Expected nothing, came"):
        client.expect_nothing()


def test_expect_ack_names_the_packet() -> None:
    client = BrokerHarness().client("c")
    client.send(Publish(b"a", b"", 1, packet_id=5))
    with pytest.raises(AssertionError, match="Expected PUBACK with packet id 6"):
        client.expect_ack(PUBACK, 6)


def test_what_was_read_is_gone() -> None:
    client = BrokerHarness().client("c")
    client.send(Pingreq())
    assert client.received() == [Pingresp()]
    assert client.received() == []
    client.send(Pingreq())
    assert client.received_bytes() == b"\xd0\x00"
    assert client.received_bytes() == b""


def test_messages_leave_other_packets() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.subscribe(b"a")
    client.send(Publish(b"a", b"1"))
    client.send(Pingreq())
    assert client.payloads() == [b"1"]
    client.expect(Pingresp)


def test_publish_tells_the_reason_code() -> None:
    client = BrokerHarness().client("c")
    assert [client.publish(b"nobody", b"", qos=qos) for qos in (0, 1, 2)] == [0, 0x10, 0x10]


def test_subscribe_and_unsubscribe_tell_the_reason_code() -> None:
    client = BrokerHarness().client("c")
    assert client.subscribe(b"a/#/b") == 0x8F
    assert client.subscribe(b"a", qos=1) == 1
    assert (client.unsubscribe(b"a"), client.unsubscribe(b"a")) == (0, 0x11)


def test_consume_acknowledges_until_nothing_comes() -> None:
    harness = BrokerHarness()
    client = harness.client("c", properties=make_properties(receive_maximum=2))
    client.subscribe(b"a", qos=2)
    publisher = harness.client("p")
    for number in range(9):
        publisher.publish(b"a", b"%d" % number, qos=1 + number % 2)
    assert [int(message.payload) for message in client.consume()] == list(range(9))


def test_a_blocked_client_gets_it_all_later() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.subscribe(b"a")
    client.block()
    harness.client("p").publish(b"a", b"x")
    assert client.messages() == []
    client.unblock()
    assert client.payloads() == [b"x"]


def test_bytes_wait_while_the_broker_does_not_read() -> None:
    limits = Limits(write_bytes_max=2_000)
    harness = BrokerHarness(settings=BrokerSettings(limits=limits, congestion_grace_ms=60_000))
    slow = harness.client("slow")
    slow.subscribe(b"a")
    slow.block()
    publisher = harness.client("p")
    for _ in range(10):
        publisher.publish(b"a", b"x" * 500)
    waited = publisher.has_unsent
    slow.unblock()
    assert (waited, publisher.has_unsent) == (True, False)
    assert len(slow.messages()) == 10


def test_drop_is_the_end() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.drop()
    client.drop()
    client.send(Pingreq())
    client.expect_nothing()
    assert not harness.broker.sessions


def test_aliases_are_resolved() -> None:
    harness = BrokerHarness()
    client = harness.client("c", properties=make_properties(topic_alias_maximum=3))
    client.subscribe(b"#")
    publisher = harness.client("p")
    for _ in range(3):
        publisher.publish(b"long/topic", b"x")
    assert client.topics() == [b"long/topic"] * 3


def test_packet_identifiers_go_round() -> None:
    client = BrokerHarness().client("c")
    ids = {client.next_id() for _ in range(65_535)}
    assert ids == set(range(1, 65_536))
    assert client.next_id() == 1


def test_the_farewell_is_kept() -> None:
    harness = BrokerHarness()
    client = harness.client("c")
    client.send(b"\x00\x00")
    client.received()
    assert client.farewell is not None
    assert client.farewell.reason == 0x81
