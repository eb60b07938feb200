"""When the hidden topics are made, and what nodes acknowledge that do not know of them: whole nodes, real packets."""

from __future__ import annotations

from flockmq.cluster.commands import CreateHidden
from flockmq.cluster.model import CAPTURE_TOPIC, SESSIONS_TOPIC
from flockmq.durable.sessions.leases import STATE_LEASE_MS
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Ack, Disconnect
from flockmq.node.publishing import WHY_CUT_OFF
from flockmq.routing.capture import NEVER
from session_nodes import SessionNodes, connect_packet


def lapses_at(nodes: SessionNodes, number: int) -> int:
    return nodes[number].durable.topics._table.capture.lapses_at


def test_a_node_alone_needs_no_lease() -> None:
    nodes = SessionNodes(1)
    assert lapses_at(nodes, 1) == NEVER
    nodes.run(2 * STATE_LEASE_MS)
    assert lapses_at(nodes, 1) == NEVER


def test_nodes_of_a_cluster_renew_their_lease_of_its_state() -> None:
    nodes = SessionNodes()
    nodes.run(3 * STATE_LEASE_MS)
    assert all(nodes.now + STATE_LEASE_MS // 2 < lapses_at(nodes, number) < NEVER for number in (1, 2, 3))
    assert not nodes.groups()


def test_an_edge_node_finds_the_leader_of_the_state() -> None:
    nodes = SessionNodes(3, edges=1)
    for _ in range(300):
        nodes.run(100)
        assert nodes.now < lapses_at(nodes, 4)
    assert nodes.publish(nodes.clean(4, "p"), b"a", b"1") < 0x80


def test_a_second_node_interrupts_no_publisher_of_the_first() -> None:
    nodes = SessionNodes(1)
    publisher = nodes.clean(1, "p")
    nodes.add_core(2)
    nodes[2].start()
    while len(nodes[1].meta.state.nodes) < 2 or len(nodes.voters()) < 2:
        assert nodes.publish(publisher, b"a", b"1") < 0x80
        nodes.run(100)
    nodes.run(500)
    assert nodes.publish(publisher, b"a", b"1") < 0x80


def test_another_leader_of_the_state_interrupts_no_publisher() -> None:
    nodes = SessionNodes()
    leader = nodes.leader()
    assert leader is not None
    other = next(number for number in (1, 2, 3) if number != leader.number)
    publisher = nodes.clean(other, "p")
    leader.kill()
    for _ in range(100):
        assert nodes.publish(publisher, b"a", b"1") < 0x80
        nodes.run(100)


def test_a_node_that_is_cut_off_says_why_it_acknowledges_nothing() -> None:
    nodes = SessionNodes()
    nodes.isolate(3)
    publisher, subscriber, old = nodes.clean(3, "p"), nodes.clean(3, "s"), nodes.connect_old(3, "o")
    nodes.subscribe(subscriber, b"#")
    assert nodes.publish(publisher, b"a", b"early") < 0x80
    assert nodes.until_got(subscriber, 1) == [b"early"]
    nodes.run(STATE_LEASE_MS)
    for qos in (1, 2):
        nodes.send(publisher, b"a", b"late", qos)
        answer = nodes.answer(publisher, Ack)
        assert answer.properties is not None
        assert (answer.reason, answer.properties.reason_string) == (reasons.UNSPECIFIED_ERROR, WHY_CUT_OFF)
    nodes.send(publisher, b"a", b"live", 0)
    assert nodes.got(subscriber) == [b"live"], "what is refused reaches no client"
    nodes.send(old, b"a", b"late")
    nodes.until(lambda: old.client.closed)
    nodes.heal()
    nodes.until(lambda: nodes.now < lapses_at(nodes, 3))
    assert nodes.publish(publisher, b"a", b"again") < 0x80
    assert nodes.got(subscriber) == [b"again"]
    assert publisher.answer(Disconnect) is None


def test_the_first_persistent_session_waits_for_a_node_that_is_away() -> None:
    nodes = SessionNodes()
    nodes[3].kill()
    before = nodes.now
    nodes.subscriber(1, "c", b"a/#")
    assert STATE_LEASE_MS <= nodes.now - before < STATE_LEASE_MS + 4_000
    before = nodes.now
    nodes.subscriber(2, "d", b"a/#")
    assert nodes.now - before < 3_000, "the second one does not"


def test_a_node_that_knows_only_where_messages_are_captured_captures_all() -> None:
    nodes = SessionNodes()
    publisher = nodes.clean(3, "p")
    nodes.submit(1, CreateHidden(CAPTURE_TOPIC))
    nodes.until(lambda: bool(nodes.groups(CAPTURE_TOPIC)) and not lapses_at(nodes, 3))
    assert nodes.publish(publisher, b"a", b"1") < 0x80
    nodes.run(500)
    assert nodes.captured() == [b"1"]
    nodes.isolate(3)
    device = nodes.subscriber(1, "c", b"a")
    nodes.send(publisher, b"a", b"2")
    nodes.run(20_000)
    answer = publisher.answer(Ack)
    assert answer is None or answer.reason >= 0x80
    nodes.heal()
    assert nodes.publish(nodes.clean(2, "q"), b"a", b"3") < 0x80
    assert b"3" in nodes.got(device)


def test_a_node_that_dies_while_it_makes_the_topics_leaves_them_to_another() -> None:
    nodes = SessionNodes()
    nodes.isolate(3)
    nodes[2].harness.connect(connect_packet("c"))
    nodes.until(lambda: bool(nodes.groups(CAPTURE_TOPIC)))
    assert not nodes.groups(SESSIONS_TOPIC)
    nodes[2].kill()
    nodes.heal()
    assert nodes.connect(1, "c").connack.reason == 0
    assert nodes.groups(SESSIONS_TOPIC)
