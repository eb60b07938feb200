from __future__ import annotations

from flockmq.admin.durable_port import Message
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import Run
from flockmq.mqtt.varint import decode_varint
from flockmq.server.durable_runs import runs_of


def packets(run: Run) -> list[Publish]:
    found: list[Publish] = []
    start = 0
    wire = bytearray(run.wire)
    for at in run.pid_at:
        wire[at + 1] = 1  # as when it is sent
    for end in run.ends:
        length, at = decode_varint(bytes(wire), start + 1, end)
        assert at + length == end
        packet = decode_packet(5, wire[start], bytes(wire[at:end]))
        assert isinstance(packet, Publish)
        found.append(packet)
        start = end
    return found


def test_neighbours_of_one_topic_are_one_run() -> None:
    expiring = Properties()
    expiring.message_expiry_s = 5
    named = Properties()
    named.user = [("a", "b")]
    messages = [
        Message(b"a", b"1", False, None),
        Message(b"a", b"22", False, named),
        Message(b"b", b"3", False, None),
        Message(b"a", b"4", False, None),
        Message(b"a", b"5", True, None),
        Message(b"a", b"6", True, expiring),
    ]
    runs = runs_of(messages, 1_000)
    assert [(run.topic, run.count, run.retain, run.expires_at) for run in runs] == [
        (b"a", 2, False, 0),
        (b"b", 1, False, 0),
        (b"a", 1, False, 0),
        (b"a", 1, True, 0),
        (b"a", 1, True, 6_000),
    ]
    found = [packet for run in runs for packet in packets(run)]
    assert [packet.payload for packet in found] == [message.payload for message in messages]
    assert found[1].properties is not None
    assert found[1].properties.user == [("a", "b")]
    assert all(run.wire[at : at + 2] == b"\0\0" for run in runs for at in run.pid_at)


def test_no_messages_are_no_runs() -> None:
    assert runs_of([], 0) == []
