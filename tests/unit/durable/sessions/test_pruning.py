"""Sessions that are away, and whose user or namespace is removed."""

from __future__ import annotations

from flockmq.cluster.commands import CreateNamespace, DeleteNamespace
from flockmq.durable.machine.session_bodies import ClaimStatement, DetachStatement
from flockmq.node.reviewing import Review
from session_nodes import SessionNodes, connect_packet


def away(nodes: SessionNodes, client_id: str, username: str) -> None:
    """A session of a user that no node has."""
    device = nodes.ask(1, connect_packet(client_id, username=username))
    assert nodes.subscribe(device, b"a/#") == 1
    assert nodes.record(client_id).user == username.encode()
    nodes.drop(device)
    nodes.until(lambda: client_id not in nodes[1].harness.broker.sessions)


def test_sessions_that_are_away_end_with_their_user() -> None:
    nodes = SessionNodes()
    away(nodes, "c", "ann")
    away(nodes, "d", "bob")
    for node in nodes.running():
        node.harness.broker.review(Review(lambda *_: None, removed=frozenset({"ann"})), nodes.now)
    nodes.until(lambda: not nodes.has_record("c"))
    nodes.run(3_000)
    assert nodes.has_record("d")
    assert nodes.connect(2, "d").connack.session_present


def test_sessions_end_with_their_namespace() -> None:
    nodes = SessionNodes()
    nodes.drop(nodes.connect(1, "c"))
    for namespace in ("acme", "gone"):
        nodes.submit(1, CreateNamespace(namespace))
    log = nodes[1].durable.session_room.log
    told: list[object] = []
    clients = (b"$ns/acme/x", b"$ns/gone/x", b"$ns/listener/x")
    for name in clients:
        log.say(name, ClaimStatement(name, 1, 1_000, 1, nodes[1].boot, None, 60, 5, 0)).then(told.append)
        log.say(name, DetachStatement(name, 1_000, 60, {})).then(told.append)
    nodes.until(lambda: len(told) == 2 * len(clients))
    nodes.run(3_000)
    nodes.submit(2, DeleteNamespace("gone"))
    nodes.until(lambda: not nodes.has_record("$ns/gone/x"))
    nodes.run(3_000)
    assert nodes.has_record("$ns/acme/x")
    assert nodes.has_record("$ns/listener/x"), "a namespace that only listeners name is in no cluster state"
    assert nodes.has_record("c")
