"""QoS 2 to clients of persistent sessions: each message once, wherever the death of the owner falls. Whole nodes."""

from __future__ import annotations

import random

import pytest

from exact_receiver import Receiver
from flockmq.cluster.commands import CreateTopic, DeleteTopic
from flockmq.durable.machine.session_sent import SENT_MAX
from flockmq.durable.sessions.marking import MARK_MS
from flockmq.durable.sessions.sending import DONE_MS
from flockmq.mqtt.packets import PUBREC, PUBREL, Ack, Publish
from flockmq.node.settings import BrokerSettings, Limits
from flockmq.testing.harness_client import make_properties
from session_nodes import Device, SessionNodes

OWNER = 2


def stage(payloads: int = 1, inflight_max: int = 100) -> tuple[SessionNodes, Receiver, Device]:
    """Three nodes, a receiver at the second; these messages are under way to it, at QoS 2, of one turn."""
    nodes = SessionNodes(settings=BrokerSettings(limits=Limits(inflight_max=inflight_max), sys_interval_ms=0))
    receiver = Receiver(nodes, "c", OWNER, b"a/#")
    publisher = nodes.clean(2, "p")
    nodes.run(2 * MARK_MS)
    for number in range(payloads):
        nodes.send(publisher, b"a/b", b"%d" % number, 2)
    return nodes, receiver, publisher


def expected(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def finish_elsewhere(nodes: SessionNodes, receiver: Receiver, count: int = 1) -> None:
    """The owner dies; the client has each message once in the end, and the record lists none."""
    nodes[OWNER].kill()
    receiver.come_back(1)
    receiver.finish()
    assert receiver.taken == expected(count)
    nodes.run(DONE_MS + 500)
    assert nodes.record("c").sent.count() == 0


# The death of an owner.


def test_before_send2_is_committed() -> None:
    nodes, receiver, _ = stage()
    nodes.settle_until(lambda: receiver.sending.waiting > 0)
    assert not receiver.listed()
    assert not any(isinstance(packet, Publish) for packet in receiver.device.client.received())
    finish_elsewhere(nodes, receiver)


@pytest.mark.parametrize("count", [1, 5])
def test_after_send2_before_the_client_has_the_message(count: int) -> None:
    nodes, receiver, _ = stage(count)
    nodes.until(lambda: len(receiver.listed()) == count)
    ids = list(receiver.listed())
    finish_elsewhere(nodes, receiver, count)
    assert receiver.again == ids, "the same packet ids, in the same order, with DUP"


def test_after_pubrec_before_rec2_is_committed() -> None:
    nodes, receiver, _ = stage(2)
    nodes.run(100)
    receiver.look()
    assert len(receiver.taken) == 2
    assert not any(receiver.listed().values())
    finish_elsewhere(nodes, receiver, 2)


@pytest.mark.parametrize("has_pubrel", [False, True])
def test_after_rec2_before_pubcomp(has_pubrel: bool) -> None:
    nodes, receiver, _ = stage(2)
    nodes.run(100)
    receiver.look()
    nodes.until(lambda: list(receiver.listed().values()) == [True, True])
    if has_pubrel:
        nodes.run(100)
        receiver.look(says_pubcomp=False)
        assert not receiver.ids
    finish_elsewhere(nodes, receiver, 2)
    assert not receiver.again, "the client has them: PUBREL alone"


def test_after_pubcomp_before_done2() -> None:
    nodes, receiver, _ = stage(2)
    nodes.run(100)
    receiver.look()
    nodes.run(100)
    receiver.look()
    assert not receiver.ids
    assert list(receiver.listed().values()) == [True, True]
    finish_elsewhere(nodes, receiver, 2)


def test_after_done2_before_a_mark() -> None:
    nodes, receiver, _ = stage(3)
    nodes.run(100)
    receiver.look(says_pubrec=False)
    packet_ids, receiver.owed = receiver.owed, []
    for packet_id in packet_ids[1:]:  # the position stays before the first one
        receiver.device.client.send(Ack(PUBREC, packet_id))
    nodes.run(100)
    receiver.look()
    nodes.run(DONE_MS + 500)
    assert list(receiver.listed()) == packet_ids[:1]
    assert len(nodes.record("c").sent.done) == 2
    finish_elsewhere(nodes, receiver, 3)


def test_only_what_the_session_matches_is_listed_and_sent_again() -> None:
    nodes = SessionNodes()
    receiver = Receiver(nodes, "c", OWNER, b"a/1")
    other = nodes.subscriber(1, "other", b"a/#", 2)
    nodes.submit(1, CreateTopic("a", filters=("a/#",), shards=1))
    publisher = nodes.clean(2, "p")
    nodes.run(2 * MARK_MS)
    for number in range(6):
        nodes.send(publisher, b"a/%d" % (number % 2), b"%d" % number, 2)
    nodes.until(lambda: len(receiver.listed()) == 3)
    nodes[OWNER].kill()
    receiver.come_back(1)
    receiver.finish()
    assert receiver.taken == [b"1", b"3", b"5"]
    assert sorted(nodes.got(other)) == expected(6)


def test_a_message_that_expired_meanwhile_is_sent_again() -> None:
    nodes, receiver, publisher = stage(0)
    packet = Publish(b"a/0", b"0", 2, False, False, 9, make_properties(message_expiry_s=1))
    publisher.client.send(packet)
    nodes.until(lambda: len(receiver.listed()) == 1)
    nodes[OWNER].kill()
    nodes.run(3_000)
    receiver.come_back(1)
    receiver.finish()
    assert receiver.taken == [b"0"]


def test_a_message_that_is_gone_from_its_log_is_a_gap_and_frees_its_id() -> None:
    nodes = SessionNodes()
    receiver = Receiver(nodes, "c", OWNER, b"a/#")
    nodes.submit(1, CreateTopic("a", filters=("a/#",), shards=1))
    publisher = nodes.clean(2, "p")
    nodes.run(2 * MARK_MS)
    nodes.send(publisher, b"a/0", b"0", 2)
    nodes.until(lambda: len(receiver.listed()) == 1)
    nodes.run(100)
    receiver.look(says_pubrec=False)
    nodes[OWNER].kill()
    nodes.submit(1, DeleteTopic("a"))
    receiver.come_back(1)
    receiver.finish()  # the id was released
    assert receiver.taken == [b"0"]
    events = [event for event in nodes[1].harness.broker.node.events.take() if event.kind == "durable_gap"]
    assert len(events) == 1
    nodes.run(DONE_MS + 500)
    assert not receiver.listed()


# Owners that live.


def test_a_session_that_moves_takes_its_ids_along() -> None:
    nodes, receiver, _ = stage(4)
    nodes.run(100)
    receiver.look(says_pubrec=False)
    packet_ids = list(receiver.owed)
    receiver.device.client.send(Ack(PUBREC, packet_ids[0]))
    receiver.come_back(1)
    receiver.finish()
    assert receiver.taken == expected(4)
    assert receiver.again == packet_ids[1:]
    nodes.run(DONE_MS + 500)
    assert nodes.record("c").sent.count() == 0


def test_a_session_that_moves_before_send2_is_committed() -> None:
    nodes, receiver, _ = stage(3)
    nodes.settle_until(lambda: receiver.sending.waiting > 0)
    receiver.come_back(1)
    receiver.finish()
    assert receiver.taken == expected(3)


def test_a_session_that_is_made_of_its_record_moves_on_before_it_has_read_anything() -> None:
    nodes, receiver, _ = stage(3)
    nodes.until(lambda: len(receiver.listed()) == 3)
    nodes[OWNER].kill()
    receiver.come_back(1)
    receiver.come_back(3)
    receiver.finish()
    assert receiver.taken == expected(3)


def test_a_client_that_comes_back_to_the_same_node() -> None:
    nodes, receiver, _ = stage(3)
    nodes.settle_until(lambda: receiver.sending.waiting > 0)
    receiver.device.client.drop()
    receiver.come_back(OWNER)
    nodes.run(100)
    receiver.look()
    receiver.device.client.drop()
    receiver.come_back(OWNER)
    receiver.finish()
    assert receiver.taken == expected(3)


def test_a_client_that_takes_packets_of_some_size_only() -> None:
    nodes = SessionNodes()
    device = nodes.subscriber(1, "c", b"a/#", 2)
    device.client.connection.client_packet_max = 50
    publisher = nodes.clean(2, "p")
    for payload in (b"small", b"large" * 20, b"last"):
        assert nodes.publish(publisher, b"a/b", payload, 2) < 0x80
    assert nodes.got(device) == [b"small", b"last"]
    nodes.run(DONE_MS + 500)
    assert nodes.record("c").sent.count() == 0


def test_a_client_that_refuses_a_message() -> None:
    nodes, receiver, publisher = stage(2)
    nodes.run(100)
    receiver.look(says_pubrec=False)
    receiver.device.client.send(Ack(PUBREC, receiver.owed.pop(0), 0x83))
    del receiver.ids[next(iter(receiver.ids))]
    receiver.look()
    receiver.finish()
    assert nodes.record("c").sent.count() == 0
    acknowledge(publisher)
    nodes.run(100)
    acknowledge(publisher)
    assert nodes.publish(publisher, b"a/b", b"2", 2) < 0x80
    receiver.finish()
    assert receiver.taken == expected(3)


# Cost and bounds.


def test_sessions_without_qos_2_say_nothing() -> None:
    nodes = SessionNodes()
    devices = [nodes.subscriber(1, f"c{qos}", b"a/#", qos) for qos in (0, 1)]
    clean = nodes.clean(1, "clean")
    nodes.subscribe(clean, b"a/#", 2)
    publisher = nodes.clean(2, "p")
    nodes.run(MARK_MS)
    assert nodes.publish(publisher, b"a/b", b"1", 2) < 0x80
    nodes.run(2 * DONE_MS)
    assert nodes.got(clean) == nodes.got(devices[1]) == [b"1"]
    assert all(nodes.record(f"c{qos}").sent.stamp == 0 for qos in (0, 1))


def test_messages_of_a_turn_are_one_entry() -> None:
    nodes, receiver, publisher = stage(0)
    before = nodes.entries()
    for number in range(40):
        nodes.send(publisher, b"a/0", b"%d" % number, 2)
    nodes.until(lambda: len(receiver.listed()) == 40)
    nodes.settle()
    assert nodes.entries() - before <= 2


def test_what_is_listed_is_bounded_and_goes_on() -> None:
    nodes, receiver, publisher = stage(0, 2 * SENT_MAX)
    count = SENT_MAX + 300
    for number in range(count):
        nodes.send(publisher, b"a/0", b"%d" % number, 2)
        if number % 500 == 499:
            nodes.run(100)
            acknowledge(publisher)
            nodes.run(100)
            acknowledge(publisher)
    nodes.run(500)
    receiver.look(says_pubrec=False)
    assert len(receiver.taken) == SENT_MAX == len(receiver.listed())
    finish_elsewhere(nodes, receiver, count)


# Any order of events.


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_message_comes_once(seed: int) -> None:
    rng = random.Random(seed)
    nodes = SessionNodes(seed=seed)
    receiver = Receiver(nodes, "c", 3, b"a/#")
    publisher = nodes.clean(1, "p")  # its node lives
    sent = 0
    for _ in range(60):
        chance = rng.random()
        if chance < 0.5:
            for _ in range(rng.randrange(1, 6)):
                nodes.send(publisher, b"a/%d" % rng.randrange(3), b"%d" % sent, 2)
                sent += 1
        elif chance < 0.6:
            receiver.device.client.drop()
            receiver.come_back(rng.choice([node.number for node in nodes.running()]))
        elif chance < 0.7 and len(nodes.running()) == 3 and receiver.number != 1:
            nodes[receiver.number].kill()
            nodes.run(rng.choice([50, 3_000]))
            receiver.come_back(rng.choice([node.number for node in nodes.running()]))
        for number in (2, 3):
            if not nodes[number].running and rng.random() < 0.3:
                nodes[number].start()
        if rng.random() < 0.7:
            receiver.look(says_pubrec=rng.random() < 0.8, says_pubcomp=rng.random() < 0.8)
        if rng.random() < 0.5:
            for _ in range(rng.randrange(4)):
                nodes.turn()
        else:
            nodes.run(rng.choice([50, 100, 1_000]))
        publisher.look()
        acknowledge(publisher)
    nodes.run(1_000)
    receiver.device.client.drop()
    receiver.come_back(1)
    for _ in range(4):
        receiver.finish()
        acknowledge(publisher)
    assert sorted(receiver.taken) == sorted(expected(sent))


def acknowledge(publisher: Device) -> None:
    """Release what the publisher has a PUBREC for."""
    publisher.look()
    for packet in publisher.answers:
        if isinstance(packet, Ack) and packet.kind == PUBREC:
            publisher.client.send(Ack(PUBREL, packet.packet_id))
    publisher.answers = []


# Without a majority.


def test_nothing_is_sent_before_a_majority_has_it() -> None:
    nodes, receiver, _ = stage(2)
    nodes.settle_until(lambda: receiver.sending.waiting > 0)
    nodes.isolate(1)
    nodes.isolate(2)
    nodes.run(1_000)
    assert not any(isinstance(packet, Publish) for packet in receiver.device.client.received())
    nodes.heal()
    receiver.finish(8_000)
    assert receiver.taken == expected(2)


def test_no_pubrel_is_sent_before_a_majority_has_the_pubrec() -> None:
    nodes, receiver, _ = stage(2)
    nodes.run(100)
    receiver.look(says_pubrec=False)
    nodes.isolate(1)
    nodes.isolate(2)
    receiver.look()
    nodes.run(1_000)
    assert not receiver.device.client.received()
    nodes.heal()
    receiver.finish(8_000)
    assert receiver.taken == expected(2)


def test_a_pubrec_that_comes_twice_is_answered_once_the_record_has_it() -> None:
    nodes, receiver, _ = stage()
    nodes.run(100)
    receiver.look(says_pubrec=False)
    packet_id = receiver.owed.pop()
    for reason in (0, 0, 0x10):
        receiver.device.client.send(Ack(PUBREC, packet_id, reason))
    nodes.run(100)
    assert receiver.device.client.received() == [Ack(PUBREL, packet_id)]
    receiver.device.client.send(Ack(PUBREC, packet_id))
    assert receiver.device.client.received() == [Ack(PUBREL, packet_id)]
