"""PUBACKs that say in which partition and at which offset a message is."""

from __future__ import annotations

from durable_broker import DurableBroker, publish
from flockmq.mqtt.packets import Ack
from flockmq.mqtt.run import make_run
from flockmq.raft.appends import COMMITTED, REFUSED, TAKEN
from flockmq.routing.durable import MEMORY
from flockmq.testing.harness import HarnessClient, make_properties


def places(client: HarnessClient) -> list[list[tuple[str, str]]]:
    found = []
    for packet in client.received():
        assert isinstance(packet, Ack)
        found.append(packet.properties.user if packet.properties is not None else [])
    return found


def test_who_asks_at_connect_hears_where_every_message_is() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t", shards=2)
    client = broker.client("c", properties=make_properties(user=[("flockmq-ack", "offset")]))
    for number in range(1, 4):
        publish(client, b"x", number)
    broker.settle()
    shard = topic.groups.index(topic.group_of_key(b"t/a"))
    assert places(client) == [
        [("flockmq-partition", str(shard)), ("flockmq-offset", str(offset))] for offset in range(3)
    ]


def test_who_asks_with_a_message_hears_it_for_that_one_and_waits_for_the_commit() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t", ack=MEMORY)
    client = broker.client("c")
    publish(client, b"x", 1, qos=2, user=[("flockmq-ack", "offset")])
    publish(client, b"y", 2)
    broker.turn()
    broker.reply(broker.sent[0], TAKEN)
    client.expect_nothing()
    broker.reply(broker.sent[0], COMMITTED, 41)
    assert places(client) == [[("flockmq-partition", "0"), ("flockmq-offset", "41")], []]


def test_a_client_that_wants_no_words_gets_none() -> None:
    broker = DurableBroker()
    broker.topic(b"t")
    properties = make_properties(user=[("flockmq-ack", "offset")], request_problem_information=0)
    client = broker.client("c", properties=properties)
    publish(client, b"x", 1, user=[("flockmq-ack", "offset")])
    broker.settle()
    assert places(client) == [[]]


def test_the_admin_hears_places_and_refusals() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t")
    told: list[object] = []
    for payload in (b"1", b"2", b"3"):
        broker.appending.publish(topic, make_run(5, 1, False, b"t/a", payload), b"admin", told.append, broker.now)
        broker.turn()
    broker.reply(broker.sent[0], COMMITTED, 9)
    broker.reply(broker.sent[1], REFUSED)
    broker.wait(10_200)
    assert told[0] == [(0, 9)]
    assert isinstance(told[1], list)
    assert "not stored" in told[1][0]
    assert told[2] is None
