"""Nodes tell each other what limited namespaces use."""

from __future__ import annotations

import pytest

from durable_broker import DurableBroker
from flockmq.cluster.commands import CreateHidden, CreateNamespace, CreateTopic
from flockmq.cluster.model import SESSIONS_TOPIC
from flockmq.durable.replicas import stored
from flockmq.durable.replicas.stored import StoredBytes
from flockmq.durable.replicas.usage import FULL_ROUNDS, KEY, NamespaceUsage
from flockmq.durable.state.layout import Layout
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Ack, Publish
from flockmq.node.namespaces import NamespaceLimits
from flockmq.session.space import Space, Spaces
from maps_network import Network
from state_cases import Machine


def spaces(connections: int, sessions: int, limit: int = 10) -> Spaces:
    found = Spaces()
    for name in ("acme", "free"):
        found.by_name[name] = Space(name)
    found.by_name["acme"].limit(limit, 0, 0, 0)
    found.by_name["acme"].connections = connections
    found.by_name["acme"].sessions = sessions
    found.by_name["free"].connections = 99
    return found


def test_limits_are_for_all_nodes_together() -> None:
    network = Network(3, checked=False)
    network.join(1, 2)
    network.join(2, 3)
    network.join(1, 3)
    here = {number: spaces(connections=number, sessions=2 * number) for number in network.nodes}
    nothing = StoredBytes(DurableBroker().engine, Layout(lambda: Machine(3).state))
    usage = {number: NamespaceUsage(node.maps, number, here[number], nothing) for number, node in network.nodes.items()}

    def pass_second() -> None:
        network.now += 1_000
        for number, one in usage.items():
            one.tick(network.now)
            one.tick(network.now)
            assert KEY + b"free" not in dict(network.nodes[number].maps.items(number))
        for _ in range(10):
            for number, node in network.nodes.items():
                network.deliver(number)
                node.end_turn()

    pass_second()
    pass_second()
    acme = here[1].by_name["acme"]
    assert (acme.connections_elsewhere, acme.sessions_elsewhere, acme.nodes) == (5, 10, 3)
    here[3].by_name["acme"].connections = here[3].by_name["acme"].sessions = 0
    pass_second()
    pass_second()
    assert (acme.connections_elsewhere, acme.sessions_elsewhere, acme.nodes) == (2, 4, 2)
    here[2].by_name["acme"].limit(0, 0, 0, 0)
    pass_second()
    pass_second()
    assert (acme.connections_elsewhere, acme.nodes) == (0, 1), "it is no longer told where nothing is limited"


def test_what_was_told_in_another_cluster_counts_no_more() -> None:
    node = Network(1, checked=False).nodes[1]
    nothing = StoredBytes(DurableBroker().engine, Layout(lambda: Machine(3).state))
    NamespaceUsage(node.maps, 1, spaces(connections=2, sessions=2), nothing).tick(1_000)
    node.end_turn()
    assert KEY + b"acme" in dict(node.maps.items(1))
    NamespaceUsage(node.maps, 1, spaces(connections=0, sessions=0), nothing).tick(2_000)
    node.end_turn()
    assert KEY + b"acme" not in dict(node.maps.items(1))


class Pair:
    """Two brokers that tell each other what they use: each leads one shard of the topic t."""

    def __init__(self) -> None:
        self.machine = Machine(3)
        self.machine.done(CreateTopic("t", shards=2))
        self.network = Network(2, checked=False)
        self.network.join(1, 2)
        self.brokers = {number: DurableBroker() for number in self.network.nodes}
        self.usage: dict[int, NamespaceUsage] = {}
        groups = [partition.group for partition in self.machine.state.topics["default/t"].partitions]
        for (number, broker), group in zip(self.brokers.items(), groups, strict=True):
            broker.topic(b"t", first=group)
            counting = StoredBytes(broker.engine, Layout(lambda: self.machine.state))
            maps = self.network.nodes[number].maps
            self.usage[number] = NamespaceUsage(maps, number, broker.broker.node.spaces, counting)

    def limit(self, stored_bytes: int) -> None:
        for broker in self.brokers.values():
            broker.broker.set_namespaces([NamespaceLimits("default", stored_bytes=stored_bytes)], broker.now)

    def pass_second(self) -> None:
        self.network.now += 1_000
        for one in self.usage.values():
            one.tick(self.network.now)
        for _ in range(10):
            for number, node in self.network.nodes.items():
                self.network.deliver(number)
                node.end_turn()

    def bytes(self, number: int) -> int:
        return sum(replica.log.size() for replica in self.brokers[number].engine.replicas.values())


def test_a_namespace_stores_no_more_than_it_may_on_all_nodes_together() -> None:
    pair = Pair()
    pair.limit(20_000)
    first, second = pair.brokers.values()
    near, far = first.client("near"), second.client("far")

    def publish(broker: DurableBroker, size: int) -> int:
        client = near if broker is first else far
        client.send(Publish(b"t/a", b"x" * size, 1, packet_id=1))
        broker.settle()
        return client.expect(Ack).reason

    assert publish(second, 15_000) == 0
    pair.pass_second()
    pair.pass_second()
    space = first.broker.node.spaces.default
    assert space is not None
    assert (space.stored_bytes, space.stored_bytes_elsewhere) == (pair.bytes(1), pair.bytes(2))
    assert publish(first, 10_000) == 0, "there is room, and nobody foresees how much a message takes"
    for _ in range(FULL_ROUNDS):
        assert publish(first, 1) == publish(second, 1) == 0, "it may be a partition that two nodes count"
        pair.pass_second()
    pair.pass_second()
    assert publish(first, 1) == publish(second, 1) == reasons.QUOTA_EXCEEDED
    pair.limit(1_000_000)
    pair.pass_second()
    assert publish(first, 1) == publish(second, 1) == 0
    pair.limit(1)
    pair.pass_second()
    assert first.broker.node.spaces.full == {b"default"}
    pair.limit(0)
    pair.pass_second()
    assert first.broker.node.spaces.full == set()
    assert dict(pair.network.nodes[1].maps.items(1)) == {}, "what is not limited is neither told nor counted"


def test_partitions_are_counted_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "GROUPS_MAX", 2)
    machine = Machine(3)
    machine.done(CreateNamespace("acme"))
    machine.done(CreateTopic("t", shards=5))
    machine.done(CreateTopic("u", namespace="acme", shards=1))
    machine.done(CreateHidden(SESSIONS_TOPIC))
    broker = DurableBroker()
    broker.topic(b"t", shards=5)
    broker.topic(b"u", first=6)
    broker.topic(b"hidden", shards=4, first=7)
    sizes = {group: replica.log.size() for group, replica in broker.engine.replicas.items()}
    counting = StoredBytes(broker.engine, Layout(lambda: machine.state))
    for _ in range(3):
        assert counting.of("default") == counting.of("acme") == 0
        counting.go_on()
        counting.begin({"default", "acme"})
    counting.go_on()
    assert counting.of("default") == sum(sizes[group] for group in range(1, 6)) > 0
    assert counting.of("acme") == sizes[6] > 0
    counting.begin(set())
    assert counting.of("default") == 0
