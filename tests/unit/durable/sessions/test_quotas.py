"""Limits of persistent sessions and of what is stored for them: whole nodes, real packets, codes and sentences."""

from __future__ import annotations

import pytest

from flockmq.cluster.commands import AlterNamespace
from flockmq.durable.sessions.claims import WHY_NAMESPACE, WHY_SAME_USER
from flockmq.durable.sessions.keeping import WHY_RECORD_FULL
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import Ack, Suback, Subscribe, SubscribeEntry
from flockmq.node.namespaces import NamespaceLimits
from flockmq.node.ports import Identity, OpenGate
from flockmq.node.publishing import WHY_BEYOND_CAPTURE, WHY_REFUSED, WHY_TOO_LARGE
from flockmq.node.reviewing import Review
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.node.subscribing import WHY_NOT_CAPTURED
from session_nodes import Device, SessionNodes, connect_packet

MOST = 5
RATE = 10_000


def why(answer: Ack | Suback) -> str | None:
    return answer.properties.reason_string if answer.properties is not None else None


def publish(nodes: SessionNodes, device: Device, payload: bytes, qos: int = 1) -> Ack:
    """PUBLISH to ``a``; the PUBACK or PUBREC."""
    nodes.send(device, b"a", payload, qos)
    return nodes.answer(device, Ack)


# How many.


def test_a_namespace_has_as_many_persistent_sessions_as_it_may_in_all_shards() -> None:
    nodes = SessionNodes()
    nodes.submit(1, AlterNamespace("default", persistent_sessions_max=MOST))
    devices = [nodes.connect(1 + number % 3, f"c{number}") for number in range(MOST)]
    assert len({nodes.shard(f"c{number}") for number in range(MOST)}) > 1
    for number in (1, 2, 3):
        refused = nodes.ask(number, connect_packet("more")).connack
        assert (refused.reason, refused.properties.reason_string) == (reasons.QUOTA_EXCEEDED, WHY_NAMESPACE)
    old = nodes[2].harness.connect(connect_packet("more", version=4))
    nodes.until(lambda: old.closed)
    assert nodes.clean(2, "clean").connack.reason == 0, "it ends with its connection"
    nodes.drop(devices[0])
    assert nodes.connect(2, "c0").connack.session_present, "a session that is there goes on"
    nodes.submit(3, AlterNamespace("default", persistent_sessions_max=MOST + 1))
    assert nodes.connect(3, "more").connack.reason == 0


def test_a_session_that_ends_makes_room_for_another() -> None:
    nodes = SessionNodes()
    nodes.submit(1, AlterNamespace("default", persistent_sessions_max=1))
    nodes.drop(nodes.connect(1, "first", expiry_s=10))
    assert nodes.ask(2, connect_packet("second")).connack.reason == reasons.QUOTA_EXCEEDED
    nodes.until(lambda: not nodes.has_record("first"))
    assert nodes.connect(2, "second").connack.reason == 0


def test_a_user_has_as_many_persistent_sessions_as_it_may() -> None:
    nodes = SessionNodes()
    nodes.submit(1, AlterNamespace("default", sessions_per_user_max=2))
    for number in range(2):
        assert nodes.ask(1, connect_packet(f"a{number}", username="ann")).connack.reason == 0
    refused = nodes.ask(2, connect_packet("a2", username="ann")).connack
    assert (refused.reason, refused.properties.reason_string) == (reasons.QUOTA_EXCEEDED, WHY_SAME_USER)
    assert nodes.ask(2, connect_packet("b0", username="bob")).connack.reason == 0
    assert nodes.ask(3, connect_packet("a0", username="ann")).connack.session_present


# How much.


def limited() -> tuple[SessionNodes, Device, Device]:
    """One node with a limit, its subscriber and its publisher."""
    nodes = SessionNodes(1)
    nodes[1].whole.broker.set_namespaces([NamespaceLimits("default", captured_bytes_per_s=RATE)], nodes.now)
    return nodes, nodes.subscriber(1, "c", b"a"), nodes.clean(1, "p")


@pytest.mark.parametrize("qos", [1, 2])
def test_beyond_its_bytes_a_second_a_namespace_is_told_so_and_nothing_acknowledged_is_lost(qos: int) -> None:
    nodes, device, publisher = limited()
    payloads = [b"%d" % number * 1_000 for number in range(10)]
    taken = [payload for payload in payloads if nodes.publish(publisher, b"a", payload * 3, qos) < 0x80]
    refused = publish(nodes, publisher, b"more", qos)
    assert 0 < len(taken) < len(payloads)
    assert (refused.reason, why(refused)) == (reasons.QUOTA_EXCEEDED, WHY_BEYOND_CAPTURE)
    assert nodes.publish(publisher, b"other", b"1" * 1_000, qos) < 0x80, "no session waits for it"
    nodes.run(3_000)
    assert nodes.publish(publisher, b"a", b"later", qos) < 0x80
    assert nodes.got(device) == [payload * 3 for payload in taken] + [b"later"]
    assert nodes[1].whole.broker.stats.capture_refused == len(payloads) - len(taken) + 1


def test_beyond_its_bytes_a_second_3_1_1_is_closed() -> None:
    nodes, device, _ = limited()
    publisher = nodes.connect_old(1, "old")
    assert publish(nodes, publisher, b"1" * 2 * RATE).reason == 0
    nodes.send(publisher, b"a", b"2")
    nodes.until(lambda: publisher.client.closed)
    assert nodes.got(device) == [b"1" * 2 * RATE]


def test_a_retained_message_beyond_the_rate_is_not_retained() -> None:
    nodes, _, publisher = limited()
    assert nodes.publish(publisher, b"a", b"1" * 2 * RATE, retain=True) == 0
    assert nodes.publish(publisher, b"a", b"2", retain=True) == reasons.QUOTA_EXCEEDED
    reader = nodes.clean(1, "r")
    nodes.subscribe(reader, b"a")
    assert nodes.got(reader) == [b"1" * 2 * RATE]


# Bad input.


def test_a_message_that_is_larger_than_an_entry_is_refused_alone() -> None:
    nodes = SessionNodes(1, settings=BrokerSettings(sys_interval_ms=0, limits=Limits(packet_bytes_max=8_388_608)))
    device, publisher = nodes.subscriber(1, "c", b"a"), nodes.clean(1, "p")
    assert nodes.publish(publisher, b"a", b"1") == 0
    for qos in (1, 2):
        refused = publish(nodes, publisher, b"x" * 4_194_304, qos)
        assert (refused.reason, why(refused)) == (reasons.QUOTA_EXCEEDED, WHY_TOO_LARGE)
    assert nodes.publish(publisher, b"a", b"2", 2) == 0
    assert nodes.got(device) == [b"1", b"2"]


def test_a_record_that_is_full_keeps_what_it_has() -> None:
    nodes = SessionNodes(1)
    device = nodes.subscriber(1, "c", b"a")
    suback = Suback(0, [])
    for batch in range(20):
        entries = [SubscribeEntry(b"f/%d/%d/" % (batch, number) + b"x" * 900, 1) for number in range(100)]
        device.client.send(Subscribe(device.client.next_id(), entries))
        suback = nodes.answer(device, Suback)
        if suback.reasons[0] >= 0x80:
            break
    assert (set(suback.reasons), why(suback)) == ({reasons.QUOTA_EXCEEDED}, WHY_RECORD_FULL)
    nodes.run(1_000)
    assert len(nodes.record("c").subscriptions) % 100 == 1
    publisher = nodes.clean(1, "p")
    assert nodes.publish(publisher, b"a", b"1") == 0
    assert nodes.publish(publisher, b"f/0/0/" + b"x" * 900, b"2") == 0
    assert nodes.got(device) == [b"1", b"2"]


def test_a_node_that_can_store_nothing_says_so_and_loses_nothing() -> None:
    nodes = SessionNodes()
    device, publisher = nodes.subscriber(1, "c", b"a"), nodes.clean(3, "p")
    nodes.publish_all(publisher, b"a", [b"1", b"2"])
    assert nodes.until_got(device, 2) == [b"1", b"2"]
    nodes.drop(device)
    nodes.publish_all(publisher, b"a", [b"3"])
    nodes[3].may_stop = True
    nodes[3].engine.stop("No space left on the disk")
    refused = publish(nodes, publisher, b"4")
    assert (refused.reason, why(refused)) == (reasons.UNSPECIFIED_ERROR, WHY_REFUSED[reasons.UNSPECIFIED_ERROR])
    nodes.publish_all(nodes.clean(2, "q"), b"a", [b"5"])
    assert nodes.got(nodes.connect(2, "c")) == [b"3", b"5"]


class NarrowGate(OpenGate):
    """A gate that lets messages be stored for one name alone."""

    version = 1
    captured = b"a"

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        return topic_filter == self.captured


def nameless(client_id: str, username: str | None, namespace: str, peer: str) -> Identity:
    """The identity of a session without a connection."""
    return Identity(client_id, username)


def narrow(nodes: SessionNodes, captured: bytes = b"a") -> None:
    """All nodes get such a gate."""
    gate = NarrowGate()
    gate.captured = captured
    for node in nodes.running():
        node.whole.broker.use_gate(gate, frozenset(), nodes.now)


def test_a_filter_without_the_right_to_be_captured_is_refused_alone() -> None:
    nodes = SessionNodes()
    narrow(nodes)
    device, publisher = nodes.connect(1, "c"), nodes.clean(2, "p")
    entries = [
        SubscribeEntry(b"a", 1),
        SubscribeEntry(b"#", 1),
        SubscribeEntry(b"b/#", 0),
        SubscribeEntry(b"$share/g/d", 1),
    ]
    device.client.send(Subscribe(1, entries))
    suback = nodes.answer(device, Suback)
    assert (suback.reasons, why(suback)) == ([1, reasons.NOT_AUTHORIZED, 0, 1], WHY_NOT_CAPTURED)
    events = [event for event in nodes[1].whole.broker.node.events.take() if event.kind == "capture_refused"]
    assert [(event.fields["filter"], event.fields["filters"]) for event in events] == [(b"#", 1)]
    nodes.publish_all(publisher, b"a", [b"1"])
    nodes.publish_all(publisher, b"x", [b"2"])
    assert nodes.got(device) == [b"1"]
    assert nodes.captured() == [b"1"]
    assert nodes.subscribe(nodes.clean(3, "clean"), b"#") == 1, "nothing is stored for it"


def test_a_right_that_is_withdrawn_ends_the_subscription_in_the_log() -> None:
    nodes = SessionNodes()
    narrow(nodes, b"#")
    device, publisher = nodes.subscriber(1, "c", b"#"), nodes.clean(2, "p")
    nodes.publish_all(publisher, b"x", [b"1"])
    assert nodes.until_got(device, 1) == [b"1"]
    narrow(nodes)
    nodes[1].whole.broker.review(Review(nameless, namespaces=None), nodes.now)
    nodes.until(lambda: not nodes.record("c").subscriptions)
    assert "subscription_revoked" in [event.kind for event in nodes[1].whole.broker.node.events.take()]
    nodes.run(2_000)
    nodes.publish_all(publisher, b"x", [b"2"])
    nodes.run(1_000)
    assert nodes.captured() == [b"1"]
    assert nodes.got(device) == []
