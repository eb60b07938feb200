"""QoS 2 through whole nodes: MQTT clients, brokers, sessions, logs. (Random failures: ``test_durable``.)"""

from __future__ import annotations

import random

import pytest

from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE
from flockmq.cluster.tables import key_of
from flockmq.mqtt.packets import PUBCOMP, PUBREC, PUBREL, Ack, Connack, Connect, Packet, Publish
from flockmq.testing.harness import make_properties
from flockmq.testing.harness_client import HarnessClient
from flockmq.testing.simulation.nodes.plan import NodesPlan
from flockmq.testing.simulation.nodes.process import DurableProcess
from flockmq.testing.simulation.nodes.rules import read_log
from flockmq.testing.simulation.nodes.world import NodesWorld


class World:
    """Three nodes with a durable topic, and one client that goes from node to node."""

    def __init__(self, version: int = 5) -> None:
        self.cluster = NodesWorld(7, NodesPlan(nodes=3, shards=2))
        self.cluster.form()
        self.version = version
        self.number = 0

    def run(self, ms: int) -> None:
        self.cluster.queue.run_until(self.cluster.queue.now + ms * 1_000)

    def connect(self, number: int, clean: bool = False) -> Connack:
        machine = self.cluster.machine(number)
        properties = make_properties(session_expiry_s=3_600) if self.version == 5 else None
        self.number = number
        machine.do(machine.life, self._dial, Connect(self.version, "device", clean, 0, properties))
        connack = self.take(8_000)
        assert isinstance(connack, Connack)
        return connack

    def _dial(self, packet: Connect) -> None:
        process = self.cluster.machine(self.number).process
        assert process is not None
        self.client: HarnessClient = process.connect(packet, lambda: None)

    def say(self, packet: Packet) -> Packet:
        """Send something, and wait for the answer."""
        machine = self.cluster.machine(self.number)
        machine.do(machine.life, self.client.send, packet)
        return self.take(5_000)

    def take(self, ms_max: int) -> Packet:
        end = self.cluster.queue.now + ms_max * 1_000
        while self.cluster.queue.now < end:
            self.run(10)
            found = self.client.received()
            if found:
                assert len(found) == 1
                return found[0]
        raise AssertionError("no answer")

    def publish(self, packet_id: int, payload: bytes, dup: bool = False, topic: bytes = b"t/a") -> None:
        answer = self.say(Publish(topic, payload, 2, False, dup, packet_id))
        assert isinstance(answer, Ack)
        assert (answer.kind, answer.packet_id, answer.reason) == (PUBREC, packet_id, 0)

    def pubrel(self, packet_id: int) -> int:
        answer = self.say(Ack(PUBREL, packet_id))
        assert isinstance(answer, Ack)
        assert (answer.kind, answer.packet_id) == (PUBCOMP, packet_id)
        return answer.reason

    def drop(self) -> None:
        machine = self.cluster.machine(self.number)
        machine.do(machine.life, self.client.drop)

    def kill(self, number: int) -> None:
        self.cluster.machine(number).die(random.Random(1), power=True)

    def captured(self) -> list[bytes]:
        """What is in the hidden logs of messages that no durable topic has, in the order of payloads."""
        topic = self.cluster.processes()[0].durable.meta.state.topics[key_of(DEFAULT_NAMESPACE, CAPTURE_TOPIC)]
        return self.stored([partition.group for partition in topic.partitions])

    def stored(self, groups: list[int] | None = None) -> list[bytes]:
        """What is in the logs of the durable topic, or in others, in the order of payloads."""
        self.run(500)
        found: list[bytes] = []
        for group in self.cluster.groups if groups is None else groups:
            while not self._leaders(group):
                self.run(100)
            process = self._leaders(group)[0]
            found += [payload for _, payload in read_log(process.store.groups[group])[1]]
        return sorted(found)

    def _leaders(self, group: int) -> list[DurableProcess]:
        return [one for one in self.cluster.processes() if one.engine.is_leader(group)]


@pytest.mark.parametrize("version", [4, 5])
def test_a_publisher_whose_node_dies_between_pubrec_and_pubrel(version: int) -> None:
    world = World(version)
    world.connect(1)
    world.publish(5, b"first")
    world.kill(1)
    world.connect(2)
    world.publish(5, b"first", dup=True)
    assert world.stored() == [b"first"], "resent, not stored again"
    assert world.pubrel(5) == 0
    world.publish(5, b"second")
    assert world.stored() == [b"first", b"second"], "the same id, another message"
    assert world.pubrel(5) == 0


def test_a_pubrel_that_goes_to_another_node() -> None:
    world = World()
    world.connect(1)
    world.publish(5, b"first")
    world.publish(6, b"first again", topic=b"t/other")
    world.kill(1)
    world.connect(3)
    assert world.pubrel(5) == 0
    world.publish(5, b"second")
    world.kill(3)
    world.cluster.machine(1).start()
    world.run(8_000)
    world.connect(2)
    world.publish(5, b"second", dup=True)
    world.publish(6, b"first again", dup=True, topic=b"t/other")
    assert world.pubrel(6) == 0
    assert world.pubrel(5) == 0
    assert world.stored() == [b"first", b"first again", b"second"]


def test_a_session_that_moves_takes_its_ids_along() -> None:
    world = World()
    world.connect(1)
    world.publish(5, b"first")
    connack = world.connect(2)
    assert connack.session_present
    world.publish(5, b"first", dup=True)
    assert world.pubrel(5) == 0
    connack = world.connect(1)
    assert connack.session_present
    world.publish(5, b"second")
    assert world.stored() == [b"first", b"second"]


def test_a_publisher_that_drops_its_state_when_its_node_dies() -> None:
    world = World()
    world.connect(1)
    world.publish(5, b"first")
    world.publish(6, b"other")
    world.kill(1)
    assert world.connect(2).session_present, "the log has the session; this publisher does not remember it"
    world.publish(1, b"begin")
    assert world.pubrel(1) == 0
    world.publish(5, b"second")
    assert world.stored() == [b"begin", b"first", b"other", b"second"], "not sent again, so it is new"
    world.publish(5, b"second", dup=True)
    assert world.stored() == [b"begin", b"first", b"other", b"second"], "sent again, on the same connection"
    assert world.pubrel(5) == 0
    world.publish(5, b"third")
    assert world.stored() == [b"begin", b"first", b"other", b"second", b"third"]


def test_a_clean_start_after_a_death_begins_with_no_ids() -> None:
    world = World()
    world.connect(1)
    world.publish(5, b"first")
    world.kill(1)
    world.connect(2, clean=True)
    world.run(4_000)
    world.kill(2)
    world.cluster.machine(1).start()
    world.run(8_000)
    world.connect(3)
    world.publish(5, b"second")
    assert world.stored() == [b"first", b"second"], "an id of a session that is long over"


def test_all_nodes_die_and_come_back() -> None:
    world = World()
    world.connect(1)
    world.publish(5, b"first")
    for number in (1, 2, 3):
        world.kill(number)
    for number in (1, 2, 3):
        world.cluster.machine(number).start()
    world.run(10_000)
    world.connect(1)
    world.publish(5, b"first", dup=True)
    assert world.pubrel(5) == 0
    assert world.stored() == [b"first"]


@pytest.mark.parametrize("topic", [b"t/a", b"plain"])
@pytest.mark.parametrize("ms", [*range(0, 60, 4), 80, 120])
def test_an_owner_that_dies_at_any_step_of_a_publish_and_of_a_release(ms: int, topic: bytes) -> None:
    """TOUCH, ADOPT, the record, PUBREC; then RELEASE and PUBCOMP: each may be done or not when the owner dies."""
    world = World()
    world.connect(1)
    machine = world.cluster.machine(1)
    machine.do(machine.life, world.client.send, Publish(topic, b"first", 2, False, False, 5))
    world.run(ms)
    world.kill(1)
    world.connect(2)
    world.publish(5, b"first", dup=True, topic=topic)
    machine = world.cluster.machine(2)
    machine.do(machine.life, world.client.send, Ack(PUBREL, 5))
    world.run(ms)
    world.kill(2)
    world.cluster.machine(1).start()
    world.run(8_000)
    world.connect(3)
    world.pubrel(5)
    world.publish(5, b"second", topic=topic)
    assert (world.captured() if topic == b"plain" else world.stored()) == [b"first", b"second"]


def test_a_message_that_no_log_wants_is_in_one_all_the_same_if_its_publisher_is_persistent() -> None:
    world = World()
    world.connect(1)
    world.publish(5, b"first", topic=b"plain")
    world.kill(1)
    world.connect(2)
    world.publish(5, b"first", dup=True, topic=b"plain")
    assert world.pubrel(5) == 0
    assert world.captured() == [b"first"]


def test_a_session_that_ends_with_its_connection_touches_nothing() -> None:
    world = World(5)
    machine = world.cluster.machine(1)
    world.number = 1
    machine.do(machine.life, world._dial, Connect(5, "device", True, 0, make_properties(session_expiry_s=0)))
    assert isinstance(world.take(8_000), Connack)
    world.publish(5, b"first")
    assert world.pubrel(5) == 0
    assert world.stored() == [b"first"]
    for process in world.cluster.processes():
        for partition in process.durable.machines.by_group.values():
            assert not any(record.touched for record in partition.sessions.records.values())
