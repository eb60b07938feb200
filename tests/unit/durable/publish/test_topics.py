"""What publishing goes by follows cluster state."""

from __future__ import annotations

from durable_broker import DurableBroker
from flockmq.cluster.commands import AlterTopic, CreateHidden, CreateNamespace, CreateTopic, DeleteTopic, SetTarget
from flockmq.cluster.model import BY_PROPERTY, LEADER, MEMORY, SESSIONS_TOPIC
from flockmq.cluster.state import ClusterState
from flockmq.durable.publish.topics import Topics
from flockmq.mqtt.packets import Ack, Disconnect, Publish
from flockmq.raft.senders import STORED, TAKEN
from state_cases import Machine


class World:
    """Cluster state, and a broker that follows it."""

    def __init__(self) -> None:
        self.machine = Machine(3)
        self.broker = DurableBroker(leader=False)
        self.table = self.broker.table
        self.host = self.broker.host
        self.topics = Topics(self.table, self.host, self.broker.appending)

    def follow(self) -> None:
        self.topics.follow(self.machine.state, self.broker.now)

    def group(self, topic: bytes) -> int:
        return self.table.plan(topic).group


def test_a_topic_comes_changes_and_goes() -> None:
    world = World()
    for _ in range(3):
        assert world.table.plan(b"t/a").durable is None
    world.machine.done(CreateTopic("t", shards=2, ack=MEMORY, key=BY_PROPERTY, key_property="device"))
    world.follow()
    topic = world.table.plan(b"t/a").durable
    assert topic is not None
    record = world.machine.state.topics["default/t"]
    assert topic.groups == [partition.group for partition in record.partitions]
    assert (topic.namespace, topic.name, topic.key_property) == (b"default", b"t", b"device")
    state = world.machine.state
    assert world.table.topics.index == world.host.rules.known == state.index
    assert world.host.rules.least == dict.fromkeys(topic.groups, record.changed_index)
    assert set(world.host.rules.early.values()) == {TAKEN}
    assert set(world.host.elsewhere) == set(topic.groups)
    world.machine.done(AlterTopic("t", shards=3, ack=LEADER))
    world.follow()
    changed = world.table.plan(b"t/a").durable
    assert changed is not None
    assert changed.groups[:2] == topic.groups
    assert len(changed.groups) == 3
    assert set(world.host.rules.early.values()) == {STORED}
    assert world.host.rules.least[changed.groups[0]] == changed.index > topic.index
    world.machine.done(DeleteTopic("t"))
    world.follow()
    assert world.table.plan(b"t/a").durable is None
    assert (world.host.elsewhere, world.host.rules.least, world.host.rules.early) == ({}, {}, {})


def test_what_is_not_about_topics_costs_no_plan() -> None:
    world = World()
    world.machine.done(CreateTopic("t"))
    world.follow()
    for _ in range(3):
        plan = world.table.plan(b"t/a")
    world.machine.done(CreateNamespace("acme"))
    world.follow()
    assert world.table.plans.get(b"t/a") is plan
    assert world.table.topics.index == world.machine.state.index


def test_a_change_that_is_not_the_publishers_keeps_the_plan() -> None:
    world = World()
    world.machine.done(CreateTopic("t"))
    world.follow()
    topic = world.table.plan(b"t/a").durable
    world.machine.done(AlterTopic("t", retention_ms=5_000))
    world.follow()
    assert world.table.plan(b"t/a").durable is topic


def test_a_topic_made_again_is_another_one() -> None:
    world = World()
    world.machine.done(CreateTopic("t"))
    world.follow()
    first = world.group(b"t/a")
    world.machine.done(DeleteTopic("t"))
    world.machine.done(CreateTopic("t"))
    world.follow()
    assert world.group(b"t/a") > first
    assert first not in world.host.elsewhere


def test_topics_of_a_namespace_have_its_prefix() -> None:
    world = World()
    world.machine.done(CreateNamespace("acme"))
    world.machine.done(CreateTopic("t", namespace="acme"))
    world.follow()
    assert world.table.plan(b"t/a").durable is None
    topic = world.table.plan(b"$ns/acme/t/a").durable
    assert topic is not None
    assert topic.id == b"acme/t"


def test_a_state_that_came_as_a_whole_changes_nothing_that_is_the_same() -> None:
    world = World()
    world.machine.done(CreateTopic("t"))
    world.machine.done(CreateTopic("u"))
    world.follow()
    topic = world.table.plan(b"t/a").durable
    world.machine.done(AlterTopic("u", shards=2))
    world.topics.follow(ClusterState.decode(world.machine.state.encode()), world.broker.now)
    assert world.table.plan(b"t/a").durable is topic
    assert world.table.plan(b"u/a").durable is not None


def test_publishers_to_a_topic_that_is_no_more_are_not_left_waiting() -> None:
    world = World()
    world.machine.done(CreateTopic("t"))
    world.follow()
    early, late = world.broker.client("early"), world.broker.client("late")
    early.send(Publish(b"t/a", b"x", 1, packet_id=1))
    world.broker.turn()
    late.send(Publish(b"t/a", b"y", 1, packet_id=1))
    world.machine.done(DeleteTopic("t"))
    world.follow()
    world.broker.flush()
    assert isinstance(early.received()[0], Disconnect), "it was sent: nobody knows"
    [answer] = late.received()
    assert isinstance(answer, Ack)
    assert answer.reason == 0x80, "it never left: certainly not in a log"
    assert world.host.forwarders == {}


def test_of_a_thousand_topics_only_the_one_that_changed_is_made_anew() -> None:
    world = World()
    for number in range(1_000):
        world.machine.done(CreateTopic(f"t{number}", shards=3))
    world.follow()
    assert len(world.table.topics.topics) == 1_000
    world.machine.done(AlterTopic("t7", shards=4))
    before = dict(world.table.topics.topics)
    world.follow()
    changed = [key for key, topic in world.table.topics.topics.items() if topic is not before[key]]
    assert changed == [b"default/t7"]


def test_a_hidden_topic_has_partitions_and_no_names() -> None:
    world = World()
    for _ in range(3):
        plan = world.table.plan(b"$sessions")
    world.machine.done(CreateHidden(SESSIONS_TOPIC))
    world.follow()
    topic = world.table.topics.topics[b"default/$sessions"]
    assert (topic.filters, topic.groups) == ([], [1, 2, 3, 4])
    assert world.table.plan(b"$sessions") is plan, "no plan was made anew"
    assert plan.durable is None
    assert set(world.host.elsewhere) == set(world.host.rules.least) == {1, 2, 3, 4}
    assert set(world.host.rules.early.values()) == {0}
    world.machine.done(SetTarget(2, (1, 2)))
    world.follow()
    assert world.table.topics.topics[b"default/$sessions"] is topic
