"""Captured messages stay while a session waits for them; where they can't, the session's client is told."""

from __future__ import annotations

from flockmq.cluster.commands import AlterTopic
from flockmq.cluster.model import CAPTURE_TOPIC, DEFAULT_NAMESPACE
from flockmq.cluster.tables import key_of
from flockmq.durable.sessions.holding import HOLD_MS
from flockmq.routing.durable import shard_of
from session_nodes import SessionNodes

NAME = b"a/b"


def group_of_name(nodes: SessionNodes) -> int:
    """The partition of ``$capture`` that has the messages of ``NAME``."""
    topic = nodes[1].meta.state.topics[key_of(DEFAULT_NAMESPACE, CAPTURE_TOPIC)]
    return topic.partitions[shard_of(NAME, len(topic.partitions))].group


def holds(nodes: SessionNodes) -> dict[bytes, int]:
    """Where the cursors of sessions stand in that partition."""
    return dict(sorted(nodes[1].durable.machines.by_group[group_of_name(nodes)].cursors.items()))


def test_each_shard_of_sessions_holds_what_its_sessions_have_not_read() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, NAME, [b"1", b"2"])
    assert nodes.until_got(device, 2) == [b"1", b"2"]
    nodes.drop(device)
    nodes.publish_all(publisher, NAME, [b"3", b"4"])
    nodes.run(2 * HOLD_MS)
    own = b"$sessions/%d" % shard_of(b"c", 4)
    others = {b"$sessions/%d" % shard: 4 for shard in range(4)}
    assert holds(nodes) == {**others, own: 2}
    device = nodes.connect(3, "c")
    assert nodes.until_got(device, 2) == [b"3", b"4"]
    nodes.drop(device)
    nodes.run(2 * HOLD_MS)
    assert holds(nodes) == others


def test_the_next_leader_of_a_shard_goes_on_with_its_hold() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.drop(device)
    nodes.publish_all(publisher, NAME, [b"1"])
    nodes.run(2 * HOLD_MS)
    nodes[3].kill()
    nodes.publish_all(publisher, NAME, [b"2"])
    device = nodes.connect(1, "c")
    assert nodes.until_got(device, 2) == [b"1", b"2"]
    nodes.drop(device)
    nodes.run(3 * HOLD_MS)
    assert set(holds(nodes).values()) == {2}


def test_a_session_is_told_of_messages_that_were_too_many_to_keep() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    old = nodes.connect(2, "old", version=4)
    assert nodes.subscribe(old, b"a/#") == 1
    publisher = nodes.clean(2, "p")
    nodes.drop(device)
    nodes.drop(old)
    size = 256 * 1_024
    altered = nodes[1].meta.submit(AlterTopic(CAPTURE_TOPIC, retention_bytes=size))
    nodes.until(lambda: altered.is_set)
    payloads = [b"%04d" % number + bytes(1_000) for number in range(900)]
    for low in range(0, len(payloads), 100):
        nodes.publish_all(publisher, NAME, payloads[low : low + 100])
        nodes.run(1_000)
    nodes.run(60_000)
    device = nodes.connect(3, "c")
    nodes.until_seen(device, payloads[-1])
    came = [message.payload for message in device.messages]
    assert came == payloads[-len(came) :], "the newest are all there"
    assert 256 <= len(came) < 700
    gap = ("flockmq-gap", str(len(payloads) - len(came)))
    first, *others = [message.properties for message in device.messages]
    assert first is not None
    assert first.user == [gap]
    assert not any(one.user for one in others if one is not None)
    late = nodes.connect(3, "old", version=4)
    assert nodes.got(late)[-1] == payloads[-1], "a client of MQTT 3.1.1 gets the rest as well"
