"""What persistent sessions are promised, while shards lose their majority and nodes die: whole nodes, real packets."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import CreateTopic
from flockmq.durable.sessions.marking import MARK_MS
from flockmq.mqtt.packets import Suback, Subscribe, SubscribeEntry, Unsubscribe
from session_nodes import SessionNodes, connect_packet


def scatter(nodes: SessionNodes) -> None:
    """No node reaches another: no shard has a majority."""
    nodes.isolate(1)
    nodes.isolate(2)


def test_messages_wait_in_the_log_for_a_session_that_is_away() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    assert nodes.until_got(device, 2) == [b"1", b"2"]
    nodes.drop(device)
    nodes.publish_all(publisher, b"a/b", [b"3", b"4"])
    device = nodes.connect(3, "c")
    assert device.connack.session_present
    assert nodes.got(device) == [b"3", b"4"]


def test_the_death_of_a_sessions_node_loses_nothing() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(3, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1"])
    assert nodes.until_got(device, 1) == [b"1"]
    nodes.run(2 * MARK_MS)
    nodes[3].kill()
    nodes.publish_all(publisher, b"a/b", [b"2"])
    device = nodes.connect(1, "c")
    assert device.connack.session_present
    assert nodes.got(device) == [b"2"]


def test_what_no_mark_covers_comes_again_after_the_death_of_a_node() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(3, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.run(2 * MARK_MS)
    device.holds = True
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    nodes.run(2 * MARK_MS)
    assert device.payloads() == [b"1", b"2"]
    nodes[3].kill()
    assert nodes.got(nodes.connect(1, "c")) == [b"1", b"2"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_topic_that_is_younger_than_a_subscription_does_not_come_again_from_its_beginning(qos: int) -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(3, "c", b"a/#", qos)
    publisher = nodes.clean(2, "p")
    nodes.submit(1, CreateTopic("t", filters=("a/#",), shards=2))
    for number in range(6):
        assert nodes.publish(publisher, b"a/%d" % number, b"%d" % number, qos) < 0x80
    for _ in range(60):
        nodes.run(MARK_MS // 20)
        device.look()
    assert len(device.payloads()) == 6
    nodes[3].kill()
    device = nodes.connect(1, "c")
    assert device.connack.session_present
    assert nodes.got(device) == []
    assert nodes.publish(publisher, b"a/0", b"later", qos) < 0x80
    assert nodes.until_got(device, 1) == [b"later"]


# Statements without a result.


@pytest.mark.parametrize("gap_ms", [500, 1_500, 2_500])
def test_a_claim_that_is_granted_late_moves_no_position(gap_ms: int) -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    first, second = nodes.same_shard("c", 2)
    nodes.subscriber(1, first, b"other")
    leaver = nodes.subscriber(1, second, b"other")
    publisher = nodes.clean(2, "p")
    nodes.drop(device)
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    scatter(nodes)
    nodes.run(500)
    leaver.client.drop()  # a call is under way, and the claim waits for the next one
    nodes.run(gap_ms)
    assert nodes.ask(1, connect_packet("c")).connack.reason == 0x88
    nodes.heal()
    nodes.run(4 * MARK_MS)
    assert nodes.got(nodes.connect(1, "c")) == [b"1", b"2"]


def test_a_session_does_not_expire_while_its_client_is_connected() -> None:
    nodes = SessionNodes()
    device = nodes.connect(3, "c", expiry_s=20)
    nodes.subscribe(device, b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.isolate(3)
    nodes.until(lambda: not nodes.record("c").is_connected)
    nodes.heal()
    nodes.run(30_000)
    assert nodes.publish(publisher, b"a/b", b"1") < 0x80
    assert device.client.closed or nodes.got(device) == [b"1"]


def test_a_filter_that_was_left_and_is_subscribed_again_stays() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    scatter(nodes)
    nodes.run(3_000)
    device.client.send(Unsubscribe(77, [b"a/#"]))
    nodes.run(3_200)
    nodes.heal()
    assert nodes.subscribe(device, b"a/#") == 1
    nodes.run(10_000)
    assert nodes.publish(publisher, b"a/b", b"1") < 0x80
    assert nodes.got(device) == [b"1"]


def test_a_node_that_was_cut_off_before_the_first_session_acknowledges_nothing() -> None:
    nodes = SessionNodes()
    publisher = nodes.clean(3, "p")
    nodes.isolate(3)
    device = nodes.subscriber(1, "c", b"a/#")
    code = nodes.publish(publisher, b"a/b", b"1")
    nodes.heal()
    assert code >= 0x80 or nodes.got(device) == [b"1"]


def test_a_session_that_left_while_no_shard_listened_stays_where_it_was() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    nodes.subscriber(1, nodes.same_shard("c", 1)[0], b"other")
    publisher = nodes.clean(2, "p")
    nodes.run(2 * MARK_MS)
    scatter(nodes)
    nodes.run(1_000)
    device.client.drop()
    nodes.run(130_000)
    nodes.heal()
    nodes.run(10_000)
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    nodes.run(2 * MARK_MS)
    nodes[1].kill()
    assert nodes.got(nodes.connect(2, "c")) == [b"1", b"2"]


def test_a_subscription_outlives_a_subscribe_that_fails() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    scatter(nodes)
    nodes.run(1_000)
    assert nodes.subscribe(device, b"a/#", 2) >= 0x80
    nodes.heal()
    nodes.run(10_000)
    assert nodes.publish(publisher, b"a/b", b"1") < 0x80
    assert nodes.got(device) == [b"1"]


# Size.


def test_a_large_subscribe_fits_into_calls() -> None:
    nodes = SessionNodes()
    nodes.connect(1, "first")
    nodes.submit(1, CreateTopic("d", filters=("d/#",), shards=16))
    client_id = next(str(number) for number in range(100) if leader_of(nodes, str(number)) != 1)
    device = nodes.connect(1, client_id)
    device.client.send(Subscribe(1, [SubscribeEntry(b"d/+/%d" % number, 1) for number in range(4_096)]))
    assert len(nodes.answer(device, Suback, 60_000).reasons) == 4_096


def leader_of(nodes: SessionNodes, client_id: str) -> int:
    """The node that leads the shard of a client."""
    nodes.table(client_id)
    leader = nodes.leader(nodes.shard(client_id))
    assert leader is not None
    return leader.number
