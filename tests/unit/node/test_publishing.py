"""Messages that persistent sessions wait for: a copy goes into their log, all other subscribers get them as ever."""

from __future__ import annotations

import pytest

from durable_broker import DurableBroker, acks
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import PUBACK, PUBREC, Publish, Will
from flockmq.mqtt.run import make_run
from flockmq.node.publishing import publish_message
from flockmq.routing.capture import NEVER
from flockmq.routing.durable import DurableTopic
from flockmq.testing.harness import HarnessClient


def capturing(*filters: bytes) -> tuple[DurableBroker, DurableTopic]:
    """A broker that knows these filters of persistent sessions."""
    broker = DurableBroker()
    topic = broker.topic(b"$capture")
    topic.is_capture = True
    broker.table.capture_in(topic)
    broker.table.capture.lapses_at = NEVER
    for topic_filter in filters:
        broker.table.capture.put(0, topic_filter)
    broker.table.topics_changed(list(filters))
    return broker, topic


def send(client: HarnessClient, topic: bytes, payload: bytes, qos: int, packet_id: int, retain: bool = False) -> None:
    client.send(Publish(topic, payload, qos, retain, False, packet_id))


def captured(broker: DurableBroker, topic: DurableTopic) -> list[bytes]:
    return [record.payload for record in broker.records(topic)]


def test_qos_1_goes_to_others_at_once_and_is_acknowledged_when_it_is_committed() -> None:
    broker, topic = capturing(b"a/+")
    clean, publisher = broker.client("clean"), broker.client("p")
    clean.subscribe(b"a/#", 1)
    send(publisher, b"a/b", b"1", 1, 5)
    assert clean.payloads() == [b"1"]
    publisher.expect_nothing()
    broker.settle()
    assert acks(publisher) == [(PUBACK, 5, reasons.SUCCESS)]
    assert captured(broker, topic) == [b"1"]
    clean.expect_nothing()


def test_qos_2_goes_to_others_when_it_is_committed() -> None:
    broker, topic = capturing(b"a/+")
    clean, publisher = broker.client("clean"), broker.client("p")
    clean.subscribe(b"a/#", 2)
    send(publisher, b"a/b", b"1", 2, 5)
    clean.expect_nothing()
    publisher.expect_nothing()
    broker.settle()
    assert acks(publisher) == [(PUBREC, 5, reasons.SUCCESS)]
    assert clean.payloads() == [b"1"]
    assert captured(broker, topic) == [b"1"]


def test_qos_0_and_other_names_are_not_captured() -> None:
    broker, topic = capturing(b"a/+")
    publisher = broker.client("p")
    publisher.publish(b"a/b", b"0")
    assert publisher.publish(b"other", b"1", 1) == reasons.NO_MATCHING_SUBSCRIBERS
    broker.settle()
    assert captured(broker, topic) == []
    assert broker.broker.stats.captured == 0


def test_without_a_lease_every_name_is_captured() -> None:
    broker, topic = capturing()
    publisher = broker.client("p")
    broker.table.capture.lapses_at = broker.now + 1_000
    assert publisher.publish(b"x", b"1", 1) == reasons.NO_MATCHING_SUBSCRIBERS
    broker.wait(1_000)
    for qos in (1, 2):
        send(publisher, b"x", b"%d" % qos, qos, qos)
    publisher.publish(b"x", b"0")
    broker.settle()
    assert acks(publisher) == [(PUBACK, 1, reasons.SUCCESS), (PUBREC, 2, reasons.SUCCESS)]
    assert captured(broker, topic) == [b"1", b"2"]


def test_a_retained_message_is_kept_once() -> None:
    broker, topic = capturing(b"a/+")
    publisher = broker.client("p")
    send(publisher, b"a/b", b"1", 1, 5, retain=True)
    assert broker.broker.retained.usage.count == 1
    broker.settle()
    assert broker.broker.retained.usage.count == 1
    assert captured(broker, topic) == [b"1"]
    late = broker.client("late")
    late.subscribe(b"a/b", 1)
    assert [(message.payload, message.retain) for message in late.messages()] == [(b"1", True)]


def test_wills_and_messages_of_the_broker_are_captured() -> None:
    broker, topic = capturing(b"will", b"api")
    broker.client("w", will=Will(b"will", b"gone", 1)).drop()
    node = broker.broker.node
    assert publish_message(node, make_run(5, 1, False, b"api", b"said"), broker.now)
    assert publish_message(node, make_run(5, 0, False, b"api", b"qos 0"), broker.now) is False
    broker.settle()
    assert sorted(captured(broker, topic)) == [b"gone", b"said"]


@pytest.mark.parametrize("qos", [1, 2])
def test_sessions_in_the_log_get_nothing_from_memory_but_qos_0(qos: int) -> None:
    broker, topic = capturing(b"a/+")
    logged, publisher = broker.client("logged", session_expiry_s=60), broker.client("p")
    logged.subscribe(b"a/#", 2)
    broker.broker.sessions["logged"].is_logged = True
    publisher.publish(b"a/b", b"0")
    send(publisher, b"a/b", b"1", qos, 5)
    broker.settle()
    assert logged.payloads() == [b"0"], "the rest comes from the log"
    assert captured(broker, topic) == [b"1"]


def test_a_subscription_of_qos_0_is_served_at_once_also_in_a_logged_session() -> None:
    broker, _ = capturing(b"a/+")
    logged, publisher = broker.client("logged", session_expiry_s=60), broker.client("p")
    logged.subscribe(b"a/#", 0)
    broker.broker.sessions["logged"].is_logged = True
    send(publisher, b"a/b", b"1", 1, 5)
    assert logged.payloads() == [b"1"]
