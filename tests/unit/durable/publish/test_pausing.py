"""Publishers that are not read: much is under way, or a partition takes no more."""

from __future__ import annotations

from durable_broker import DurableBroker, publish
from flockmq.durable.publish.appending import HELD_MESSAGES_MAX
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.raft.appends import COMMITTED, UNKNOWN
from flockmq.testing.harness import HarnessClient


def is_paused(client: HarnessClient) -> bool:
    return client.connection.reading_paused


def test_a_client_with_much_under_way_is_not_read_until_it_has_less() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c", 4)
    packet = encode_packet(Publish(b"t/a", b"x", 0), 4)
    client.send(packet * (HELD_MESSAGES_MAX + 1))
    broker.turn()
    assert is_paused(client)
    client.send(packet)
    assert client.connection.messages_in == HELD_MESSAGES_MAX + 1
    for forward in list(broker.sent):
        broker.reply(forward, COMMITTED, 0)
    assert not is_paused(client)
    assert client.connection.messages_in == HELD_MESSAGES_MAX + 2


def test_publishers_wait_for_a_group_that_takes_no_more() -> None:
    broker = DurableBroker(BrokerSettings(limits=Limits(packet_bytes_max=8_000_000)), leader=False)
    broker.topic(b"t")
    clients = [broker.client(f"c{number}", 4) for number in range(8)]
    for client in clients:
        for _ in range(3):
            publish(client, bytes(1_200_000), qos=0)
        broker.turn()
    assert any(client.connection.reading_paused for client in clients)
    for _ in range(20):
        for forward in broker.sent[:]:
            broker.sent.remove(forward)
            broker.reply(forward, COMMITTED, 0)
    assert not any(client.connection.reading_paused for client in clients)
    assert broker.broker.stats.durable_stored == 24


def test_publishers_that_wait_for_a_group_are_not_read_a_little_every_turn() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    broker.topic(b"u", first=9)
    broker.host.elsewhere.pop(1)
    clients = [broker.client(f"c{number}", 4) for number in range(12)]
    packet = encode_packet(Publish(b"t/a", bytes(60_000), 0), 4)
    for _ in range(50):
        for client in clients:
            client.send(packet)
        broker.turn()
    taken = [client.connection.messages_in for client in clients]
    assert sum(taken) < 400, "of 600: they are not read although none of them has much under way"
    other = broker.client("d", 4)
    for _ in range(20):
        publish(other, b"x", topic=b"u/a", qos=0)
        broker.turn()
    assert [client.connection.messages_in for client in clients] == taken
    broker.engine.appends.forget(1)
    assert not any(client.connection.reading_paused for client in clients)


def test_a_closed_connection_waits_for_nothing() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c", 4)
    client.send(encode_packet(Publish(b"t/a", b"x", 0), 4) * (HELD_MESSAGES_MAX + 1))
    client.drop()
    broker.turn()
    for forward in list(broker.sent):
        broker.reply(forward, UNKNOWN)
    broker.wait(10_200)
    assert broker.broker.stats.durable_unknown == HELD_MESSAGES_MAX + 1
