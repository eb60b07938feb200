"""What clients of persistent sessions do becomes statements before they are answered."""

from __future__ import annotations

from flockmq.cluster.commands import CreateTopic
from flockmq.durable.sessions.marking import MARK_MS
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Pingreq, Suback, Unsubscribe
from session_nodes import SessionNodes, connect_packet


def test_a_suback_means_that_the_subscription_is_in_the_log() -> None:
    nodes = SessionNodes()
    device = nodes.connect(1, "c")
    assert nodes.subscribe(device, b"a/#", 2) == 2
    stored = nodes.record("c").subscriptions[b"a/#"]
    assert stored.qos == 2
    assert len(stored.starts) == 8, "where it begins in each partition"


def test_a_name_begins_in_its_own_partition_alone() -> None:
    nodes = SessionNodes()
    device = nodes.connect(1, "c")
    nodes.subscribe(device, b"a/b")
    assert len(nodes.record("c").subscriptions[b"a/b"].starts) == 1


def test_without_a_majority_a_subscribe_is_refused_at_last() -> None:
    nodes = SessionNodes()
    device = nodes.connect(1, "c")
    nodes.isolate(1)
    nodes.isolate(2)
    nodes.send_subscribe(device, b"a/#")
    nodes.run(20_000)
    assert device.answer(Suback) is None
    assert nodes.answer(device, Suback).reasons == [reasons.UNSPECIFIED_ERROR]
    assert b"a/#" not in nodes[1].harness.broker.sessions["c"].subscriptions


def test_what_is_unsubscribed_is_not_captured() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    assert nodes.unsubscribe(device, b"a/#") == 0
    nodes.until(lambda: not nodes.record("c").subscriptions)
    nodes.run(1_000)
    nodes.publish_all(publisher, b"a/b", [b"1"])
    assert nodes.captured() == []
    nodes.drop(device)
    assert nodes.got(nodes.connect(3, "c")) == []


def test_subscribe_right_behind_unsubscribe_stays_whatever_else_is_under_way() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    nodes[1].harness.connect(connect_packet(nodes.same_shard("c", 1)[0]))
    nodes.settle_until(lambda: bool(nodes[1].durable.session_room.log._busy))
    device.client.send(Unsubscribe(77, [b"a/#"]))
    assert nodes.subscribe(device, b"a/#") == 1
    nodes.run(3_000)
    assert b"a/#" in nodes.record("c").subscriptions
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1"])
    assert nodes.got(device) == [b"1"]


def test_subscribing_again_while_lagging_loses_nothing() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    device.holds = True
    payloads = [b"%d" % number for number in range(30)]
    nodes.publish_all(publisher, b"a/b", payloads[:20])
    assert nodes.subscribe(device, b"a/#", 2) == 2
    nodes.publish_all(publisher, b"a/b", payloads[20:])
    nodes.run(2 * MARK_MS)
    nodes[1].kill()
    assert nodes.got(nodes.connect(3, "c")) == payloads


def test_detach_says_exactly_where_a_session_stands() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/b")
    publisher = nodes.clean(2, "p")
    (group,) = nodes.record("c").subscriptions[b"a/b"].starts
    device.holds = True
    nodes.publish_all(publisher, b"a/b", [b"1", b"2", b"3"])
    nodes.run(1_000)
    device.look()
    device.acknowledge(2)
    nodes.drop(device)
    assert nodes.record("c").positions == {group: 2}
    nodes[1].kill()
    assert nodes.got(nodes.connect(3, "c")) == [b"3"]


def test_a_session_at_rest_leaves_the_memory_of_its_node() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/b")
    nodes.drop(device)
    nodes.until(lambda: "c" not in nodes[1].harness.broker.sessions)
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"1"])
    device = nodes.connect(1, "c")
    assert device.connack.session_present
    assert nodes.got(device) == [b"1"]


def test_a_declared_topic_is_followed_as_captured_names_are() -> None:
    nodes = SessionNodes()
    nodes.submit(1, CreateTopic("d", filters=("d/#",), shards=2))
    device = nodes.subscriber(1, "c", b"#")
    publisher = nodes.clean(2, "p")
    nodes.drop(device)
    for number in range(4):
        nodes.publish_all(publisher, b"d/%d" % number, [b"d%d" % number])
        nodes.publish_all(publisher, b"x/%d" % number, [b"x%d" % number])
    nodes[1].kill()
    found = nodes.got(nodes.connect(3, "c"))
    assert sorted(found) == sorted([b"d%d" % number for number in range(4)] + [b"x%d" % number for number in range(4)])


def test_a_client_that_waits_for_its_suback_is_not_held_dead() -> None:
    nodes = SessionNodes()
    packet = connect_packet("c")
    packet.keep_alive = 4
    device = nodes.ask(1, packet)
    nodes.isolate(1)
    nodes.isolate(2)
    nodes.send_subscribe(device, b"a/#")
    for _ in range(8):
        nodes.run(2_000)
        device.client.send(Pingreq())
    assert not device.client.closed
    nodes.heal()
    nodes.answer(device, Suback)
