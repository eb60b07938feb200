"""A persistent session whose client goes to another node while the former one lives: nothing lost, nothing twice."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import CreateTopic
from flockmq.durable.sessions import reloading, standing
from flockmq.durable.sessions.marking import MARK_MS
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Connect, Disconnect, Publish, Subscribe
from flockmq.mqtt.packets import SubscribeEntry as Entry
from flockmq.testing.harness_client import make_properties
from session_nodes import EXPIRY_S, Device, SessionNodes


def narrow(nodes: SessionNodes, number: int, window: int) -> Device:
    """A client that takes few messages at a time."""
    properties = make_properties(session_expiry_s=EXPIRY_S, receive_maximum=window)
    return nodes.ask(number, Connect(5, "c", False, 0, properties))


def ids(device: Device) -> list[tuple[int, bytes, bool]]:
    """Packet id, payload and DUP of what came."""
    return [(one.packet_id, one.payload, one.dup) for one in device.messages]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_in_flight_is_sent_again_with_its_id(qos: int) -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#", qos)
    device.holds = True
    publisher = nodes.clean(2, "p")
    for payload in (b"1", b"2", b"3"):
        nodes.publish(publisher, b"a/b", payload, qos)
    nodes.until_seen(device, b"3")
    sent = ids(device)
    second = nodes.connect(2, "c")
    second.holds = True
    assert nodes.answer(device, Disconnect).reason == reasons.SESSION_TAKEN_OVER
    nodes.until_seen(second, b"3")
    nodes.run(1_000)
    second.look()
    assert ids(second) == [(packet_id, payload, True) for packet_id, payload, _ in sent]
    second.holds = False
    nodes.publish(publisher, b"a/b", b"4", qos)
    nodes.until_seen(second, b"4")
    assert [one.payload for one in second.messages] == [b"1", b"2", b"3", b"4"]
    assert nodes[2].durable.session_room.reloading.taken == 1


def test_what_was_acknowledged_does_not_come_again() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    device.holds = True
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", [b"%d" % number for number in range(6)])
    nodes.until_seen(device, b"5")
    for message in device.messages:
        if message.payload not in (b"1", b"4"):
            device.client.send(Ack(PUBACK, message.packet_id))
    second = nodes.connect(3, "c")
    assert nodes.got(second) == [b"1", b"4"]


def test_a_release_goes_on_at_the_new_node() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#", 2)
    device.holds = True
    nodes.publish(nodes.clean(2, "p"), b"a/b", b"1", 2)
    nodes.until_seen(device, b"1")
    packet_id = device.messages[0].packet_id
    device.client.send(Ack(PUBREC, packet_id))
    nodes.until(lambda: any(isinstance(one, Ack) and one.kind == PUBREL for one in device.client.received()))
    second = nodes.connect(2, "c")
    nodes.run(1_000)
    found = second.client.received()
    assert [(one.kind, one.packet_id) for one in found if isinstance(one, Ack)] == [(PUBREL, packet_id)]
    assert not [one for one in found if isinstance(one, Publish)], "it has the message"
    second.client.send(Ack(PUBCOMP, packet_id))
    outbound = nodes[2].harness.broker.sessions["c"].outbound
    assert outbound is not None
    assert outbound.inflight == 0


def test_what_waits_comes_in_its_order() -> None:
    nodes = SessionNodes()
    device = narrow(nodes, 1, 2)
    nodes.subscribe(device, b"a/#")
    device.holds = True
    payloads = [b"%d" % number for number in range(40)]
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", payloads)
    nodes.until_seen(device, b"1")
    device.acknowledge(1)
    assert nodes.got(narrow(nodes, 3, 2)) == payloads[1:]


def test_more_than_is_listed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "RANGES_MAX", 5)
    nodes = SessionNodes()
    device = narrow(nodes, 1, 2)
    nodes.subscribe(device, b"a/#")
    device.holds = True
    payloads = [b"%d" % number for number in range(40)]
    nodes.publish_all(nodes.clean(2, "p"), b"a/b", payloads)
    assert nodes.got(narrow(nodes, 3, 2)) == payloads


def test_history_goes_on_for_the_subscription_that_asked_for_it() -> None:
    nodes = SessionNodes()
    nodes.submit(1, CreateTopic("d", filters=("d/#",), shards=1))
    publisher = nodes.clean(2, "p")
    for number in range(10):
        nodes.publish_all(publisher, b"d/a", [b"a%d" % number])
        nodes.publish_all(publisher, b"d/b", [b"b%d" % number])
    device = narrow(nodes, 1, 2)
    nodes.subscribe(device, b"d/b")
    properties = make_properties(user=[("flockmq-from", "earliest")])
    device.client.send(Subscribe(7, [Entry(b"d/a", 1)], properties))
    device.holds = True
    nodes.until_seen(device, b"a1")
    device.acknowledge(1)
    second = narrow(nodes, 3, 2)
    nodes.publish_all(publisher, b"d/b", [b"new"])
    assert nodes.got(second) == [*[b"a%d" % number for number in range(1, 10)], b"new"]


def test_a_former_owner_that_says_nothing_is_not_waited_for_long() -> None:
    nodes = SessionNodes()
    publisher = nodes.clean(3, "p")
    client_id = next(str(number) for number in range(100) if leader_of(nodes, str(number)) != 1)
    device = nodes.subscriber(1, client_id, b"a/#")
    device.holds = True
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    nodes.until_seen(device, b"2")
    nodes.cut(1, 2)
    nodes.cut(2, 1)
    began = nodes.now
    second = nodes.connect(2, client_id)
    assert second.connack.session_present
    assert nodes.now - began < 3 * reloading.YIELD_MS
    assert nodes.got(second) == [b"1", b"2"]


def leader_of(nodes: SessionNodes, client_id: str) -> int:
    """The node that leads the shard of a client."""
    nodes.table(client_id)
    leader = nodes.leader(nodes.shard(client_id))
    assert leader is not None
    return leader.number


def test_messages_of_a_shared_group_that_wait_go_to_another_member() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"$share/g/a/#")
    device.holds = True
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    nodes.until_seen(device, b"2")
    member = nodes.clean(3, "member")
    assert nodes.subscribe(member, b"$share/g/a/#", 1) == 1
    nodes.clean(1, "last")
    nodes.connect(2, "c", clean_start=True)
    assert sorted(nodes.got(member)) == [b"1", b"2"]


def test_messages_of_a_shared_group_without_another_member_go_to_the_new_owner() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"$share/g/a/#")
    device.holds = True
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    nodes.until_seen(device, b"2")
    second = nodes.connect(2, "c")
    nodes.publish_all(publisher, b"a/b", [b"3"])
    assert sorted(nodes.got(second, 4_000)) == [b"1", b"2", b"3"]
    assert not nodes[1].harness.broker.node.table.count_own(b"g", b"a/#")


def test_a_session_that_is_away_with_messages_in_flight_is_yielded_as_well() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#", 2)
    device.holds = True
    nodes.publish(nodes.clean(2, "p"), b"a/b", b"1", 2)
    nodes.until_seen(device, b"1")
    nodes.drop(device)
    nodes.run(1_000)
    assert "c" in nodes[1].harness.broker.sessions
    second = nodes.connect(2, "c")
    nodes.until_seen(second, b"1")
    assert ids(second) == [(device.messages[0].packet_id, b"1", True)]
    assert "c" not in nodes[1].harness.broker.sessions


def test_a_copy_that_its_node_could_not_hear_of_goes_when_it_asks() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#", 2)
    device.holds = True
    nodes.publish(nodes.clean(2, "p"), b"a/b", b"1", 2)
    nodes.until_seen(device, b"1")
    nodes.drop(device)
    nodes.isolate(1)
    nodes.run(3_000)
    nodes.connect(2, "c")
    assert "c" in nodes[1].harness.broker.sessions
    nodes.heal()
    nodes.run(2 * MARK_MS)
    assert "c" not in nodes[1].harness.broker.sessions
