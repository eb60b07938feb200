"""Publishing to durable topics: into the log as it came, each message in its partition, acknowledged in order."""

from __future__ import annotations

import pytest

from durable_broker import DurableBroker, acks, publish
from flockmq.durable.publish.answers import Place
from flockmq.durable.publish.appending import CLOCKS_DIFFER_MS_MAX
from flockmq.mqtt import reasons
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import PUBACK, PUBREC, Ack, Disconnect, Publish, Will
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import make_run
from flockmq.node.publishing import WHY_NAMESPACE_FULL
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.raft.appends import COMMITTED
from flockmq.routing.durable import BY_CLIENT, BY_PROPERTY, DurableTopic
from flockmq.testing.harness import make_properties

# --- what is in the log ---


@pytest.mark.parametrize("version", [4, 5])
def test_a_message_is_acknowledged_when_it_is_committed(version: int) -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c", version)
    publish(client, b"x", 7)
    broker.turn()
    client.expect_nothing()
    broker.settle()
    assert acks(client) == [(PUBACK, 7, 0)]
    [record] = broker.records(topic)
    assert (record.topic, record.client, record.payload, record.flags) == (b"t/a", b"c", b"x", 1)
    assert record.timestamp_ms == broker.broker.node.wall_offset_ms + broker.now - 60
    assert (record.packet_id, record.expires_at, record.properties, record.user) == (0, 0, b"", [])


def test_a_single_message_waits_for_nothing_but_the_disk() -> None:
    broker = DurableBroker()
    broker.topic(b"t")
    client = broker.client("c")
    publish(client, b"x", 1)
    broker.turn()
    broker.write()
    broker.turn()
    assert acks(client) == [(PUBACK, 1, 0)], "no timer, no tick"


def test_all_there_is_to_a_message_is_in_its_record() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c")
    user = [("k", "v"), ("k", "w")]
    publish(client, b"x", 1, retain=True, user=user, content_type="text", message_expiry_s=30)
    broker.settle()
    [record] = broker.records(topic)
    assert record.flags == 1 | 4
    assert record.user == [(b"k", b"v"), (b"k", b"w")]
    assert record.expires_at == record.timestamp_ms + 30_000
    kept = Properties()
    kept.content_type = "text"
    kept.user = user
    assert record.properties == encode_packet(Publish(b"", b"", properties=kept), 5)[5:], "alias and expiry are off"


def test_what_is_to_be_retained_is_dated_after_what_is_retained() -> None:
    """By a node whose clock is ahead; but not by one whose clock is wrong."""
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c")
    broker.broker.retained.share(1)
    dates = []
    for number, ahead_ms in enumerate((0, 5_000, CLOCKS_DIFFER_MS_MAX + 1_000)):
        wall_ms = broker.now + broker.broker.node.wall_offset_ms
        broker.broker.retained.commit(b"t/a", None, wall_ms + ahead_ms, 99 + number, 1, broker.now)
        publish(client, b"x", number + 1, retain=True)
        publish(client, b"x", number + 11)
        broker.settle()
        retained, plain = broker.records(topic)[-2:]
        dates += [retained.timestamp_ms - wall_ms, plain.timestamp_ms - wall_ms]
    assert dates == [1, 0, 5_001, 0, 0, 0]


def test_a_read_full_of_messages_is_one_batch() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c", 4)
    packets = [encode_packet(Publish(b"t/a", b"%d" % n, 1, packet_id=n), 4) for n in range(1, 501)]
    client.send(b"".join(packets))
    broker.settle()
    assert client.received_bytes() == b"".join(b"\x40\x02" + n.to_bytes(2, "big") for n in range(1, 501))
    assert [record.payload for record in broker.records(topic)] == [b"%d" % n for n in range(1, 501)]
    assert len([entry for entry in broker.logs[topic.groups[0]] if entry.kind == 0]) == 1


def test_qos_0_is_appended_too_in_its_place() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("c")
    publish(client, b"0", 0, qos=0)
    publish(client, b"1", 1)
    publish(client, b"2", 0, qos=0)
    broker.settle()
    assert [record.payload for record in broker.records(topic)] == [b"0", b"1", b"2"]
    assert acks(client) == [(PUBACK, 1, 0)]


def test_wills_delayed_messages_and_the_admin_go_the_same_way() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    client = broker.client("mortal", will=Will(b"t/will", b"gone", 1, True))
    publish(client, b"later", 1, topic=b"$delayed/1/t/d")
    assert acks(client) == [(PUBACK, 1, 0)]
    broker.broker.publish(b"t/admin", b"said", 1, True, broker.now)
    client.drop()
    broker.wait(1_200)
    broker.settle()
    found = [(record.topic, record.client, record.payload, record.flags) for record in broker.records(topic)]
    assert found == [
        (b"t/admin", b"", b"said", 5),
        (b"t/will", b"mortal", b"gone", 5),
        (b"t/d", b"mortal", b"later", 1),
    ]
    assert broker.broker.retained.usage.count == 0, "what is retained follows the log"


def test_subscribers_get_nothing_before_it_is_committed() -> None:
    broker = DurableBroker()
    broker.topic(b"t")
    screen = broker.client("s")
    screen.subscribe(b"#")
    publish(broker.client("c"), b"x", 1)
    screen.expect_nothing()
    publish(broker.client("d"), b"y", 1, topic=b"other")
    assert screen.payloads() == [b"y"]


def test_a_message_that_no_batch_can_hold_is_refused() -> None:
    broker = DurableBroker(BrokerSettings(limits=Limits(packet_bytes_max=8_000_000)))
    broker.topic(b"t")
    client = broker.client("c")
    publish(client, bytes(4_200_000), 1)
    assert acks(client) == [(PUBACK, 1, reasons.QUOTA_EXCEEDED)]
    publish(client, bytes(4_000_000), 2)
    broker.settle()
    assert acks(client) == [(PUBACK, 2, 0)]


# --- a namespace that stores as much as it may ---


def full_broker() -> tuple[DurableBroker, DurableTopic]:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    broker.broker.node.spaces.full = {b"default"}
    return broker, topic


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_full_namespace_takes_nothing_and_says_so(qos: int, kind: int) -> None:
    broker, topic = full_broker()
    client = broker.client("c")
    publish(client, b"x", 1, qos)
    ack = client.expect(Ack)
    assert (ack.kind, ack.packet_id, ack.reason) == (kind, 1, reasons.QUOTA_EXCEEDED)
    assert ack.properties is not None
    assert ack.properties.reason_string == WHY_NAMESPACE_FULL
    stats = broker.broker.stats
    assert (stats.durable_in, stats.durable_refused) == (1, 1)
    publish(client, b"elsewhere", 1, qos, topic=b"other")
    assert client.expect(Ack).reason < 0x80, "the packet id is free again, and other topics are open"
    broker.broker.node.spaces.full = {b"acme"}
    publish(client, b"y", 2, qos)
    broker.settle()
    assert client.expect(Ack).reason == 0
    assert [record.payload for record in broker.records(topic)] == [b"y"]


def test_a_full_namespace_closes_who_can_not_be_told() -> None:
    broker, topic = full_broker()
    client = broker.client("c", 4)
    publish(client, b"x", 1)
    assert client.closed
    broker.settle()
    assert broker.records(topic) == []


def test_a_full_namespace_refuses_repeats_too() -> None:
    """It says something about this packet alone; closing would only bring the same packet back."""
    broker, _ = full_broker()
    client = broker.client("c")
    publish(client, b"x", 1, dup=True)
    assert acks(client) == [(PUBACK, 1, reasons.QUOTA_EXCEEDED)]


def test_a_full_namespace_drops_what_nobody_waits_for_and_counts_it() -> None:
    broker, topic = full_broker()
    client = broker.client("c", will=Will(b"t/will", b"gone", 1))
    publish(client, b"x", qos=0)
    client.expect_nothing()
    client.drop()
    broker.settle()
    assert broker.records(topic) == []
    assert broker.broker.stats.durable_refused == 2


def test_a_full_namespace_tells_who_publishes_from_within_the_node() -> None:
    broker, topic = full_broker()
    told: list[list[Place | str] | None] = []
    run = make_run(5, 1, False, b"t/a", b"x", b"", 0)
    broker.appending.publish(topic, run, b"", told.append, broker.now)
    assert told == [[WHY_NAMESPACE_FULL]]


# --- which partition ---


def shards_of(broker: DurableBroker, name: bytes) -> dict[bytes, int]:
    topic = broker.topics[name]
    return {r.payload: shard for shard in range(len(topic.groups)) for r in broker.records(topic, shard)}


def test_the_topic_name_is_the_key() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t", shards=4)
    client = broker.client("c")
    for number in range(1, 20):
        publish(client, b"t/%d" % number, number, topic=b"t/%d" % number)
    broker.settle()
    found = shards_of(broker, b"t")
    assert {name: topic.groups[shard] for name, shard in found.items()} == {n: topic.group_of_key(n) for n in found}
    assert len(set(found.values())) == 4
    assert acks(client) == [(PUBACK, number, 0) for number in range(1, 20)]


def test_the_client_is_the_key() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t", shards=4, key=BY_CLIENT)
    for number in range(9):
        name = f"c{number}"
        publish(broker.client(name), name.encode(), 1, topic=b"t/%d" % number)
    broker.settle()
    for client, shard in shards_of(broker, b"t").items():
        assert topic.groups[shard] == topic.group_of_key(client)


def test_a_user_property_is_the_key_and_the_topic_name_where_it_is_missing() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t", shards=4, key=BY_PROPERTY, key_property=b"device")
    client = broker.client("c")
    wire = b""
    keys = [b"a", b"b", b"c", b"", b"a", b"d"]
    for number, key in enumerate(keys, 1):
        properties = make_properties(user=[("device", key.decode())]) if key else None
        wire += encode_packet(Publish(b"t/x", b"%d" % number, 1, packet_id=number, properties=properties), 5)
    client.send(wire)
    broker.settle()
    assert acks(client) == [(PUBACK, number, 0) for number in range(1, 7)]
    for payload, shard in shards_of(broker, b"t").items():
        assert topic.groups[shard] == topic.group_of_key(keys[int(payload) - 1] or b"t/x")
    every = [record for shard in range(4) for record in broker.records(topic, shard)]
    assert {record.payload: record.key for record in every} == {
        b"%d" % number: key or None for number, key in enumerate(keys, 1)
    }


# --- order ---


def test_acknowledgements_wait_for_those_before_them() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t", first=1)
    broker.topic(b"u", first=2)
    client = broker.client("c")
    publish(client, b"1", 1, topic=b"t/a")
    publish(client, b"2", 2, topic=b"u/a")
    publish(client, b"3", 3, topic=b"plain")
    publish(client, b"4", 4, qos=2, topic=b"plain")
    publish(client, b"5", 0, qos=0, topic=b"t/a")
    broker.turn()
    first, second = sorted(broker.sent, key=lambda forward: forward.group)
    broker.reply(second, COMMITTED, 0)
    client.expect_nothing()
    broker.reply(first, COMMITTED, 0)
    expected = [(PUBACK, 1, 0), (PUBACK, 2, 0), (PUBACK, 3, 0x10), (PUBREC, 4, 0x10)]
    assert acks(client) == expected
    publish(client, b"6", 6, topic=b"plain")
    assert acks(client) == [(PUBACK, 6, 0x10)], "nothing waits any more"


def test_a_client_that_has_more_unacknowledged_than_it_may_is_disconnected() -> None:
    broker = DurableBroker(BrokerSettings(limits=Limits(receive_max=3)), leader=False)
    broker.topic(b"t")
    client = broker.client("c")
    for number in (1, 2, 3):
        publish(client, b"x", number)
    assert not client.closed
    publish(client, b"x", 4)
    assert client.expect(Disconnect).reason == reasons.RECEIVE_MAXIMUM_EXCEEDED


def test_in_311_there_is_no_such_limit() -> None:
    broker = DurableBroker(BrokerSettings(limits=Limits(receive_max=3)))
    broker.topic(b"t")
    client = broker.client("c", 4)
    for number in range(1, 9):
        publish(client, b"x", number)
    broker.settle()
    assert acks(client) == [(PUBACK, number, 0) for number in range(1, 9)]
