"""A topic gets other shards, or a session another owner, while messages are under way: all others arrive, in order."""

from __future__ import annotations

from durable_broker import DurableBroker
from flockmq.log.batch import BatchView
from flockmq.mqtt.packets import PUBACK, PUBREC, Ack, Disconnect, Publish
from flockmq.raft.appends import COMMITTED, REPLAN, TAKEN
from flockmq.raft.messages import Forward
from flockmq.raft.senders import FENCED, run_of
from flockmq.routing.durable import MEMORY, DurableTopic
from flockmq.testing.harness import HarnessClient
from unit.durable.publish.test_releasing import Logs


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


def test_what_is_to_be_retained_is_dated_when_it_goes_to_its_new_partition() -> None:
    """By then its node knows what was retained meanwhile, maybe by a clock that is ahead."""
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t")
    client = broker.client("c")
    retained = broker.broker.retained
    retained.share(1)
    client.send(Publish(b"t/4", b"given back", 1, retain=True, packet_id=1))
    [first] = sent(broker)
    broker.reply(first, REPLAN, 9)
    client.send(Publish(b"t/4", b"held", 1, retain=True, packet_id=2))
    assert sent(broker) == []
    known_ms = broker.now + broker.broker.node.wall_offset_ms + 5_000
    retained.commit(b"t/4", None, known_ms, 1, 7, broker.now)
    broker.tell(with_shards(topic, [1, 2], 9))
    records = [record for forward in sent(broker) for record in BatchView(forward.batch).records()]
    assert [(record.payload, record.timestamp_ms) for record in records] == [
        (b"given back", known_ms + 1),
        (b"held", known_ms + 1),
    ]


def test_a_repeat_hears_of_a_message_that_was_given_back_after_its_time() -> None:
    """QoS 2 below quorum: the leader had it, fell silent, and the next one wants it elsewhere."""
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t", ack=MEMORY)
    broker.host.elsewhere[2] = (2,)
    client = broker.client("c", session_expiry_s=600)
    publish(client, 5, qos=2, key=4)
    [first] = sent(broker)
    broker.reply(first, TAKEN)
    broker.wait(10_200)
    assert client.closed, "nobody can say"
    again = broker.client("c", clean_start=False, session_expiry_s=600)
    publish(again, 5, qos=2, key=4)
    broker.turn()
    again.expect_nothing()
    broker.reply(first, REPLAN, 9)
    broker.sent = []
    broker.tell(with_shards(topic, [1, 2], 9))
    [second] = sent(broker)
    assert payloads(second) == [b"5"]
    broker.reply(second, COMMITTED, 0)
    assert acks(again) == [5]


def test_nothing_overtakes_what_was_acknowledged_early_and_waits_for_a_leader() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t", ack=MEMORY)
    more = with_shards(topic, [1, 2], 9)
    key = next(number for number in range(1, 99) if more.group_of_key(b"t/%d" % number) == 2)
    broker.host.elsewhere[2] = (2,)
    client = broker.client("c")
    publish(client, 1, key=key)
    [first] = sent(broker)
    broker.reply(first, TAKEN)
    assert acks(client) == [1]
    broker.wait(10_200)
    broker.sent = []
    broker.tell(more)
    publish(client, 2, key=key)
    assert sent(broker) == []
    broker.reply(first, REPLAN, 9)
    assert [one for forward in sent(broker) for one in payloads(forward)] == [b"1", b"2"]


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


# --- records of sessions that went on elsewhere ---


def test_what_is_of_an_older_epoch_goes_and_its_neighbours_stay_in_place() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    gone, other = broker.client("gone"), broker.client("other")
    logs = Logs()
    broker.appending.releases = logs
    publish(other, 1, key=9)
    publish(gone, 2, qos=2, key=9)
    publish(gone, 3, qos=2, key=9)
    publish(other, 4, qos=2, key=9)
    [first] = sent(broker)
    publish(other, 5, key=9)
    [second] = sent(broker)
    publish(other, 6, key=9)
    broker.reply(first, FENCED, 1)
    assert [type(packet) for packet in gone.received()] == [Disconnect]
    session = gone.connection.session
    assert session is None or not session.received
    assert set(logs.closed) == {1}, "to be opened again before anything goes there"
    again = sent(broker)
    assert [payloads(forward) for forward in again] == [[b"1", b"4"], [b"5"], [b"6"]], "in order, and at once"
    assert [run.sequence for forward in again if (run := run_of(forward.batch))] == [1, 2, 3]
    for forward in again:
        broker.reply(forward, COMMITTED, 0)
    assert acks(other) == [1, 4, 5, 6]
    acknowledgements = other.connection.acks
    assert acknowledgements is not None
    assert (acknowledgements.held_messages, acknowledgements.held_bytes) == (0, 0)
    broker.reply(second, COMMITTED, 9)
    other.expect_nothing()


def test_a_batch_that_was_of_that_session_alone_is_no_more() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    gone, other = broker.client("gone"), broker.client("other")
    publish(gone, 1, qos=2)
    [first] = sent(broker)
    publish(other, 2)
    sent(broker)
    broker.reply(first, FENCED, 0)
    [second] = sent(broker)
    assert gone.closed
    assert (payloads(second), second.previous) == ([b"2"], 0)
    broker.reply(second, COMMITTED, 0)
    assert acks(other) == [2]
    [lane] = broker.appending.lanes.values()
    assert (lane.unsettled, lane.batches) == (0, {})


def test_a_leader_that_fences_what_is_of_no_session_is_not_believed() -> None:
    broker = DurableBroker(leader=False)
    broker.topic(b"t")
    for position in (0, 7):
        client = broker.client("c")
        publish(client, 1)
        [run] = sent(broker)
        broker.reply(run, FENCED, position)
        assert sent(broker) == []
        assert [type(packet) for packet in client.received()] == [Disconnect]


def test_what_was_acknowledged_early_is_seen_through_whatever_plan_there_is() -> None:
    broker = DurableBroker(leader=False)
    topic = broker.topic(b"t", ack=MEMORY)
    client = broker.client("c")
    publish(client, 1, key=4)  # stays in the first of two shards
    [first] = sent(broker)
    broker.reply(first, TAKEN)
    assert acks(client) == [1]
    broker.wait(10_200)  # nobody knows; but it was acknowledged
    broker.reply(first, REPLAN, 9)
    broker.wait(20_500)  # and no plan comes
    broker.tell(with_shards(topic, [1, 2], 9))
    broker.answer(first, TAKEN)  # node 2 is back
    [again] = sent(broker)
    assert payloads(again) == [b"1"]
    broker.reply(again, COMMITTED, 0)
    client.expect_nothing()
