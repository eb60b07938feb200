"""Wills, kept in the log of sessions: whole nodes, real packets, and each will where it belongs, once."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import CreateTopic
from flockmq.mqtt.packets import Connack, Connect, Disconnect, Will
from flockmq.testing.harness_client import make_properties
from session_nodes import Device, SessionNodes


def a_will(delay_s: int = 0, topic: bytes = b"w", qos: int = 1, retain: bool = False, payload: bytes = b"gone") -> Will:
    return Will(topic, payload, qos, retain, make_properties(will_delay_s=delay_s, content_type="text/plain"))


def willed(
    nodes: SessionNodes,
    number: int,
    will: Will | None,
    client_id: str = "c",
    expiry_s: int = 0,
    clean: bool = False,
    version: int = 5,
) -> Device:
    properties = make_properties(session_expiry_s=expiry_s) if version == 5 else None
    device = nodes.ask(number, Connect(version, client_id, clean or version == 4, 0, properties, will, None, None))
    assert device.connack.reason == 0
    return device


def watcher(nodes: SessionNodes, number: int, topic_filter: bytes = b"#") -> Device:
    """A client whose session ends with its connection: no log keeps anything for it."""
    device = nodes.clean(number, f"watcher-{number}")
    assert nodes.subscribe(device, topic_filter) == 1
    return device


def published(nodes: SessionNodes) -> int:
    return sum(node.harness.broker.stats.wills_published for node in nodes.running())


def kept(nodes: SessionNodes, client_id: str = "c") -> int:
    return len(nodes.table(client_id).wills.kept)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("version", [4, 5])
def test_the_will_of_a_client_that_is_lost(count: int, version: int) -> None:
    nodes = SessionNodes(count)
    seen = watcher(nodes, count)
    device = willed(nodes, 1, a_will(), version=version)
    assert kept(nodes) == 1
    device.client.drop()
    assert nodes.until_got(seen, 1) == [b"gone"]
    nodes.until(lambda: kept(nodes) == 0)
    assert nodes.got(seen) == []
    assert not nodes.has_record("c")


def test_a_client_that_takes_its_leave_leaves_no_will() -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 2)
    for expiry_s in (0, 60):
        device = willed(nodes, 1, a_will(), expiry_s=expiry_s)
        device.client.send(Disconnect(0))
        nodes.until(lambda: kept(nodes) == 0)
    assert nodes.got(seen) == []
    assert published(nodes) == 0


@pytest.mark.parametrize("expiry_s", [0, 3_600])
@pytest.mark.parametrize("qos", [0, 1])
def test_the_owner_dies(expiry_s: int, qos: int) -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 1)
    willed(nodes, 3, a_will(qos=qos, retain=True), expiry_s=expiry_s)
    nodes[3].kill()
    assert nodes.until_got(seen, 1, 60_000) == [b"gone"]
    assert nodes.got(seen, 5_000) == []
    retained = nodes[1].harness.broker.retained.get(b"w", nodes[1].harness.now)
    assert retained is not None


def test_a_delay_is_waited_for_and_a_client_that_is_back_voids_the_will() -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 2)
    device = willed(nodes, 1, a_will(20), expiry_s=3_600)
    nodes.drop(device)
    nodes.run(15_000)
    assert nodes.got(seen) == []
    device = willed(nodes, 3, a_will(20), expiry_s=3_600)
    nodes.run(10_000)
    assert nodes.got(seen) == []
    nodes.drop(device)
    nodes.run(18_000)
    assert published(nodes) == 0
    assert nodes.until_got(seen, 1) == [b"gone"]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(("delay_s", "clean", "count"), [(0, False, 1), (9, False, 0), (0, True, 1), (9, True, 1)])
def test_the_will_of_a_client_that_is_taken_over(number: int, delay_s: int, clean: bool, count: int) -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 3)
    willed(nodes, 1, a_will(delay_s), expiry_s=3_600)
    willed(nodes, number, None, expiry_s=3_600, clean=clean)
    assert nodes.got(seen, 12_000) == [b"gone"] * count
    assert published(nodes) == count
    assert kept(nodes) == 0


def test_a_session_that_ends_before_the_delay_publishes_its_will() -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 2)
    device = willed(nodes, 1, a_will(1_000), expiry_s=5)
    nodes.drop(device)
    assert nodes.until_got(seen, 1, 12_000) == [b"gone"]


@pytest.mark.parametrize("topic", [b"t/x", b"live"])
def test_a_will_that_a_log_keeps_is_there_once_though_leaders_die(topic: bytes) -> None:
    nodes = SessionNodes()
    nodes.submit(1, CreateTopic("t", shards=2, replication_factor=3))
    reader = nodes.subscriber(2, "reader", b"live")
    assert nodes.subscribe(reader, b"t/#") == 1
    willed(nodes, 3, a_will(topic=topic), "c")
    nodes[3].kill()
    nodes.until(lambda: published(nodes) > 0, 60_000)
    nodes[3].start()
    nodes.run(5_000)
    nodes.until(lambda: kept(nodes) == 0, 60_000)
    assert nodes.got(reader, 5_000) == [b"gone"]


@pytest.mark.parametrize("count", [1, 3])
def test_all_nodes_die_at_once(count: int) -> None:
    nodes = SessionNodes(count)
    reader = nodes.subscriber(1, "reader", b"w")
    willed(nodes, count, a_will(), "c")
    willed(nodes, count, a_will(4, payload=b"late"), "d", expiry_s=600)
    nodes.drop(reader)
    for number in range(1, count + 1):
        nodes[number].kill()
    for number in range(1, count + 1):
        nodes[number].start()
    nodes.until(lambda: all(node.durable.is_ready() for node in nodes.running()), 60_000)
    reader = nodes.connect(1, "reader")
    assert nodes.until_got(reader, 2, 60_000) == [b"gone", b"late"]
    assert nodes.got(reader, 8_000) == []


def test_wills_wait_while_there_is_no_majority() -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 1)
    willed(nodes, 3, a_will())
    nodes.isolate(1)
    nodes.isolate(2)
    nodes[3].kill()
    nodes.run(20_000)
    assert published(nodes) == 0
    nodes.heal()
    nodes.until(lambda: published(nodes) > 0, 60_000)
    assert seen.client.closed or nodes.until_got(seen, 1) == [b"gone"]


def test_a_clean_client_with_a_will_is_let_in_without_a_majority_and_its_node_publishes_the_will() -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 1)
    nodes.isolate(1)
    nodes.run(10_000)
    device = willed(nodes, 1, a_will(qos=0))
    device.client.drop()
    assert nodes.until_got(seen, 1) == [b"gone"]


def test_a_will_that_is_too_large_is_refused() -> None:
    nodes = SessionNodes(1)
    will = a_will(payload=b"x" * 60_000)
    will.properties.user = [("k", "v" * 60_000), ("k", "v" * 60_000)]
    device = nodes.ask(1, Connect(5, "c", True, 0, None, will, None, None))
    assert device.connack.reason == 0x95


def test_a_node_that_stops_in_good_order_publishes_its_wills_once() -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 1)
    willed(nodes, 3, a_will())
    nodes[3].harness.broker.shutdown(nodes[3].harness.now)
    assert nodes.until_got(seen, 1) == [b"gone"]
    nodes.until(lambda: kept(nodes) == 0)
    assert nodes.got(seen) == []


def test_a_clean_client_with_a_will_gets_messages_from_memory() -> None:
    nodes = SessionNodes()
    device = willed(nodes, 1, a_will())
    assert nodes.subscribe(device, b"a") == 1
    assert not nodes.record("c").subscriptions
    publisher = nodes.clean(2, "p")
    nodes.until(lambda: nodes.now < nodes[2].harness.broker.node.table.capture.lapses_at)
    assert nodes.publish(publisher, b"a", b"1") < 0x80
    assert nodes.until_got(device, 1) == [b"1"]
    assert nodes.captured() == []


def tenant(nodes: SessionNodes, number: int, client_id: str, will: Will | None) -> Device:
    """A client of the namespace that the listener ``acme`` is for."""
    packet = Connect(5, client_id, True, 0, make_properties(session_expiry_s=0), will, None, None)
    client = nodes[number].harness.connect(packet, listener="acme")
    nodes.until(lambda: client.has_received)
    return Device(client, client.expect(Connack))


def test_the_will_of_a_dead_node_stays_in_its_namespace() -> None:
    nodes = SessionNodes()
    for node in nodes.running():
        node.harness.broker.set_listener_namespace("acme", "acme")
    outside = watcher(nodes, 2)
    inside = tenant(nodes, 2, "w", None)
    tenant(nodes, 3, "p", a_will())
    assert nodes.subscribe(inside, b"#") == 1
    nodes[3].kill()
    assert nodes.until_got(inside, 1, 120_000) == [b"gone"]
    assert nodes.got(outside) == []
