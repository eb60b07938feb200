"""A topic gets other shards while messages are under way: all arrive, in order for each key."""

from __future__ import annotations

from durable_broker import DurableBroker
from flockmq.log.batch import BatchView
from flockmq.mqtt.packets import PUBACK, PUBREC, Ack, Publish
from flockmq.raft.appends import COMMITTED, REPLAN
from flockmq.raft.messages import Forward
from flockmq.raft.senders import run_of
from flockmq.routing.durable import DurableTopic
from flockmq.testing.harness import HarnessClient


def publish(client: HarnessClient, number: int, qos: int = 1, key: int = 0) -> None:
    client.send(Publish(b"t/%d" % (key or number), b"%d" % number, qos, packet_id=number if qos else 0))


def acks(client: HarnessClient) -> list[int]:
    found = []
    for packet in client.received():
        assert isinstance(packet, Ack), packet
        assert packet.reason == 0
        found.append(packet.packet_id)
    return found


def is_paused(client: HarnessClient) -> bool:
    return client.connection.reading_paused


def payloads(forward: Forward) -> list[bytes]:
    view = BatchView(forward.batch)
    return [view.record(position).payload for position in range(view.count)]


def sent(broker: DurableBroker) -> list[Forward]:
    broker.turn()
    taken, broker.sent = broker.sent, []
    return taken


def with_shards(topic: DurableTopic, groups: list[int], index: int) -> DurableTopic:
    return DurableTopic(topic.namespace, topic.name, topic.filters, groups, index=index)


def test_runs_say_by_which_plan_they_were_made() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t")
    broker.table.topics.index = 30
    publish(broker.client("c"), 1)
    run = run_of(sent(broker)[0].batch)
    assert run is not None
    assert run.plan == 30 > topic.index


def test_records_that_were_given_back_go_where_they_belong_and_before_later_ones() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t")
    for group in (2, 3):
        broker.host.elsewhere[group] = (2,)
    client = broker.client("c")
    publish(client, 1)
    [first] = sent(broker)
    publish(client, 2)
    publish(client, 3, qos=2)
    [second] = sent(broker)
    broker.reply(second, REPLAN, 40)
    publish(client, 4)
    assert sent(broker) == [], "run 1 has no outcome, and the new plan is not known"
    assert is_paused(client)
    broker.reply(first, COMMITTED, 0)
    assert acks(client) == [1]
    assert sent(broker) == []
    changed = with_shards(topic, [1, 2, 3], 41)
    broker.tell(changed)
    runs = sent(broker)
    assert not is_paused(client)
    for forward in runs:
        run = run_of(forward.batch)
        assert run is not None
        assert run.plan == 41
        assert all(changed.group_of_key(b"t/" + payload) == forward.group for payload in payloads(forward))
    assert sorted(payload for forward in runs for payload in payloads(forward)) == [b"2", b"3", b"4"]
    for forward in reversed(runs):
        broker.reply(forward, COMMITTED, 0)
    assert acks(client) == [2, 3, 4]


def test_a_change_that_moves_no_key_stops_nobody() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t")
    client = broker.client("c")
    publish(client, 1)
    broker.turn()
    broker.tell(DurableTopic(topic.namespace, topic.name, [b"t/#", b"u"], topic.groups, index=9))
    publish(client, 2)
    assert len(sent(broker)) == 2


def test_new_shards_wait_for_what_is_under_way_by_the_old_plan() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t")
    broker.host.elsewhere[2] = (2,)
    client = broker.client("c")
    publish(client, 1)
    [first] = sent(broker)
    broker.tell(with_shards(topic, [1, 2], 9))
    publish(client, 2)
    assert sent(broker) == []
    assert is_paused(client)
    broker.reply(first, COMMITTED, 0)
    assert acks(client) == [1]
    [second] = sent(broker)
    broker.reply(second, COMMITTED, 0)
    assert acks(client) == [2]


def test_whoever_waits_for_a_plan_too_long_is_refused() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    client = broker.client("c")
    publish(client, 1)
    publish(client, 2, qos=2)
    [first] = sent(broker)
    broker.reply(first, REPLAN, 99)
    publish(client, 3)
    broker.wait(10_200)
    found = [(p.kind, p.packet_id, p.reason) for p in client.received() if isinstance(p, Ack)]
    assert found == [(PUBACK, 1, 0x80), (PUBREC, 2, 0x80), (PUBACK, 3, 0x80)]
    session = client.connection.session
    assert session is not None
    assert not session.received
    assert not is_paused(client)


def test_a_topic_that_is_no_more_refuses_what_waits() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t")
    client = broker.client("c")
    publish(client, 1)
    [first] = sent(broker)
    broker.reply(first, REPLAN, 9)
    broker.table.topics.remove(topic.id)
    broker.table.topics.index = 9
    broker.appending.topics_changed(broker.now)
    broker.flush()
    [ack] = client.received()
    assert isinstance(ack, Ack)
    assert ack.reason == 0x80
    broker.appending.topics_changed(broker.now)
    assert broker.appending.lanes == {}


def test_a_real_leader_gives_back_what_was_planned_before_its_last_change() -> None:
    broker = DurableBroker()
    topic = broker.topic(b"t")
    broker.host.rules.least[topic.groups[0]] = 50
    client = broker.client("c")
    publish(client, 1)
    broker.settle()
    client.expect_nothing()
    broker.open(2)
    changed = with_shards(topic, [1, 2], 50)
    broker.topics[b"t"] = changed
    broker.host.rules.least[2] = 50
    broker.tell(changed)
    broker.settle()
    assert acks(client) == [1]
    found = [record.payload for shard in (0, 1) for record in broker.records(changed, shard)]
    assert found == [b"1"]
