"""Payloads of whole runs, against those of each message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.payloads import payloads_of, plain_acks
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import Run
from flockmq.mqtt.scan import scan_run

PAYLOAD = st.one_of(st.binary(max_size=300), st.just(bytes(20_000)))


def run_of(version: int, qos: int, payloads: list[bytes], properties: Properties | None = None) -> Run:
    packets = [
        Publish(b"t/a", payload, qos, False, packet_id=index + 300 if qos else 0, properties=properties)
        for index, payload in enumerate(payloads)
    ]
    wire = b"".join(encode_packet(packet, version) for packet in packets)
    run = scan_run(wire, 0, len(wire), version, 1 << 20)
    assert run is not None
    return run


@given(st.sampled_from([4, 5]), st.integers(0, 2), st.lists(PAYLOAD, min_size=1, max_size=12))
def test_all_payloads_in_order(version: int, qos: int, payloads: list[bytes]) -> None:
    assert payloads_of(run_of(version, qos, payloads)) == payloads


@given(st.lists(PAYLOAD, min_size=1, max_size=4))
def test_properties_are_not_overlooked(payloads: list[bytes]) -> None:
    properties = Properties()
    properties.user = [("a", "b")]
    assert payloads_of(run_of(5, 1, payloads, properties)) is None


def test_acknowledgements_of_a_run() -> None:
    assert plain_acks(run_of(4, 1, [b"x", b"yy"])) == b"\x40\x02\x01\x2c\x40\x02\x01\x2d"
    assert plain_acks(run_of(5, 2, [b"x"])) == b"\x50\x02\x01\x2c"


@given(st.integers(1, 2), st.lists(st.sampled_from([b"x", b"y", b"longer"]), min_size=1, max_size=9))
def test_acknowledgements_of_any_run(qos: int, payloads: list[bytes]) -> None:
    head = b"\x40\x02" if qos == 1 else b"\x50\x02"
    expected = b"".join(head + (index + 300).to_bytes(2, "big") for index in range(len(payloads)))
    assert plain_acks(run_of(4, qos, payloads)) == expected
