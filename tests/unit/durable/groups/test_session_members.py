"""MQTT clients as members of consumer groups, on whole nodes with real packets."""

from __future__ import annotations

import pytest

from flockmq.cluster.dead_letters import read_dead
from flockmq.log.batch import BatchBuilder, BatchView
from flockmq.mqtt import reasons
from flockmq.mqtt.packets import PUBACK, Ack, Suback, Subscribe, SubscribeEntry, Unsuback, Unsubscribe
from flockmq.testing.harness_client import make_properties
from group_nodes import GroupNodes
from session_nodes import Device, SessionNodes, connect_packet


class MemberNodes(GroupNodes):
    """Groups and clients."""

    ask = SessionNodes.ask

    def member(self, number: int, client_id: str, full_filter: bytes = b"$queue/work", **options: object) -> Device:
        """A client that is a member; it keeps what comes and acknowledges when it is told to."""
        device = self.client(number, client_id)
        device.holds = True
        assert self.subscribe(device, full_filter, **options) == 1  # type: ignore[arg-type]
        return device

    def client(self, number: int, client_id: str, version: int = 5, expiry_s: int = 0) -> Device:
        """A connected client."""
        packet = connect_packet(client_id, expiry_s=expiry_s, clean_start=not expiry_s, version=version)
        device = self.ask(number, packet)  # type: ignore[misc]
        assert device.connack.reason == 0
        return device

    def subscribe(self, device: Device, full_filter: bytes, qos: int = 1, info: bool = False) -> int:
        """The reason code."""
        properties = make_properties(user=[("flockmq-info", "1")]) if info else None
        device.client.send(Subscribe(7, [SubscribeEntry(full_filter, qos, False, False, 0)], properties))
        found: list[Suback] = []

        def answered() -> bool:
            answer = device.answer(Suback)
            if answer is not None:
                found.append(answer)
            return bool(found)

        self.until(answered)
        properties_back = found[0].properties
        self.why = (properties_back.reason_string or "") if properties_back is not None else ""
        return found[0].reasons[0]

    def look(self, device: Device, count: int, ms_max: int = 30_000) -> list[bytes]:
        """Wait until so many messages have come."""

        def come() -> bool:
            device.look()
            return len(device.messages) >= count

        self.until(come, ms_max)
        return [message.payload for message in device.messages]

    def refuse(self, device: Device, reason: int) -> None:
        """PUBACK with an error for the first message that is not acknowledged."""
        message = device.owed.pop(0)
        device.client.send(Ack(PUBACK, message.packet_id, reason))


def test_members_share_the_records_and_acknowledge_them() -> None:
    nodes = MemberNodes()
    group = nodes.group()
    members = [nodes.member(number, f"c{number}") for number in (1, 2, 3)]
    nodes.run(500)
    wanted = [b"%d" % one for one in range(30)]
    nodes.publish(b"t/a", *wanted)
    nodes.run(1_000)
    got = []
    for device in members:
        device.look()
        got += [message.payload for message in device.messages]
        assert all(message.qos == 1 for message in device.messages)
        assert device.messages
        device.acknowledge(len(device.owed))
    assert sorted(got, key=int) == wanted
    nodes.until(lambda: nodes.floor(group, nodes.partitions()[0]) == 30)


def test_records_of_qos_0_are_acknowledged_too() -> None:
    nodes = MemberNodes()
    group = nodes.group()
    device = nodes.member(1, "c")
    builder = BatchBuilder()
    builder.add(b"t/a", b"p", nodes.wall_ms(), 0, b"x")
    nodes.put_batch(nodes.partitions()[0], builder)
    assert nodes.look(device, 1) == [b"x"]
    nodes.run(1_000)
    assert nodes.floor(group, nodes.partitions()[0]) == 0
    device.acknowledge(1)
    nodes.until(lambda: nodes.floor(group, nodes.partitions()[0]) == 1)


def test_a_member_that_goes_gives_its_records_to_the_others_at_once() -> None:
    nodes = MemberNodes()
    nodes.group(ack_wait_ms=600_000)
    first = nodes.member(1, "c1")
    nodes.publish(b"t/a", b"1", b"2", b"3")
    assert nodes.look(first, 3) == [b"1", b"2", b"3"]
    second = nodes.member(2, "c2", info=True)
    first.client.drop()
    assert sorted(nodes.look(second, 3)) == [b"1", b"2", b"3"]
    users = [dict(message.properties.user) for message in second.messages if message.properties is not None]
    assert [one["flockmq-delivery"] for one in users] == ["2", "2", "2"]
    assert {one["flockmq-group"] for one in users} == {"work"}
    assert sorted(one["flockmq-offset"] for one in users) == ["0", "1", "2"]


def test_an_unsubscribe_ends_membership() -> None:
    nodes = MemberNodes()
    nodes.group()
    first = nodes.member(1, "c1")
    nodes.publish(b"t/a", b"1")
    nodes.look(first, 1)
    first.client.send(Unsubscribe(9, [b"$queue/work"]))
    nodes.until(lambda: first.answer(Unsuback) is not None)
    second = nodes.member(1, "c2")
    assert nodes.look(second, 1) == [b"1"]


@pytest.mark.parametrize("reason", [reasons.NOT_AUTHORIZED, reasons.PAYLOAD_FORMAT_INVALID])
def test_some_reason_codes_make_a_dead_letter_at_once(reason: int) -> None:
    nodes = MemberNodes()
    nodes.group()
    device = nodes.member(2, "c")
    nodes.publish(b"t/a", b"bad", b"good")
    nodes.look(device, 2)
    nodes.refuse(device, reason)
    device.acknowledge(1)
    dead = nodes.state.topics["default/work.dead"]
    nodes.until(lambda: nodes.payloads_of(dead) == [b"bad"])
    log = nodes[nodes.leader_number(dead.partitions[0].group)].durable.local
    letter = read_dead(BatchView(log.read(dead.partitions[0].group, 0, 1_000)[0]).record(0).user)
    assert (letter.deliveries, letter.member) == (1, "c")
    assert f"0x{reason:02x}" in letter.reason


def test_an_error_code_brings_a_record_again() -> None:
    nodes = MemberNodes()
    nodes.group(backoff_ms=2_000)
    device = nodes.member(1, "c", info=True)
    nodes.publish(b"t/a", b"x")
    nodes.look(device, 1)
    at = nodes.now
    nodes.refuse(device, reasons.IMPLEMENTATION_SPECIFIC_ERROR)
    assert nodes.look(device, 2) == [b"x", b"x"]
    assert nodes.now - at >= 1_900
    properties = device.messages[1].properties
    assert properties is not None
    assert dict(properties.user)["flockmq-delivery"] == "2"


def test_a_record_comes_again_when_its_time_is_over_and_a_late_acknowledgement_changes_nothing() -> None:
    nodes = MemberNodes()
    group = nodes.group(ack_wait_ms=3_000)
    slow = nodes.member(1, "slow")
    nodes.publish(b"t/a", b"x")
    nodes.look(slow, 1)
    quick = nodes.member(2, "quick")
    assert nodes.look(quick, 1) == [b"x"]
    slow.acknowledge(1)
    nodes.run(500)
    assert nodes.floor(group, nodes.partitions()[0]) == 0
    quick.acknowledge(1)
    nodes.until(lambda: nodes.floor(group, nodes.partitions()[0]) == 1)


def test_a_filter_narrows_what_a_member_takes() -> None:
    nodes = MemberNodes()
    nodes.group()
    left = nodes.member(1, "left", b"$queue/work/t/left/#")
    both = nodes.member(2, "both")
    nodes.run(500)
    nodes.put(nodes.partitions()[0], *[(b"t/right/1", b"r%d" % one) for one in range(4)])
    assert len(nodes.look(both, 4)) == 4
    nodes.put(nodes.partitions()[0], (b"t/left/1", b"l"), (b"t/right/1", b"r"))
    nodes.run(1_000)
    left.look()
    both.look()
    assert [message.payload for message in left.messages] in ([b"l"], [])
    assert b"r" in [message.payload for message in both.messages]


def test_refusals_say_why() -> None:
    nodes = MemberNodes()
    nodes.group()
    device = nodes.client(1, "c")
    assert nodes.subscribe(device, b"$queue/other") == reasons.TOPIC_FILTER_INVALID
    assert "no consumer group" in (nodes.why or "")
    assert nodes.subscribe(device, b"$queue/work/elsewhere/#") == reasons.TOPIC_FILTER_INVALID
    assert "reads nothing" in (nodes.why or "")
    assert nodes.subscribe(device, b"$queue/work", qos=0) == reasons.TOPIC_FILTER_INVALID
    assert "QoS 1" in (nodes.why or "")
    assert nodes.subscribe(device, b"$queue/work", qos=2) == 1
    old = nodes.client(1, "old", version=4)
    assert nodes.subscribe(old, b"$queue/other") == 0x80
    assert nodes.subscribe(old, b"$queue/work") == 1
