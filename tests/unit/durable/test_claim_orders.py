"""In which order a client's goodbye, its next CONNECT and an abandoned claim reach the log: what its session keeps."""

from __future__ import annotations

import pytest

from flockmq.durable.sessions.claims import CLAIM_MS
from flockmq.mqtt.packets import Connack, Connect, Disconnect, Will
from flockmq.testing.harness_client import make_properties
from session_nodes import Device, SessionNodes, connect_packet


def with_will(client_id: str, expiry_s: int = 0, delay_s: int = 0) -> Connect:
    """A CONNECT of a client that leaves a will."""
    will = Will(b"w", b"gone", 1, False, make_properties(will_delay_s=delay_s))
    return Connect(5, client_id, expiry_s == 0, 0, make_properties(session_expiry_s=expiry_s), will, None, None)


def watcher(nodes: SessionNodes, number: int) -> Device:
    """A client that gets all wills."""
    device = nodes.clean(number, "watcher")
    assert nodes.subscribe(device, b"#") == 1
    return device


def scatter(nodes: SessionNodes) -> None:
    """No node reaches another: no shard has a majority."""
    nodes.isolate(1)
    nodes.isolate(2)


# A second connection that is gone before its CONNACK.


def test_a_connection_that_another_one_has_replaced_is_closed_though_that_one_is_gone() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    second = nodes[1].harness.connect(connect_packet("c"))
    second.drop()
    nodes.until(lambda: not nodes.record("c").is_connected)
    nodes.run(500)
    device.look()
    assert device.client.closed
    assert nodes.connect(2, "c").connack.session_present


def test_what_the_replaced_connection_had_acknowledged_does_not_come_again() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.publish_all(publisher, b"a/b", [b"1", b"2"])
    assert nodes.until_got(device, 2) == [b"1", b"2"]
    second = nodes[1].harness.connect(connect_packet("c"))
    second.drop()
    nodes.until(lambda: not nodes.record("c").is_connected)
    nodes.run(500)
    assert nodes.got(nodes.connect(2, "c")) == []


# A goodbye whose result is not known when the client comes back to the same node.


def test_a_client_that_said_goodbye_and_comes_back_leaves_no_will() -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 2)
    device = nodes.ask(1, with_will("c"))
    assert device.connack.reason == 0
    scatter(nodes)
    nodes.run(100)
    device.client.send(Disconnect(0))
    nodes.run(3_100)
    client = nodes[1].harness.connect(with_will("c", expiry_s=60))
    nodes.run(100)
    nodes.heal()
    nodes.until(lambda: client.has_received, 20_000)
    nodes.run(3_000)
    assert nodes.got(seen) == []


def test_a_client_that_ended_its_session_and_comes_back_has_none() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#")
    scatter(nodes)
    nodes.run(100)
    device.client.send(Disconnect(0, make_properties(session_expiry_s=0)))
    nodes.run(3_100)
    client = nodes[1].harness.connect(connect_packet("c"))
    nodes.run(100)
    nodes.heal()
    nodes.until(lambda: client.has_received, 20_000)
    assert not client.expect(Connack).session_present


# A claim that no client waits for any more.


@pytest.mark.parametrize("wait_ms", [3_400, 6_400])
def test_a_client_that_was_let_in_without_its_claim_leaves_its_will_when_it_is_lost(wait_ms: int) -> None:
    nodes = SessionNodes()
    seen = watcher(nodes, 1)
    nodes.subscriber(3, "first", b"x")
    nodes.run(1_000)
    client_id = next(str(number) for number in range(100) if leader_of(nodes, str(number)) == 1)
    scatter(nodes)
    client = nodes[1].harness.connect(with_will(client_id))  # the claim is in the log of the first node alone
    nodes[2].kill()
    nodes.until(lambda: client.has_received, CLAIM_MS + 2_000)
    assert client.expect(Connack).reason == 0
    nodes.run(wait_ms - CLAIM_MS)
    nodes.heal()  # and is committed now, with the will
    nodes.run(15_000)
    assert not client.closed
    assert nodes.got(seen) == []
    client.drop()
    assert nodes.until_got(seen, 1) == [b"gone"]


def leader_of(nodes: SessionNodes, client_id: str) -> int:
    """The node that leads the shard of a client."""
    nodes.table(client_id)
    leader = nodes.leader(nodes.shard(client_id))
    assert leader is not None
    return leader.number
