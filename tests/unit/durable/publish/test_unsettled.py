"""QoS 2 messages on their way into a log: their ids, and repeats that come before the outcome."""

from __future__ import annotations

from durable_broker import DurableBroker, acks, publish
from flockmq.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack
from flockmq.raft.appends import COMMITTED, REFUSED
from unit.durable.publish.test_releasing import Logs


def test_a_qos_2_record_knows_packet_id_and_epoch() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c")
    broker.appending.releases = Logs()
    publish(client, b"x", 5, qos=2)
    publish(client, b"y", 6)
    broker.settle()
    assert acks(client) == [(PUBREC, 5, 0), (PUBACK, 6, 0)]
    found = [(record.packet_id, record.session_epoch) for record in broker.records(topic)]
    assert found == [(5, 77), (0, 0)]


def test_a_session_without_a_record_leaves_no_ids_in_logs() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c")
    publish(client, b"x", 5, qos=2)
    broker.settle()
    assert acks(client) == [(PUBREC, 5, 0)]
    assert [(record.packet_id, record.session_epoch) for record in broker.records(topic)] == [(0, 0)]
    client.send(Ack(PUBREL, 5))
    assert acks(client) == [(PUBCOMP, 5, 0)]


def test_a_repeat_is_answered_with_the_first_also_on_another_connection() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c", session_expiry_s=60)
    publish(client, b"x", 5, qos=2)
    publish(client, b"x", 5, qos=2, dup=True)
    broker.turn()
    client.drop()
    again = broker.client("c", clean_start=False, session_expiry_s=60)
    publish(again, b"x", 5, qos=2, dup=True)
    broker.turn()
    again.expect_nothing()
    assert len(broker.sent) == 1
    broker.reply(broker.sent[0], COMMITTED, 0)
    assert acks(again) == [(PUBREC, 5, 0)]
    publish(again, b"x", 5, qos=2, dup=True)
    assert acks(again) == [(PUBREC, 5, 0)]


def test_a_qos_2_message_that_got_lost_is_seen_through_for_its_repeat() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c", session_expiry_s=600)
    publish(client, b"x", 5, qos=2)
    broker.wait(10_200)
    assert client.closed
    again = broker.client("c", clean_start=False, session_expiry_s=600)
    publish(again, b"x", 5, qos=2, dup=True)
    broker.turn()
    again.expect_nothing()
    broker.reply(broker.sent[-1], COMMITTED, 3)
    assert acks(again) == [(PUBREC, 5, 0)]


def test_a_qos_2_message_that_was_refused_may_be_sent_again() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c", session_expiry_s=600)
    publish(client, b"x", 5, qos=2)
    broker.turn()
    client.drop()
    broker.reply(broker.sent[0], REFUSED)
    again = broker.client("c", clean_start=False, session_expiry_s=600)
    publish(again, b"x", 5, qos=2, dup=True)
    broker.turn()
    broker.reply(broker.sent[-1], COMMITTED, 0)
    assert acks(again) == [(PUBREC, 5, 0)]
    assert len({forward.batch for forward in broker.sent}) == 2
