"""Where a session stands in the logs, and where its subscriptions begin."""

from __future__ import annotations

from flockmq.cluster.commands import CreateTopic
from flockmq.mqtt.packets import Suback, Subscribe, SubscribeEntry
from flockmq.testing.harness_client import make_properties
from session_nodes import Device, SessionNodes


def history(nodes: SessionNodes) -> Device:
    """A persistent subscriber with the history of a declared topic, of which two of five records are acknowledged."""
    publisher = nodes.clean(2, "p")
    nodes.submit(1, CreateTopic("d", filters=("d/#",), shards=1))
    nodes.run(2_000)
    nodes.publish_all(publisher, b"d/x", [b"%d" % number for number in range(5)])
    device = nodes.connect(1, "c")
    device.holds = True
    start = make_properties(user=[("flockmq-from", "earliest")])
    device.client.send(Subscribe(device.client.next_id(), [SubscribeEntry(b"d/#", 1)], start))
    nodes.answer(device, Suback)
    nodes.run(1_000)
    device.look()
    assert len(device.messages) == 5
    device.acknowledge(2)
    nodes.drop(device)
    return device


def test_history_goes_on_at_the_same_node() -> None:
    nodes = SessionNodes()
    history(nodes)
    assert nodes.got(nodes.connect(1, "c")) == [b"2", b"3", b"4"]


def test_history_goes_on_after_the_death_of_its_node() -> None:
    nodes = SessionNodes()
    history(nodes)
    nodes[1].kill()
    assert nodes.got(nodes.connect(2, "c")) == [b"2", b"3", b"4"]


def test_a_session_that_is_slow_in_one_partition_is_level_in_others() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"#")
    publisher = nodes.clean(2, "p")
    device.holds = True
    names = [b"a/%d" % number for number in range(12)]
    for name in names:
        nodes.publish_all(publisher, name, [name])
    nodes.run(1_000)
    device.look()
    first = next(index for index, message in enumerate(device.owed) if message.payload == names[0])
    device.owed = [device.owed.pop(first), *device.owed]
    unread = device.owed.pop(0)
    device.acknowledge(len(device.owed))
    nodes.run(10_000)
    record = nodes.record("c")
    positions = {group: nodes.table("c").position_of(record, group) for group in nodes.groups("$capture")}
    nodes[1].kill()
    found = nodes.got(nodes.connect(3, "c"))
    assert unread.payload in found
    assert sum(positions.values()) >= len(names) - len(found)
