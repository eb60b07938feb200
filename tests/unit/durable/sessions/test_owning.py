"""One client id, one connection, whichever nodes its clients come to: the log decides, nodes carry it out."""

from __future__ import annotations

import pytest

from flockmq.durable.sessions import owning
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Connack, Connect, Disconnect, Publish, Subscribe, SubscribeEntry, Will
from flockmq.node.ports import AuthRequest, OpenGate, Verdict
from session_nodes import Device, SessionNodes, connect_packet


class UserGate(OpenGate):
    """Every user is let in; sessions belong to them."""

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        return super().authenticate(request)


def connected(nodes: SessionNodes, client_id: str) -> list[int]:
    """Nodes that have a connection of a client."""
    return [
        node.number
        for node in nodes.running()
        if client_id in node.harness.broker.sessions and node.harness.broker.sessions[client_id].connection is not None
    ]


def test_a_clean_client_is_taken_over_by_another_node() -> None:
    nodes = SessionNodes()
    first = nodes.clean(1, "c")
    nodes.subscribe(first, b"a")
    before = nodes.record("c").epoch
    second = nodes.clean(2, "c")
    assert not second.connack.session_present
    assert nodes.answer(first, Disconnect).reason == reasons.SESSION_TAKEN_OVER
    assert first.client.closed
    assert connected(nodes, "c") == [2]
    assert "c" not in nodes[1].harness.broker.sessions
    assert nodes.record("c").epoch > before
    assert nodes[1].harness.broker.stats.takeovers == 1


def test_a_takeover_says_nothing_more_of_the_former_session() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "c")
    nodes.run(2_000)
    before = nodes.entries()
    nodes.clean(2, "c")
    nodes.clean(2, "c")
    nodes.run(2_000)
    assert nodes.entries() - before == 2, "a claim each"


def test_the_former_owner_finds_out_though_no_node_could_tell_it() -> None:
    nodes = SessionNodes()
    first = nodes.clean(1, "c")
    nodes.isolate(1)
    nodes.until(lambda: nodes.leader(nodes.shard("c")) is not None)
    nodes.clean(2, "c")
    assert connected(nodes, "c") == [1, 2]
    nodes.heal()
    nodes.until(lambda: first.client.closed)
    assert nodes.answer(first, Disconnect).reason == reasons.SESSION_TAKEN_OVER
    assert connected(nodes, "c") == [2]


def test_of_two_connections_of_a_node_at_once_the_last_one_stays() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "other")
    first = nodes[1].harness.connect(connect_packet("c", expiry_s=0, clean_start=True))
    second = nodes[1].harness.connect(connect_packet("c", expiry_s=0, clean_start=True))
    nodes.until(lambda: second.has_received)
    assert first.expect(Connack).reason == reasons.SERVER_BUSY
    assert second.expect(Connack).reason == 0
    nodes.run(2_000)
    assert not second.closed
    record = nodes.record("c")
    assert (record.is_connected, record.epoch) == (True, nodes[1].harness.broker.sessions["c"].record_epoch)


def test_of_clients_at_all_nodes_at_once_one_stays() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "other")
    packet = connect_packet("c", expiry_s=0, clean_start=True)
    clients = [nodes[number].harness.connect(packet) for number in (1, 2, 3)]
    nodes.run(6_000)
    open_at = [number for number, client in zip((1, 2, 3), clients, strict=True) if not client.closed]
    assert open_at == [nodes.record("c").owner]
    assert connected(nodes, "c") == open_at


def test_a_client_that_goes_while_it_waits_leaves_nothing() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "other")
    client = nodes[1].harness.connect(connect_packet("c", expiry_s=0, clean_start=True))
    client.drop()
    nodes.run(3_000)
    assert not nodes.has_record("c")
    assert not nodes[1].durable.session_room.uncertain.granted


def test_another_user_does_not_get_the_client_id() -> None:
    nodes = SessionNodes(gate=UserGate())
    first = nodes.ask(1, connect_packet("c", expiry_s=0, username="ann"))
    assert first.connack.reason == 0
    other = nodes.ask(2, connect_packet("c", expiry_s=0, username="bob"))
    assert other.connack.reason == reasons.CLIENT_IDENTIFIER_NOT_VALID
    nodes.run(1_000)
    assert not first.client.closed


@pytest.mark.parametrize(("clean_start", "published"), [(True, [b"gone"]), (False, [])])
def test_a_clean_start_elsewhere_ends_the_session_and_its_will_is_published(
    clean_start: bool, published: list[bytes]
) -> None:
    nodes = SessionNodes()
    watcher = nodes.clean(3, "watcher")
    nodes.subscribe(watcher, b"will")
    packet = connect_packet("c")
    will = Will(b"will", b"gone", 1)
    will.properties.will_delay_s = 3_600
    first = nodes.ask(1, Connect(5, "c", False, 0, packet.properties, will))
    nodes.subscribe(first, b"a")
    second = nodes.connect(2, "c", clean_start=clean_start)
    assert second.connack.session_present is not clean_start
    assert nodes.answer(first, Disconnect).reason == reasons.SESSION_TAKEN_OVER
    assert nodes.got(watcher) == published
    assert "c" not in nodes[1].harness.broker.sessions


def test_too_many_clients_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owning, "CLAIMS_MAX", 1)
    nodes = SessionNodes()
    nodes.clean(1, "first")
    nodes[1].harness.connect(connect_packet("c", expiry_s=0))
    second = nodes[1].harness.connect(connect_packet("d", expiry_s=0))
    assert second.expect(Connack).reason == reasons.SERVER_BUSY


def test_what_follows_a_connect_at_once_is_read_when_the_claim_is_granted() -> None:
    nodes = SessionNodes()
    nodes.clean(1, "first")
    client = nodes[1].harness.connect(connect_packet("c", expiry_s=0))
    client.send(Subscribe(1, [SubscribeEntry(b"a", 0)]))
    client.send(Publish(b"a", b"1", 0))
    nodes.until(lambda: client.has_received)
    device = Device(client, client.expect(Connack))
    assert nodes.until_got(device, 1) == [b"1"]


def test_a_session_goes_elsewhere_within_its_namespace() -> None:
    nodes = SessionNodes()
    for node in nodes.running():
        node.harness.broker.set_listener_namespace("acme", "acme")

    def dial(number: int, client_id: str, listener: str) -> Device:
        client = nodes[number].harness.connect(connect_packet(client_id), listener=listener)
        nodes.until(lambda: client.has_received)
        return Device(client, client.expect(Connack))

    first, other = dial(1, "c", "acme"), dial(1, "c", "tcp")
    nodes.subscribe(first, b"a")
    nodes.subscribe(other, b"a")
    second = dial(2, "c", "acme")
    assert second.connack.session_present
    assert nodes.answer(first, Disconnect).reason == reasons.SESSION_TAKEN_OVER
    assert nodes.publish(dial(3, "p", "acme"), b"a", b"x") < 0x80
    assert nodes.got(second) == [b"x"]
    assert nodes.got(other) == []
    assert not other.client.closed
    counts = [node.harness.broker.node.spaces.by_name["acme"].sessions for node in nodes.running()]
    assert counts == [0, 1, 1]
