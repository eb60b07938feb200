from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.run import make_run
from flockmq.mqtt.stored import stored_run

TEXT_PAYLOAD = b"\x01\x01"


@given(
    st.sampled_from([4, 5]),
    st.integers(0, 2),
    st.binary(min_size=1, max_size=300),
    st.integers(0, 3),
    st.booleans(),
)
def test_what_was_stored_comes_back_as_it_was(version: int, qos: int, payload: bytes, pid: int, text: bool) -> None:
    properties = TEXT_PAYLOAD if text and version == 5 else b""
    run = make_run(version, qos, True, b"a/b", payload, properties, 77, pid).alone()
    again = stored_run(version, run.wire, 77)
    assert vars(again) == vars(run) if hasattr(run, "__dict__") else again.wire == run.wire
    assert again.parse(0) == (properties, payload)
    assert again.form(4, 1, True, b"").stamped(0, 1, 9) == run.form(4, 1, True, b"").stamped(0, 1, 9)


@pytest.mark.parametrize(
    ("version", "wire"),
    [
        (4, b""),
        (4, b"\x31"),
        (3, b"\x31\x04\0\x01ax"),
        (4, b"\x30\x04\0\x01ax"),  # not retained
        (4, b"\x39\x04\0\x01ax"),  # DUP
        (4, b"\x37\x06\0\x01a\0\x01x"),  # QoS 3
        (4, b"\x41\x04\0\x01ax"),  # no PUBLISH
        (4, b"\x31\x05\0\x01ax"),
        (4, b"\x31\x04\0\x01axx"),
        (4, b"\x31\x84\x00\0\x01ax"),  # a length longer than needed
        (4, b"\x31\x03\0\x01a"),  # no payload
        (4, b"\x31\x03\0\0x"),  # no topic
        (4, b"\x31\x04\0\x01#x"),
        (4, b"\x31\x04\0\x01\xffx"),
        (4, b"\x31\x04\0\x09ax"),
        (4, b"\x33\x04\0\x01ax"),  # ends within the packet id
        (5, b"\x31\x05\0\x01a\x09x"),  # properties longer than the packet
        (5, b"\x31\x08\0\x01a\x03\x23\0\x01x"),  # an alias
        (5, b"\x31\x0a\0\x01a\x05\x02\0\0\0\x01x"),  # an expiry
        (5, b"\x31\x07\0\x01a\x02\x0b\x01x"),  # a subscription identifier
        (5, b"\x31\x03\0\x01a"),
        (5, b"\x31\x04\0\x01a\0"),
    ],
)
def test_what_is_no_stored_message_is_refused(version: int, wire: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        stored_run(version, wire, 0)


@given(st.sampled_from([4, 5]), st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(version: int, data: bytes) -> None:
    with suppress(RemoteProtocolError):
        assert stored_run(version, b"\x31" + bytes((len(data) & 0x7F,)) + data, 0).payload(0)
