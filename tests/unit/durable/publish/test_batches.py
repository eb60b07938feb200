"""What publishers hear of the outcome of a batch, at each ack level: never a lie."""

from __future__ import annotations

import pytest

from durable_broker import DurableBroker, acks, publish
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import PUBACK, PUBREC, Ack, Disconnect
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.raft.appends import COMMITTED, REFUSED, STORED, TAKEN
from flockmq.routing.durable import LEADER, MEMORY

# --- outcomes ---


def test_a_refused_message_is_not_acknowledged_as_if_it_were_stored() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c")
    publish(client, b"x", 1)
    publish(client, b"y", 2, qos=2)
    broker.turn()
    broker.reply(broker.sent[0], REFUSED)
    first, second = client.expect(Ack), client.expect(Ack)
    assert (first.packet_id, first.reason, second.kind, second.reason) == (1, 0x80, PUBREC, 0x80)
    assert first.properties is not None
    assert "publish it again" in (first.properties.reason_string or "")
    session = client.connection.session
    assert session is not None
    assert not session.received, "the id may be used again"
    assert not session.unsettled
    stats = broker.broker.stats
    assert (stats.durable_in, stats.durable_refused, stats.durable_stored) == (2, 2, 0)


def test_311_is_closed_when_a_message_was_refused() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c", 4)
    publish(client, b"x", 1)
    broker.turn()
    broker.reply(broker.sent[0], REFUSED)
    assert client.closed
    client.expect_nothing()


def test_without_a_leader_messages_are_refused_in_time() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    broker.host.elsewhere.clear()
    client = broker.client("c")
    publish(client, b"x", 1)
    broker.wait(9_900)
    client.expect_nothing()
    broker.wait(300)
    assert acks(client) == [(PUBACK, 1, 0x80)]


def test_what_was_sent_before_can_not_be_refused_for_want_of_a_leader() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    broker.host.elsewhere.clear()
    client, other = broker.client("c"), broker.client("d")
    publish(client, b"x", 1, dup=True)
    publish(client, b"y", 2)
    publish(other, b"z", 1)
    broker.wait(10_200)
    assert [type(packet) for packet in client.received()] == [Disconnect], "an earlier copy may wait on another node"
    assert client.closed
    assert acks(other) == [(PUBACK, 1, 0x80)], "whoever sends for the first time is told"
    assert broker.broker.stats.durable_unknown == 1


def test_what_was_sent_before_and_is_too_large_is_refused_and_not_sent_for_ever() -> None:
    broker = DurableBroker(BrokerSettings(limits=Limits(packet_bytes_max=8_000_000)))
    broker.topic(b"t")
    client = broker.client("c")
    publish(client, bytes(5_000_000), 1, dup=True)
    assert acks(client) == [(PUBACK, 1, reasons.QUOTA_EXCEEDED)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_node_that_takes_part_no_more_can_not_say_what_became_of_earlier_copies(qos: int) -> None:
    broker = DurableBroker()
    broker.topic(b"t")
    client = broker.client("c")
    broker.engine.stop("disk")
    publish(client, b"x", 1, qos=qos, dup=True)
    [packet] = client.received()
    assert isinstance(packet, Disconnect)
    assert packet.reason == reasons.UNSPECIFIED_ERROR
    assert packet.properties is not None
    assert "another node" in (packet.properties.reason_string or "")
    assert (broker.broker.stats.durable_unknown, broker.broker.stats.durable_refused) == (1, 0)


@pytest.mark.parametrize("version", [4, 5])
def test_what_nobody_knows_closes_the_connection_without_a_code_for_the_message(version: int) -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c", version)
    publish(client, b"x", 1)
    broker.wait(10_200)
    assert client.closed
    packets = client.received()
    assert [type(packet) for packet in packets] == ([Disconnect] if version == 5 else [])
    assert broker.broker.stats.durable_unknown == 1


def test_qos_0_of_unknown_outcome_closes_nothing() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c")
    publish(client, b"x", qos=0)
    broker.wait(10_200)
    assert not client.closed
    assert broker.broker.stats.durable_unknown == 1


def test_a_connection_that_closes_forgets_and_the_records_stay() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c")
    publish(client, b"x", 1)
    client.drop()
    broker.settle()
    client.expect_nothing()
    assert [record.payload for record in broker.records(topic)] == [b"x"]


def test_a_node_that_takes_part_no_more_refuses() -> None:
    broker = DurableBroker()
    broker.topic(b"t")
    client = broker.client("c")
    publish(client, b"x", 1)
    broker.engine.stop("disk")
    broker.flush()
    assert acks(client) == [(PUBACK, 1, 0x80)], "never sent, so certainly not in a log"
    publish(client, b"x", 2)
    assert acks(client) == [(PUBACK, 2, 0x80)]


# --- ack levels ---


@pytest.mark.parametrize(("level", "early"), [(MEMORY, TAKEN), (LEADER, STORED)])
def test_levels_below_quorum_are_acknowledged_early_and_once(level: int, early: int) -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t", ack=level)
    client = broker.client("c")
    publish(client, b"x", 1)
    broker.turn()
    broker.reply(broker.sent[0], early)
    assert acks(client) == [(PUBACK, 1, 0)]
    broker.reply(broker.sent[0], COMMITTED, 5)
    client.expect_nothing()
    assert broker.broker.stats.durable_stored == 1


@pytest.mark.parametrize(("level", "early"), [(MEMORY, TAKEN), (LEADER, STORED)])
def test_qos_2_waits_for_the_commit_at_every_level(level: int, early: int) -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t", ack=level)
    client = broker.client("c")
    publish(client, b"x", 1)
    publish(client, b"y", 2, qos=2)
    broker.turn()
    broker.reply(broker.sent[0], early)
    assert acks(client) == [(PUBACK, 1, 0)]
    broker.reply(broker.sent[0], COMMITTED, 5)
    assert acks(client) == [(PUBREC, 2, 0)]


def test_what_was_acknowledged_early_and_lost_later_closes_nothing() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t", ack=MEMORY)
    client = broker.client("c")
    publish(client, b"x", 1)
    broker.turn()
    broker.reply(broker.sent[0], TAKEN)
    acks(client)
    broker.wait(10_200)
    assert not client.closed


def test_the_leaders_memory_is_enough_where_the_topic_says_so() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t", ack=MEMORY)
    broker.host.rules.early[topic.groups[0]] = TAKEN
    client = broker.client("c")
    publish(client, b"x", 1)
    broker.turn()
    assert acks(client) == [(PUBACK, 1, 0)], "nothing was written yet"
