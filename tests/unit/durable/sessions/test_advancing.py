"""Sessions that match few names: they read little when they come back, and hold little while they are away."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from flockmq.cluster.commands import AlterTopic
from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.durable.sessions.holding import HOLD_MS
from flockmq.mqtt.packets import Ack, Connack
from flockmq.mqtt.topics import matches
from flockmq.routing.durable import shard_of
from session_nodes import Device, SessionNodes, connect_packet

if TYPE_CHECKING:
    from flockmq.durable.deliver.log_readers import LogReaders

NAME = b"a/b"
SHARDS = 8
NOISE = next(name for name in (b"noise/%d" % number for number in range(100)) if shard_of(name, 8) == shard_of(NAME, 8))
"""A name that shares the log of ``NAME``."""
SIZE = 1_000


def send_all(nodes: SessionNodes, publisher: Device, messages: list[tuple[bytes, bytes]]) -> None:
    """Publish at QoS 1, some at a time."""
    for low in range(0, len(messages), 10):
        part = messages[low : low + 10]
        for topic, payload in part:
            nodes.send(publisher, topic, payload)
        for _ in part:
            assert nodes.answer(publisher, Ack).reason < 0x80


def noise(count: int) -> list[tuple[bytes, bytes]]:
    return [(NOISE, b"%06d" % number + bytes(SIZE)) for number in range(count)]


def readers(nodes: SessionNodes, number: int) -> LogReaders:
    return nodes[number].durable.delivery.readers


def group_of(nodes: SessionNodes, name: bytes = NAME) -> int:
    """The partition of ``$capture`` that has a name."""
    return nodes.groups(CAPTURE_TOPIC)[shard_of(name, SHARDS)]


def listener(nodes: SessionNodes, number: int = 1) -> Device:
    """A session for which noise is captured; it stays connected."""
    return nodes.subscriber(number, "listener", b"noise/#")


def read_bytes(nodes: SessionNodes, number: int) -> int:
    return readers(nodes, number).shared.read_bytes


def test_a_returning_session_reads_only_what_may_be_for_it() -> None:
    nodes = SessionNodes()
    listener(nodes)
    device = nodes.subscriber(2, "c", NAME)
    publisher = nodes.clean(1, "p")
    nodes.drop(device)
    send_all(nodes, publisher, [*noise(150), (NAME, b"1"), *noise(150), (NAME, b"2"), *noise(100)])
    assert len(nodes[3].engine.replicas[group_of(nodes)].log.segments) > 4
    before = read_bytes(nodes, 3)
    device = nodes.connect(3, "c")
    assert nodes.got(device) == [b"1", b"2"]
    read = read_bytes(nodes, 3) - before
    assert read < 40_000, "of 400,000"
    assert readers(nodes, 3).passed > 350
    assert not readers(nodes, 3).catching


def test_a_session_that_wants_all_reads_all_and_is_not_held_up() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(2, "c", b"noise/#")
    publisher = nodes.clean(1, "p")
    nodes.drop(device)
    messages = noise(200)
    send_all(nodes, publisher, messages)
    before = readers(nodes, 3).shared.reads
    device = nodes.connect(3, "c")
    assert nodes.got(device) == [payload for _, payload in messages]
    assert readers(nodes, 3).shared.reads - before < 20
    assert not readers(nodes, 3).passed


def test_a_session_on_a_node_without_a_replica_passes_as_well() -> None:
    nodes = SessionNodes(3, edges=1)
    listener(nodes)
    device = nodes.subscriber(2, "c", NAME)
    publisher = nodes.clean(1, "p")
    nodes.drop(device)
    send_all(nodes, publisher, [*noise(120), (NAME, b"1"), *noise(120), (NAME, b"2"), *noise(80)])
    assert not nodes[4].durable.local.is_here(group_of(nodes))
    before = read_bytes(nodes, 4)
    device = nodes.connect(4, "c")
    assert nodes.got(device) == [b"1", b"2"]
    assert read_bytes(nodes, 4) - before < 40_000, "of 320,000"
    assert readers(nodes, 4).passed > 270
    send_all(nodes, publisher, [(NAME, b"3")])
    assert nodes.got(device) == [b"3"]


def keep_little(nodes: SessionNodes) -> None:
    """Records that no session waits for go beyond 128 KiB per shard."""
    altered = nodes[1].meta.submit(AlterTopic(CAPTURE_TOPIC, retention_bytes=128 * 1_024))
    nodes.until(lambda: altered.is_set)


def test_a_session_that_matches_nothing_holds_nothing() -> None:
    nodes = SessionNodes(1)
    other = listener(nodes)
    device = nodes.subscriber(1, "c", NAME)
    publisher = nodes.clean(1, "p")
    nodes.drop(device)
    keep_little(nodes)
    log = nodes[1].engine.replicas[group_of(nodes)].log
    for _ in range(6):
        send_all(nodes, publisher, noise(60))
        assert nodes.got(other)
        nodes.run(HOLD_MS + 1_000)
    assert nodes.record("c").positions[group_of(nodes)] > log.first_offset > 100
    assert nodes[1].durable.retention_sweeper.records_lost == 0, "no cursor was overrun"
    send_all(nodes, publisher, [(NAME, b"1")])
    device = nodes.connect(1, "c")
    nodes.until_seen(device, b"1")
    properties = device.messages[0].properties
    assert [message.payload for message in device.messages] == [b"1"]
    assert properties is None or not properties.user, "there is no gap"


def test_a_message_that_waits_is_held_and_what_is_before_it_is_not() -> None:
    nodes = SessionNodes()
    listener(nodes)
    device = nodes.subscriber(2, "c", NAME)
    publisher = nodes.clean(1, "p")
    nodes.drop(device)
    send_all(nodes, publisher, [*noise(150), (NAME, b"1"), *noise(150)])
    nodes.run(2 * HOLD_MS)
    group = group_of(nodes)
    position = nodes.record("c").positions[group]
    assert 140 < position <= 150
    leader = nodes.leader(nodes.shard("c"))
    assert leader is not None
    asked = leader.durable.advancing.asked
    entries = nodes.entries()
    nodes.run(2 * HOLD_MS)
    assert leader.durable.advancing.asked == asked, "it is not asked again and again"
    assert nodes.record("c").positions[group] == position
    assert nodes.entries() - entries < 200
    nodes[leader.number].kill()
    nodes.run(2 * HOLD_MS)
    assert nodes.record("c").positions[group] == position
    running = next(iter(nodes.running())).number
    device = nodes.connect(running, "c")
    assert nodes.got(device) == [b"1"]


def test_a_session_that_its_node_still_has_passes_what_its_record_passed() -> None:
    """It has messages in flight, so that its node keeps it; meanwhile what it does not match goes."""
    nodes = SessionNodes(1)
    listening = listener(nodes)
    device = nodes.subscriber(1, "c", NAME)
    nodes.subscribe(device, b"a/+/+")
    publisher = nodes.clean(1, "p")
    device.holds = True
    other = next(b"a/c/%d" % number for number in range(100) if shard_of(b"a/c/%d" % number, 8) != shard_of(NAME, 8))
    send_all(nodes, publisher, [(other, b"0")])
    nodes.until_seen(device, b"0")
    nodes.drop(device)
    session = nodes[1].whole.broker.sessions["c"]
    readers(nodes, 1).lag(session, group_of(nodes), 0)  # as if it had been slow
    keep_little(nodes)
    for _ in range(6):
        send_all(nodes, publisher, noise(60))
        assert nodes.got(listening)
        nodes.run(HOLD_MS + 1_000)
    assert nodes[1].engine.replicas[group_of(nodes)].log.first_offset > 100
    send_all(nodes, publisher, [(NAME, b"1")])
    device = nodes.connect(1, "c")
    assert nodes.got(device) == [b"0", b"1"]
    assert readers(nodes, 1).gone == 0


@pytest.mark.parametrize("how", ["restart", "wipe", "leader"])
def test_nothing_is_lost_when_nodes_go(how: str) -> None:
    nodes = SessionNodes()
    listener(nodes)
    device = nodes.subscriber(2, "c", b"a/#")
    publisher = nodes.clean(1, "p")
    nodes.drop(device)
    send_all(nodes, publisher, [*noise(90), (NAME, b"1"), *noise(90)])
    nodes.run(HOLD_MS + 1_000)
    if how == "restart":
        for node in nodes.running():
            node.kill()
            node.start()
    elif how == "wipe":
        nodes[3].kill()
        nodes[3].disk.wipe()
        nodes[3].kept = b""
        nodes[3].start()
    else:
        leader = nodes.leader(group_of(nodes))
        assert leader is not None
        leader.kill()
        leader.start()
    nodes.until(lambda: all(node.durable.is_ready() for node in nodes.running()), 120_000)
    publisher = nodes.clean(2, "q")
    send_all(nodes, publisher, [*noise(60), (NAME, b"2"), *noise(60)])
    nodes.run(2 * HOLD_MS)
    device = nodes.connect(3, "c")
    assert nodes.until_got(device, 2) == [b"1", b"2"]
    assert nodes.got(device) == []


def tenant(nodes: SessionNodes, number: int, client_id: str) -> Device:
    """A persistent session of the namespace ``acme``."""
    client = nodes[number].harness.connect(connect_packet(client_id), listener="acme")
    nodes.until(lambda: client.has_received)
    return Device(client, client.expect(Connack))


def test_names_of_namespaces_and_shared_subscriptions() -> None:
    nodes = SessionNodes()
    for node in nodes.running():
        node.harness.broker.set_listener_namespace("acme", "acme")
    inside = tenant(nodes, 2, "c")
    assert nodes.subscribe(inside, b"a/+") == 1
    outside = nodes.subscriber(3, "c", b"a/+")
    shared = nodes.subscriber(3, "s", b"x/#")
    assert nodes.subscribe(shared, b"$share/g/a/+") == 1
    listener(nodes)
    nodes.drop(outside)
    nodes.drop(shared)
    inside.client.drop()
    nodes.until(lambda: not nodes.record("$ns/acme/c").is_connected)
    publisher = tenant(nodes, 1, "p")
    plain = nodes.clean(1, "p")
    send_all(nodes, publisher, [(b"a/1", b"in"), (b"b/1", b"-")])
    send_all(nodes, plain, [*noise(120), (b"a/1", b"out"), (b"x/y", b"x"), *noise(60)])
    send_all(nodes, publisher, [(b"a/2", b"in 2")])
    nodes.run(2 * HOLD_MS)
    inside = tenant(nodes, 3, "c")
    assert sorted(nodes.got(inside)) == [b"in", b"in 2"]
    assert nodes.got(nodes.connect(2, "c")) == [b"out"]
    assert sorted(nodes.got(nodes.connect(3, "s"))) == [b"out", b"x"]


@pytest.mark.parametrize("seed", range(4))
def test_sessions_get_what_they_match_and_nothing_else(seed: int) -> None:
    """Any names and filters, sessions that come and go, and a restart."""
    rng = random.Random(seed)
    nodes = SessionNodes(1, seed)
    names = [b"/".join(rng.choice((b"a", b"b", b"c", b"")) for _ in range(rng.randrange(2, 4))) for _ in range(14)]
    filters = [b"a/#", b"+/b", b"+/+/c", b"#", b"c/+/a", names[0], names[1], b"b/+/#"]
    wanted = {f"c{number}": rng.sample(filters, rng.randrange(1, 3)) for number in range(6)}
    online: dict[str, Device] = {}
    got: dict[str, list[bytes]] = {client_id: [] for client_id in wanted}
    for client_id, own in wanted.items():
        online[client_id] = nodes.connect(1, client_id)
        for topic_filter in own:
            assert nodes.subscribe(online[client_id], topic_filter) == 1
    published: list[tuple[bytes, bytes]] = []
    for step in range(10):
        for client_id in rng.sample(sorted(wanted), 3):
            if client_id in online:
                got[client_id] += nodes.got(online[client_id])
                nodes.drop(online.pop(client_id))
            else:
                online[client_id] = nodes.connect(1, client_id)
        lately = rng.sample(names, 3)
        part = [(rng.choice(lately), b"%d.%d" % (step, number) + bytes(600)) for number in range(60)]
        send_all(nodes, nodes.clean(1, "p"), part)
        published += part
        if step == 5:
            nodes.run(HOLD_MS)
            for client_id, device in online.items():
                got[client_id] += nodes.got(device)
                nodes.drop(device)
            nodes[1].kill()
            nodes[1].start()
            nodes.until(nodes[1].durable.is_ready, 60_000)
            online = {client_id: nodes.connect(1, client_id) for client_id in online}
    nodes.run(HOLD_MS)
    for client_id, own in wanted.items():
        device = online.get(client_id) or nodes.connect(1, client_id)
        got[client_id] += nodes.got(device)
        expected = [payload for name, payload in published if any(matches(one, name) for one in own)]
        assert sorted(got[client_id]) == sorted(expected)
