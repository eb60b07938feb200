"""The hot loop against the ordinary decoder: a run is exactly the plain PUBLISH packets to one topic at a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.scan import scan_run


def expiring() -> Properties:
    properties = Properties()
    properties.message_expiry_s = 5
    return properties


def aliased() -> Properties:
    properties = Properties()
    properties.topic_alias = 1
    return properties


def texts() -> Properties:
    properties = Properties()
    properties.user = [("a", "b")]
    properties.content_type = "text/plain"
    return properties


publish = st.builds(
    Publish,
    topic=st.sampled_from([b"a", b"b", b"a/b", "ä/€".encode()]),
    payload=st.sampled_from([b"", b"x", b"y", b"x" * 130, b"x" * 20_000]),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    dup=st.just(False),
    packet_id=st.integers(1, 3),
)


def is_plain(packet: Publish) -> bool:
    odd = packet.properties is not None and (
        packet.properties.topic_alias is not None or packet.properties.message_expiry_s is not None
    )
    return not packet.dup and not odd


@given(
    version=st.sampled_from([4, 5]),
    packets=st.lists(publish, min_size=1, max_size=8),
    kinds=st.lists(st.sampled_from(["none", "none", "none", "user", "expiry", "alias", "dup"]), min_size=8, max_size=8),
    cut=st.integers(0, 3),
)
def test_scan_equals_the_obvious(version: int, packets: list[Publish], kinds: list[str], cut: int) -> None:
    for packet, kind in zip(packets, kinds, strict=False):
        if version == 5 and kind in ("user", "expiry", "alias"):
            packet.properties = {"user": texts, "expiry": expiring, "alias": aliased}[kind]()
        if kind == "dup" and packet.qos:
            packet.dup = True
        if not packet.qos:
            packet.packet_id = 0
    wires = [encode_packet(packet, version) for packet in packets]
    buf = b"\xc0\x00" + b"".join(wires)
    end = len(buf) - min(cut, len(wires[-1]) - 1)
    run = scan_run(buf, 2, end, version, 1 << 20)

    wanted: list[bytes] = []
    pos = 2
    for packet, wire in zip(packets, wires, strict=True):
        first = packets[0]
        same = (packet.topic, packet.qos, packet.retain) == (first.topic, first.qos, first.retain)
        if not is_plain(packet) or not same or pos + len(wire) > end:
            break
        wanted.append(wire)
        pos += len(wire)
    if not wanted:
        assert run is None
        return
    assert run is not None
    assert run.wire == b"".join(wanted)
    assert run.count == len(wanted)
    assert (run.topic, run.qos, run.retain) == (packets[0].topic, packets[0].qos, packets[0].retain)
    if run.qos:
        ids = [run.wire[at] << 8 | run.wire[at + 1] for at in run.pid_at]
        assert ids == [packet.packet_id for packet in packets[: len(wanted)]]


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"\x30", id="header cut"),
        pytest.param(b"\x30\x80", id="length cut"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", id="length of five bytes"),
        pytest.param(b"\x30\x00", id="no topic"),
        pytest.param(b"\x30\x01\x00", id="half a topic length"),
        pytest.param(b"\x30\x02\x00\x00", id="empty topic"),
        pytest.param(b"\x30\x04\x00\x05ab", id="topic beyond the packet"),
        pytest.param(b"\x32\x04\x00\x01a\x00", id="half a packet id"),
        pytest.param(b"\x32\x05\x00\x01a\x00\x00", id="packet id 0"),
        pytest.param(b"\x36\x05\x00\x01a\x00\x01", id="QoS 3"),
        pytest.param(b"\x3a\x05\x00\x01a\x00\x01", id="DUP"),
    ],
)
@pytest.mark.parametrize("version", [4, 5])
def test_left_to_the_ordinary_decoder(wire: bytes, version: int) -> None:
    assert scan_run(wire, 0, len(wire), version, 1 << 20) is None


def test_packet_id_zero_ends_a_run() -> None:
    good = encode_packet(Publish(b"a", b"x", 1, packet_id=9), 4)
    bad = good[:5] + b"\x00\x00" + good[7:]
    run = scan_run(good + bad, 0, len(good) * 2, 4, 1 << 20)
    assert run is not None
    assert run.count == 1


def test_a_packet_over_the_limit_is_left() -> None:
    wire = encode_packet(Publish(b"a", b"x" * 100), 4)
    assert scan_run(wire, 0, len(wire), 4, len(wire)) is not None
    assert scan_run(wire, 0, len(wire), 4, len(wire) - 1) is None


@pytest.mark.parametrize("block", [b"\x05\x26\x00\x01a", b"\x01\x7f", b"\x03\x23\x00\x00", b"\x80\x80\x80\x80\x01"])
def test_bad_properties_are_left(block: bytes) -> None:
    body = b"\x00\x01a" + block
    wire = bytes((0x30, len(body))) + body
    assert scan_run(wire, 0, len(wire), 5, 1 << 20) is None
