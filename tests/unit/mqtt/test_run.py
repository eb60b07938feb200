"""Runs and their forms: every form says the same as encoding each message by itself would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import Publish
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.run import (
    FORMS_MAX,
    NO_POSITIONS,
    Run,
    build_form,
    make_run,
    packet_ends,
    payloads_run,
    with_topic,
)
from flockmq.mqtt.scan import scan_run
from flockmq.mqtt.varint import frame_length

TOPIC = b"plant/7/temperature"


def publishes(data: bytes, version: int) -> list[Publish]:
    found: list[Publish] = []
    pos = 0
    while pos < len(data):
        header, total = frame_length(data, pos, len(data))
        packet = decode_packet(version, data[pos], data[pos + header : pos + total])
        assert isinstance(packet, Publish)
        found.append(packet)
        pos += total
    return found


def user(index: int) -> Properties:
    properties = Properties()
    properties.user = [("n", str(index)), ("n", "again")]
    return properties


def run_of(version: int, qos: int, retain: bool, payloads: list[bytes], with_properties: bool = False) -> Run:
    wire = b"".join(
        encode_packet(
            Publish(
                TOPIC,
                payload,
                qos,
                retain,
                packet_id=index + 1 if qos else 0,
                properties=user(index) if with_properties else None,
            ),
            version,
        )
        for index, payload in enumerate(payloads)
    )
    run = scan_run(wire, 0, len(wire), version, 1 << 20)
    assert run is not None
    assert run.wire == wire
    assert run.count == len(payloads)
    return run


@given(
    version=st.sampled_from([4, 5]),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    payloads=st.lists(st.binary(max_size=200), min_size=1, max_size=12),
    with_properties=st.booleans(),
    to_version=st.sampled_from([4, 5]),
    to_qos=st.integers(0, 2),
    to_retain=st.booleans(),
    identifier=st.sampled_from([0, 1, 200]),
)
def test_a_form_holds_the_same_messages(
    version: int,
    qos: int,
    retain: bool,
    payloads: list[bytes],
    with_properties: bool,
    to_version: int,
    to_qos: int,
    to_retain: bool,
    identifier: int,
) -> None:
    run = run_of(version, qos, retain, payloads, with_properties)
    extra = b"" if not identifier else (b"\x0b\x01" if identifier == 1 else b"\x0b\xc8\x01")
    form = run.form(to_version, to_qos, to_retain, extra)
    data = form.stamped(0, run.count, 7) if to_qos else form.data
    got = publishes(data, to_version)
    assert [packet.payload for packet in got] == payloads
    assert {(packet.qos, packet.retain, packet.dup, packet.topic) for packet in got} == {
        (to_qos, to_retain, False, TOPIC)
    }
    if to_qos:
        assert [packet.packet_id for packet in got] == list(range(7, 7 + len(payloads)))
    for index, packet in enumerate(got):
        wants_user = with_properties and version == 5 and to_version == 5
        assert (packet.properties.user if packet.properties else []) == (user(index).user if wants_user else [])
        identifiers = packet.properties.subscription_identifiers if packet.properties else []
        assert identifiers == ([identifier] if identifier and to_version == 5 else [])
    assert form.ends == packet_ends(data)


@given(
    qos=st.integers(0, 2),
    payloads=st.lists(st.binary(max_size=40), min_size=1, max_size=10),
    data=st.data(),
)
def test_a_part_is_a_run_of_those_messages(qos: int, payloads: list[bytes], data: st.DataObject) -> None:
    run = run_of(4, qos, False, payloads)
    low = data.draw(st.integers(0, len(payloads) - 1))
    high = data.draw(st.integers(low + 1, len(payloads)))
    part = run.part(low, high)
    assert part.count == high - low
    assert [packet.payload for packet in publishes(part.wire, 4)] == payloads[low:high]
    assert [part.payload(index) for index in range(part.count)] == payloads[low:high]
    if qos:
        assert [part.wire[at] << 8 | part.wire[at + 1] for at in part.pid_at] == list(range(low + 1, high + 1))


def test_the_own_bytes_are_forwarded_where_nothing_changes() -> None:
    run = run_of(5, 0, False, [b"a", b"b"], with_properties=True)
    assert run.form(5, 0, False, b"").data is run.wire


def test_forms_are_shared_and_their_number_is_bounded() -> None:
    run = run_of(4, 0, False, [b"a", b"b"])
    assert run.form(5, 0, False, b"") is run.form(5, 0, False, b"")
    for identifier in range(1, 100):
        run.form(5, 0, False, bytes((0x0B, identifier)))
    assert run.forms is not None
    assert len(run.forms) <= 16


def test_a_retained_run_keeps_no_forms() -> None:
    run = run_of(4, 0, True, [b"a"]).alone()
    run.form(5, 0, True, b"")
    assert not run.forms


@given(
    version=st.sampled_from([4, 5]),
    qos=st.integers(0, 2),
    payload=st.binary(max_size=300),
    packet_id=st.integers(1, 65535),
)
def test_make_run_is_what_the_encoder_says(version: int, qos: int, payload: bytes, packet_id: int) -> None:
    packet_id = packet_id if qos else 0
    run = make_run(version, qos, True, TOPIC, payload, packet_id=packet_id)
    assert run.wire == encode_packet(Publish(TOPIC, payload, qos, True, packet_id=packet_id), version)
    scanned = scan_run(run.wire, 0, len(run.wire), version, 1 << 20)
    assert scanned is not None
    assert (scanned.pid_at, scanned.topic, scanned.retain) == (run.pid_at, TOPIC, True)


def test_positions_are_found_when_needed() -> None:
    run = run_of(4, 0, False, [b"a", b"bb"])
    assert run.ends is NO_POSITIONS or run.ends == []
    assert run.payload(1) == b"bb"


def test_pieces_are_the_same_whether_their_form_is_kept_or_not() -> None:
    """More kinds of subscribers than a run keeps forms for: the further ones get their piece made by itself."""
    run = run_of(5, 1, False, [b"%d" % number for number in range(20)], True)
    for kind in range(3 * FORMS_MAX):
        properties = b"\x0b" + bytes((kind + 1,))
        whole = build_form(run, 5, 1, False, properties)
        assert run.stamped(5, 1, False, properties, 3, 7, 300) == whole.stamped(3, 7, 300)
        assert run.stamped(5, 1, False, properties, 0, 20, 1) == whole.stamped(0, 20, 1)
    assert run.forms is not None
    assert len(run.forms) == FORMS_MAX


@pytest.mark.parametrize("payloads", [[b"one"], [b"aa", b"bb"], [b"", b"long" * 50, b"x"]], ids=repr)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_run_of_payloads_is_one_message_after_the_other(version: int, qos: int, payloads: list[bytes]) -> None:
    properties = b"\x01\x01" if version == 5 else b""
    run = payloads_run(version, qos, True, b"t/a", payloads, properties, 9)
    ones = [make_run(version, qos, True, b"t/a", payload, properties, 9) for payload in payloads]
    assert run.wire == b"".join(one.wire for one in ones)
    assert [run.part(i, i + 1).pid_at for i in range(run.count)] == [one.pid_at for one in ones]
    assert run.ends == packet_ends(run.wire)
    assert run.expires_at == 9


@pytest.mark.parametrize("payloads", [[b"one"], [b"aa", b"bb"], [b"", b"long" * 50, b"x", b"y"]], ids=repr)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_a_run_under_another_name_is_the_same_for_its_subscribers(
    version: int, qos: int, payloads: list[bytes]
) -> None:
    run = run_of(version, qos, False, payloads, with_properties=version == 5)
    inside = with_topic(run, b"$ns/acme/" + run.topic)
    assert inside.topic == b"$ns/acme/" + run.topic
    assert [inside.parse(index) for index in range(run.count)] == [run.parse(index) for index in range(run.count)]
    assert inside.ends == packet_ends(inside.wire)
    found = publishes(inside.wire, version)
    assert {one.topic for one in found} == {inside.topic}, "other nodes read the whole name out of it"
    assert [one.packet_id for one in found] == [one.packet_id for one in publishes(run.wire, version)]
    for wanted_version in (4, 5):
        for wanted_qos in (0, 1, 2):
            form = inside.form(wanted_version, wanted_qos, False, b"")
            expected = build_form(run, wanted_version, wanted_qos, False, b"")
            assert (form.pid_at, form.ends) == (expected.pid_at, expected.ends)
            if wanted_qos:
                assert form.stamped(0, run.count, 7) == expected.stamped(0, run.count, 7)
            else:
                assert form.data == expected.data
