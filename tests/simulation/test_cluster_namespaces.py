"""Namespaces over several nodes: what belongs together finds each other, and nothing else."""

from __future__ import annotations

from flockmq.mqtt.packets import Connack, Connect, Publish
from flockmq.testing.cluster_harness import ClusterHarness
from flockmq.testing.harness import BrokerHarness, HarnessClient, make_properties


def with_acme(_number: int, harness: BrokerHarness) -> None:
    harness.broker.set_listener_namespace("acme", "acme")


def cluster_of_two() -> ClusterHarness:
    cluster = ClusterHarness(2, before=with_acme)
    cluster.wait(cluster.is_one)
    return cluster


def connect(cluster: ClusterHarness, number: int, client_id: str, listener: str) -> HarnessClient:
    packet = Connect(5, client_id, True, 0, make_properties(session_expiry_s=600))
    client = cluster[number].harness.connect(packet, listener=listener)
    cluster.wait(lambda: client.has_received)
    client.connack = client.expect(Connack)
    assert client.connack.reason == 0
    return client


def got(client: HarnessClient) -> list[tuple[bytes, bytes]]:
    return [(one.topic, one.payload) for one in client.consume()]


def test_messages_cross_nodes_and_not_namespaces() -> None:
    cluster = cluster_of_two()
    inside, outside = connect(cluster, 2, "w", "acme"), connect(cluster, 2, "w", "tcp")
    shared = connect(cluster, 2, "s", "acme")
    cluster.subscribe(inside, b"#", qos=1)
    cluster.subscribe(outside, b"#", qos=1)
    cluster.subscribe(shared, b"$share/g/a/#", qos=1)
    publisher = connect(cluster, 1, "p", "acme")
    for number in range(3):
        publisher.send(Publish(b"a/b", b"%d" % number, 1, retain=number == 2, packet_id=number + 1))
    cluster.run_for(2_000)
    expected = [(b"a/b", b"0"), (b"a/b", b"1"), (b"a/b", b"2")]
    assert got(inside) == expected
    assert got(shared) == expected
    assert got(outside) == []
    late = connect(cluster, 2, "late", "acme")
    cluster.subscribe(late, b"a/+")
    cluster.run_for(500)
    assert got(late) == [(b"a/b", b"2")], "retained here, too"
