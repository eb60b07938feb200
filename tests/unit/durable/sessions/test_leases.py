"""Which names a publishing node captures: it follows the filters of all shards, and captures all without a lease."""

from __future__ import annotations

from flockmq.durable.sessions.serving import LEASE_MS
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Ack, Disconnect, Suback
from session_nodes import SessionNodes


def filters_of(nodes: SessionNodes, number: int) -> list[bytes]:
    return nodes[number].durable.topics._table.capture.filters()


def test_all_nodes_know_a_filter_before_its_suback() -> None:
    nodes = SessionNodes()
    nodes.subscriber(1, "c", b"a/#")
    assert [filters_of(nodes, number) for number in (1, 2, 3)] == [[b"a/#"]] * 3
    assert all(nodes.leases(number).is_held(nodes.now) for number in (1, 2, 3))


def test_filters_go_with_their_last_subscription() -> None:
    nodes = SessionNodes()
    first, second = nodes.subscriber(1, "c", b"a/#"), nodes.subscriber(2, "d", b"a/#")
    nodes.unsubscribe(first, b"a/#")
    nodes.run(1_000)
    assert filters_of(nodes, 3) == [b"a/#"]
    nodes.unsubscribe(second, b"a/#")
    nodes.until(lambda: not any(filters_of(nodes, number) for number in (1, 2, 3)))


def test_subscriptions_of_qos_0_and_of_shared_groups_are_not_captured() -> None:
    nodes = SessionNodes()
    device = nodes.connect(1, "c")
    nodes.subscribe(device, b"a/#", 0)
    nodes.subscribe(device, b"$share/g/b/#", 1)
    nodes.run(1_000)
    assert filters_of(nodes, 2) == []


def test_a_suback_waits_for_a_node_that_is_cut_off_until_its_lease_has_lapsed() -> None:
    nodes = SessionNodes()
    device = nodes.connect(1, "c")
    nodes.run(2_000)
    nodes.table("c")
    leader = nodes.leader(nodes.shard("c"))
    assert leader is not None
    quiet = next(number for number in (2, 3) if number != leader.number)
    nodes.isolate(quiet)
    lapses = nodes[quiet].durable.session_room.leases
    nodes.send_subscribe(device, b"a/#")
    nodes.answer(device, Suback)
    assert not lapses.is_held(nodes.now), "from now on it captures all"


def test_a_node_that_is_cut_off_captures_all_and_acknowledges_nothing() -> None:
    nodes = SessionNodes()
    nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(3, "p")
    assert nodes.publish(publisher, b"other", b"1") < 0x80
    assert nodes.captured() == []
    nodes.isolate(3)
    nodes.run(LEASE_MS)
    assert not nodes.leases(3).is_held(nodes.now)
    nodes.send(publisher, b"other", b"2")
    nodes.run(1_000)
    assert publisher.answer(Ack) is None, "it waits for a quorum"
    nodes.heal()
    assert nodes.answer(publisher, Ack).reason < 0x80
    nodes.run(1_000)
    assert nodes.captured() == [b"2"], "captured, though no filter matches"
    nodes.until(lambda: nodes.leases(3).is_held(nodes.now))
    assert nodes.publish(publisher, b"other", b"3") < 0x80
    nodes.run(1_000)
    assert nodes.captured() == [b"2"]


def test_filters_outlive_the_leader_of_their_shard() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    nodes.table("c")
    leader = nodes.leader(nodes.shard("c"))
    assert leader is not None
    leader.kill()
    others = [node.number for node in nodes.running()]
    nodes.until(lambda: all(nodes.leases(number).is_held(nodes.now) for number in others))
    assert [filters_of(nodes, number) for number in others] == [[b"a/#"]] * 2
    publisher = nodes.clean(others[0], "p")
    assert nodes.publish(publisher, b"a/b", b"1") < 0x80
    if leader.number == 1:
        device = nodes.connect(others[1], "c")
    assert nodes.got(device) == [b"1"]


def test_a_node_that_starts_again_learns_all_filters() -> None:
    nodes = SessionNodes()
    device = nodes.connect(1, "c")
    for number in range(50):
        nodes.send_subscribe(device, b"a/%d/+" % number)
    nodes.run(3_000)
    nodes[3].kill()
    nodes.unsubscribe(device, b"a/0/+")
    nodes.subscribe(device, b"b/+")
    nodes[3].start()
    nodes.run(50)
    assert not nodes.leases(3).is_held(nodes.now)
    nodes.until(lambda: nodes.leases(3).is_held(nodes.now))
    assert filters_of(nodes, 3) == sorted([b"a/%d/+" % number for number in range(1, 50)] + [b"b/+"])


def test_without_a_quorum_of_the_log_a_publisher_is_told_to_send_it_again() -> None:
    nodes = SessionNodes()
    nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(3, "p")
    nodes.isolate(3)
    nodes.send(publisher, b"a/b", b"1")
    assert nodes.answer(publisher, Disconnect).reason == reasons.UNSPECIFIED_ERROR
    assert publisher.answer(Ack) is None
