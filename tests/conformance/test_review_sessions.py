"""Sessions, wills and statistics where two things happen at once."""

from __future__ import annotations

from conformance.conftest import MakeHarness
from conformance.gates import PasswordGate
from conformance.wire import MESSAGE_EXPIRY, ack, props, publish
from flockmq.mqtt.packets import PUBREC, Publish, Will
from flockmq.node.ports import Accept, AuthRequest, Identity, Verdict
from flockmq.testing.harness import BrokerHarness, make_properties


class TokenGate(PasswordGate):
    """Lets everybody in for a second and a half."""

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        return Accept(Identity(request.client_id), request.now_ms + 1_500)


def test_two_deadlines_in_the_same_moment(make_harness: MakeHarness) -> None:
    """A connection that one of them ended is not ended, nor counted, by the other."""
    harness = make_harness(gate=TokenGate({}))
    client = harness.client("c", keep_alive_s=1)
    timers = harness.broker.node.timers.count
    harness.advance(1_600)
    assert client.closed
    assert harness.broker.stats.keep_alive_timeouts == 0
    assert harness.broker.node.timers.count == timers - 2


def test_wills_at_shutdown_reach_those_who_watch(harness: BrokerHarness) -> None:
    """Also those who were connected first."""
    watcher = harness.client("watcher")
    watcher.subscribe(b"will/#")
    harness.client("device", will=Will(b"will/device", b"gone"))
    harness.shutdown()
    assert watcher.topics() == [b"will/device"]
    assert watcher.closed


def test_what_expired_while_the_client_was_away_is_counted(harness: BrokerHarness) -> None:
    """Messages are delivered, kept or counted as dropped: nothing disappears from the figures."""
    away = harness.client("away", session_expiry_s=600)
    away.subscribe(b"a", qos=1)
    away.drop()
    publisher = harness.client("p")
    for number in range(5):
        publisher.send(publish(b"a", b"x", qos=1, pid=number + 1, properties=props((MESSAGE_EXPIRY, 1))))
    publisher.publish(b"a", b"stays", qos=1)
    harness.advance(2_000)
    again = harness.client("away", clean_start=False, session_expiry_s=600)
    assert [message.payload for message in again.consume()] == [b"stays"]
    assert harness.broker.stats.dropped_queue == 5


def test_a_refused_qos_2_message_leaves_its_id_free(harness: BrokerHarness) -> None:
    """[MQTT-4.3.3-10] A topic that ends the connection must not make the id look taken in the next one."""
    client = harness.client("c", session_expiry_s=600)
    client.send(publish(b"$delayed/soon/a", b"x", qos=2, pid=1))
    assert client.closed
    reader = harness.client("reader")
    reader.subscribe(b"a")
    again = harness.client("c", clean_start=False, session_expiry_s=600)
    again.send(publish(b"a", b"new", qos=2, pid=1))
    assert again.expect_ack(PUBREC, 1).reason == 0
    assert reader.payloads() == [b"new"]
    again.send(ack(0x62, 1))


def test_messages_too_large_for_the_client_are_counted_with_aliases_too(harness: BrokerHarness) -> None:
    """[MQTT-3.1.2-25] They are dropped, and not counted as sent."""
    limits = make_properties(maximum_packet_size=100, topic_alias_maximum=5)
    reader = harness.client("reader", properties=limits)
    reader.subscribe(b"a")
    publisher = harness.client("p")
    publisher.send(publish(b"a", b"1") + publish(b"a", b"x" * 200) + publish(b"a", b"2"))
    assert reader.payloads() == [b"1", b"2"]
    assert harness.broker.stats.dropped_slow == 1
    assert reader.connection.messages_out == 2


def test_resumed_messages_name_their_topic(harness: BrokerHarness) -> None:
    """[MQTT-3.3.2-7] Aliases end with their connection: what is sent again has its topic, and sets none."""
    aliases = make_properties(topic_alias_maximum=5, session_expiry_s=600)
    reader = harness.client("reader", properties=aliases)
    reader.subscribe(b"a", qos=2)
    publisher = harness.client("p")
    for number in range(4):
        publisher.publish(b"a", b"%d" % number, qos=1 + number % 2)
    assert len(reader.messages()) == 4
    reader.drop()
    publisher.publish(b"a", b"4", qos=1)
    again = harness.client("reader", clean_start=False, properties=make_properties(session_expiry_s=600))
    got = [packet for packet in again.received() if isinstance(packet, Publish)]
    assert [(packet.topic, packet.payload, packet.dup) for packet in got] == [
        *[(b"a", b"%d" % number, True) for number in range(4)],
        (b"a", b"4", False),
    ]


def test_sent_is_what_was_sent(harness: BrokerHarness) -> None:
    """Neither what waits for somebody who is away nor what was dropped counts, and what is sent twice counts twice."""
    stats = harness.broker.stats
    away = harness.client("away", session_expiry_s=600)
    away.subscribe(b"a", qos=2)
    away.drop()
    small = harness.client("small", properties=make_properties(maximum_packet_size=50))
    small.subscribe(b"a")
    publisher = harness.client("p")
    for qos in (0, 1, 2):
        publisher.publish(b"a", b"x" * 100, qos=qos)
    assert (stats.publishes_out_qos0, stats.publishes_out_qos1, stats.publishes_out_qos2) == (0, 0, 0)
    assert stats.dropped_slow == 3
    for times in (1, 2):
        again = harness.client("away", clean_start=False, session_expiry_s=600)
        assert len(again.messages()) == 2
        assert (stats.publishes_out_qos0, stats.publishes_out_qos1, stats.publishes_out_qos2) == (0, times, times)
        again.drop()
