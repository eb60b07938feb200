from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import Run, make_run
from flockmq.mqtt.scan import scan_run
from flockmq.routing.parcel import read_parcels, run_head, shared_head
from flockmq.routing.shared import ShareGroup

NOW = 5_000


def run_of(qos: int, version: int = 5, count: int = 1, topic: bytes = b"t/a") -> Run:
    packets = [
        Publish(topic, b"x" * number, qos, False, False, number + 1 if qos else 0, None) for number in range(count)
    ]
    wire = b"".join(encode_packet(packet, version) for packet in packets)
    run = scan_run(wire, 0, len(wire), version, 1_000_000)
    assert run is not None
    assert run.count == count
    return run


def same(one: Run, other: Run) -> None:
    for name in ("version", "qos", "retain", "topic", "wire", "count", "pid_at", "expires_at"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_runs_of_a_part_come_out_as_they_went_in(qos: int, version: int) -> None:
    runs = [run_of(qos, version, count, topic) for count, topic in ((1, b"a"), (5, b"b"), (300, b"b"))]
    body = b"head" + b"".join(run_head(run, NOW) + run.wire for run in runs)
    parcels = read_parcels(body, 4, NOW)
    assert [parcel.run.count for parcel in parcels] == [1, 5, 300]
    for run, parcel in zip(runs, parcels, strict=True):
        same(run, parcel.run)
        assert (parcel.group, parcel.topic_filter, parcel.hops) == (b"", b"", 0)


def test_a_plain_head_is_five_bytes() -> None:
    assert len(run_head(run_of(0), NOW)) == 5


def test_the_time_that_is_left_travels_not_the_clock() -> None:
    run = make_run(5, 1, False, b"t", b"x", expires_at=NOW + 1_500, packet_id=3)
    (parcel,) = read_parcels(run_head(run, NOW) + run.wire, 0, 77)
    assert parcel.run.expires_at == 77 + 1_500


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_brokers_own_messages_and_those_with_a_payload_format_pass(qos: int) -> None:
    run = make_run(5, qos, True, b"t/a", b"text", b"\x01\x01")
    (parcel,) = read_parcels(run_head(run, NOW) + run.wire, 0, NOW)
    same(run, parcel.run)
    assert parcel.run.parse(0) == (b"\x01\x01", b"text")
    assert parcel.run.stamped(5, qos, True, b"", 0, 1, 9) == run.stamped(5, qos, True, b"", 0, 1, 9) if qos else True


def test_a_shared_parcel_names_its_group_and_publisher() -> None:
    group = ShareGroup(b"workers", b"t/+", 0, random.Random(1))
    run = run_of(1)
    head = shared_head(run, group, 2, "pümp", NOW)
    (parcel,) = read_parcels(head + run.wire, 0, NOW)
    same(run, parcel.run)
    assert (parcel.group, parcel.topic_filter, parcel.publisher_id, parcel.hops) == (b"workers", b"t/+", "pümp", 2)


def properties_with(**values: object) -> Properties:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"\x30",
        b"\xc0\x00",
        b"\x36\x05\x00\x01t\x00\x01",
        encode_packet(Publish(b"t", b"", 1, False, True, 1, None), 5),
        encode_packet(Publish(b"t", b"", 0, False, False, 0, properties_with(topic_alias=1)), 5),
        encode_packet(Publish(b"t", b"", 0, False, False, 0, properties_with(message_expiry_s=1)), 5),
        run_of(0, topic=b"a").wire + run_of(0, topic=b"b").wire,
        run_of(0).wire[:-1],
    ],
)
def test_what_no_node_forwards_is_refused(wire: bytes) -> None:
    body = bytes((1,)) + len(wire).to_bytes(4, "little") + wire
    with pytest.raises(RemoteProtocolError):
        read_parcels(body, 0, NOW)


def test_lengths_are_held_against_what_is_there() -> None:
    run = run_of(1)
    group = ShareGroup(b"g", b"t/#", 0, random.Random(1))
    run.expires_at = NOW + 10
    body = shared_head(run, group, 0, "p", NOW) + run.wire
    for end in range(1, len(body)):
        with pytest.raises(RemoteProtocolError):
            read_parcels(body[:end], 0, NOW)
    with pytest.raises(RemoteProtocolError, match="unknown flags"):
        read_parcels(b"\x08" + body[1:], 0, NOW)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        for parcel in read_parcels(body, 0, NOW):
            parcel.run.parse(0)
    except RemoteProtocolError:
        pass
