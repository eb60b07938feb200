"""What many conformance tests ask of a client: how was it closed, how was it answered."""

from __future__ import annotations

from flockmq.testing.harness import HarnessClient


def closed_with(client: HarnessClient) -> int:
    """The reason code of the DISCONNECT that ended an MQTT 5 connection; it is the only packet that came."""
    out = client.received_bytes()
    assert client.closed, f"still open, received {out.hex(' ')}"
    assert out[:1] == b"\xe0", f"not a DISCONNECT: {out.hex(' ')}"
    length = out[1]
    header = 2
    if length >= 0x80:
        length = length & 0x7F | out[2] << 7
        header = 3
    assert len(out) == header + length, f"something follows the DISCONNECT: {out.hex(' ')}"
    return out[header] if length else 0


def refused_with(client: HarnessClient) -> int | None:
    """The reason code of the CONNACK that refused a connection, None when it was closed without one."""
    out = client.received_bytes()
    assert client.closed, f"still open, received {out.hex(' ')}"
    if not out:
        return None
    assert out[0] == 0x20, f"not a CONNACK: {out.hex(' ')}"
    header = 2 if out[1] < 0x80 else 3
    assert out[header] == 0, "a refusal must not say that a session is present"
    return out[header + 1]


def closed_silently(client: HarnessClient) -> None:
    """MQTT 3.1.1 has no words for it: the connection is closed and nothing was sent."""
    out = client.received_bytes()
    assert client.closed, f"still open, received {out.hex(' ')}"
    assert out == b"", f"3.1.1 servers close without a packet, came {out.hex(' ')}"
