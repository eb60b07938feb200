"""Clean sessions that the log does not know, or does not have as their node thinks."""

from __future__ import annotations

from flockmq.cluster.commands import CreateTopic
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import PUBREC, Ack, Disconnect, Publish
from session_nodes import SessionNodes


def test_sessions_of_a_node_alone_are_registered_when_another_comes() -> None:
    nodes = SessionNodes(1, later=1)
    devices = [nodes.clean(1, f"c{number}") for number in range(3)]
    assert nodes.groups() == []
    nodes.join(2)
    nodes.until(lambda: bool(nodes.groups()) and all(nodes.has_record(f"c{number}") for number in range(3)))
    nodes.clean(2, "c0")
    assert nodes.answer(devices[0], Disconnect).reason == reasons.SESSION_TAKEN_OVER
    assert not devices[1].client.closed


def test_a_client_of_a_minority_is_registered_when_the_log_is_back() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "known")
    nodes.isolate(1)
    nodes.run(2_000)
    device = nodes.clean(1, "c")
    assert nodes[1].harness.broker.sessions["c"].is_unregistered
    nodes.heal()
    nodes.until(lambda: nodes.has_record("c") and nodes.record("c").owner == 1)
    nodes.run(5_000)
    session = nodes[1].harness.broker.sessions["c"]
    assert (session.has_record, session.is_unregistered) == (True, False)
    assert not device.client.closed
    nodes.clean(2, "c")
    assert nodes.answer(device, Disconnect).reason == reasons.SESSION_TAKEN_OVER


def test_a_client_of_a_minority_loses_to_one_that_is_connected() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "known")
    nodes.isolate(1)
    nodes.run(2_000)
    lonely = nodes.clean(1, "c")
    other = nodes.clean(2, "c")
    nodes.heal()
    assert nodes.answer(lonely, Disconnect).reason == reasons.SESSION_TAKEN_OVER
    nodes.run(5_000)
    assert not other.client.closed
    assert nodes.record("c").owner == 2


def test_qos_2_to_a_log_waits_until_the_client_is_registered() -> None:
    nodes = SessionNodes()
    nodes.submit(1, CreateTopic("d", filters=("d/#",)))
    nodes.clean(1, "known")
    nodes.isolate(1)
    nodes.run(2_000)
    device = nodes.clean(1, "c")
    releases = nodes[1].durable.releases
    session = nodes[1].harness.broker.sessions["c"]
    assert not releases.is_open(session, [])
    device.client.send(Publish(b"d/1", b"1", 2, packet_id=1))
    nodes.run(1_000)
    assert device.answer(Ack) is None
    nodes.heal()
    answer = nodes.answer(device, Ack)
    assert (answer.kind, answer.reason) == (PUBREC, 0)
    assert not session.is_unregistered


def test_clean_clients_of_a_node_that_was_held_dead_stay() -> None:
    nodes = SessionNodes()
    device = nodes.clean(3, "c")
    nodes.isolate(3)
    nodes.until(lambda: not nodes.has_record("c"))
    nodes.heal()
    nodes.until(lambda: nodes.has_record("c"), 20_000)
    nodes.run(5_000)
    assert nodes.record("c").owner == 3
    assert not device.client.closed
