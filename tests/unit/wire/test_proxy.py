"""PROXY headers: every good one reads whole and byte by byte with what follows it; every bad one is refused."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.errors import FlockError
from flockmq.wire.proxy import ANY_VERSION, VERSION_1, VERSION_2, ProxyHeader, ProxyParser

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def binary(family: int, body: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2, "big") + body


def record(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + len(value).to_bytes(2, "big") + value


def tls_record(flags: int, verify: int, *inner: bytes) -> bytes:
    return record(0x20, bytes((flags,)) + verify.to_bytes(4, "big") + b"".join(inner))


TCP4 = IPv4Address("192.0.2.7").packed + IPv4Address("198.51.100.1").packed + b"\xdc\x04\x07\x5b"
TCP6 = IPv6Address("2001:db8::7").packed + IPv6Address("2001:db8::1").packed + b"\xdc\x04\x07\x5b"
MAPPED = IPv6Address("::ffff:192.0.2.7").packed + IPv6Address("::1").packed + b"\xdc\x04\x07\x5b"
UNIX = b"/run/client".ljust(108, b"\0") + b"/run/broker".ljust(108, b"\0")
NAME = record(0x22, "dévice-1".encode())

GOOD = {
    "v1 IPv4": (b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 1883\r\n", "192.0.2.7", 56324),
    "v1 IPv6": (b"PROXY TCP6 2001:DB8:0::7 2001:db8::1 56324 1883\r\n", "2001:db8::7", 56324),
    "v1 IPv4 in IPv6": (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 56324 1883\r\n", "192.0.2.7", 56324),
    "v1 unknown": (b"PROXY UNKNOWN\r\n", "", 0),
    "v1 unknown with more": (b"PROXY UNKNOWN " + b"f" * 91 + b"\r\n", "", 0),
    "v2 IPv4": (binary(0x11, TCP4), "192.0.2.7", 56324),
    "v2 IPv6": (binary(0x21, TCP6), "2001:db8::7", 56324),
    "v2 IPv4 in IPv6": (binary(0x21, MAPPED), "192.0.2.7", 56324),
    "v2 UNIX": (binary(0x31, UNIX), "unix:/run/client", 0),
    "v2 local": (binary(0x11, TCP4, command=0x20), "", 0),
    "v2 local, empty": (binary(0x00, b"", command=0x20), "", 0),
    "v2 unspecified": (binary(0x00, b""), "", 0),
    "v2 other records": (binary(0x11, TCP4 + record(0x04, b"\0" * 50) + record(0x01, b"mqtt")), "192.0.2.7", 56324),
}


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(("wire", "address", "port"), GOOD.values(), ids=GOOD.keys())
def test_good_headers(wire: bytes, address: str, port: int, step: int) -> None:
    parser = ProxyParser()
    follows = b"\x10\x0c\r\n"
    header: ProxyHeader | None = None
    stream = wire + follows
    at = 0
    while header is None:
        header = parser.feed(stream[at : at + step])
        at += step
    assert (header.address, header.port) == (address, port)
    assert header.rest + stream[at:] == follows
    assert (header.tls, header.certificate_name) == (False, None)


CERTIFICATES = {
    "on this connection": (tls_record(0x03, 0, record(0x21, b"TLSv1.3"), NAME), True, "dévice-1"),
    "on the session": (tls_record(0x05, 0, NAME), True, "dévice-1"),
    "not verified": (tls_record(0x03, 1, NAME), True, None),
    "none shown": (tls_record(0x01, 0, NAME), True, None),
    "no TLS": (tls_record(0x02, 0, NAME), False, None),
    "no name": (tls_record(0x03, 0), True, None),
}


@pytest.mark.parametrize(("records", "tls", "name"), CERTIFICATES.values(), ids=CERTIFICATES.keys())
def test_a_certificate_name_is_believed_when_verified(records: bytes, tls: bool, name: str | None) -> None:
    header = ProxyParser().feed(binary(0x11, TCP4 + records))
    assert header is not None
    assert (header.tls, header.certificate_name) == (tls, name)


BAD = {
    "MQTT": b"\x10\x0c\x00\x04MQTT",
    "TLS": b"\x16\x03\x01",
    "other word": b"PROXX",
    "broken signature": SIGNATURE[:-1] + b"X",
    "v1 too long": b"PROXY UNKNOWN " + b"f" * 100,
    "v1 no addresses": b"PROXY TCP4\r\n",
    "v1 wrong word": b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
    "v1 two spaces": b"PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n",
    "v1 not an address": b"PROXY TCP4 192.0.2.777 198.51.100.1 1 2\r\n",
    "v1 IPv6 as IPv4": b"PROXY TCP4 ::1 ::2 1 2\r\n",
    "v1 IPv4 as IPv6": b"PROXY TCP6 192.0.2.7 198.51.100.1 1 2\r\n",
    "v1 scope": b"PROXY TCP6 fe80::1%eth0 ::2 1 2\r\n",
    "v1 port too high": b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 2\r\n",
    "v1 negative port": b"PROXY TCP4 192.0.2.7 198.51.100.1 1 -2\r\n",
    "v2 version 3": binary(0x11, TCP4, command=0x31),
    "v2 unknown command": binary(0x11, TCP4, command=0x22),
    "v2 datagrams": binary(0x12, TCP4),
    "v2 too short": binary(0x21, TCP4),
    "v2 too long": SIGNATURE + b"\x21\x11\xff\xff",
    "v2 record too long": binary(0x11, TCP4 + b"\x04\x00\x09x"),
    "v2 half a record": binary(0x11, TCP4 + b"\x04"),
    "v2 short TLS record": binary(0x11, TCP4 + record(0x20, b"\x01")),
    "v2 name not UTF-8": binary(0x11, TCP4 + tls_record(0x03, 0, record(0x22, b"\xff"))),
}


def feed_all(wire: bytes, step: int) -> None:
    parser = ProxyParser()
    for at in range(0, len(wire), step):
        assert parser.feed(wire[at : at + step]) is None


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize("wire", BAD.values(), ids=BAD.keys())
def test_bad_headers(wire: bytes, step: int) -> None:
    with pytest.raises(FlockError, match="PROXY"):
        feed_all(wire, step)


@pytest.mark.parametrize(
    ("versions", "text_allowed", "binary_allowed"),
    [(VERSION_1, True, False), (VERSION_2, False, True), (ANY_VERSION, True, True)],
)
def test_only_the_versions_asked_for(versions: int, text_allowed: bool, binary_allowed: bool) -> None:
    for wire, allowed in ((b"PROXY UNKNOWN\r\n", text_allowed), (binary(0x11, TCP4), binary_allowed)):
        if allowed:
            assert ProxyParser(versions).feed(wire) is not None
        else:
            with pytest.raises(FlockError, match="does not begin with the PROXY header"):
                ProxyParser(versions).feed(wire[:1])


@given(st.sampled_from([b"", b"PROXY ", SIGNATURE, SIGNATURE + b"\x21\x11"]), st.lists(st.binary(max_size=300)))
def test_garbage_is_refused_or_read_within_bounds(start: bytes, reads: list[bytes]) -> None:
    parser = ProxyParser()
    total = 0
    try:
        for data in [start, *reads]:
            if parser.feed(data) is not None:
                return
            total += len(data)
            assert total <= 2_048
    except FlockError:
        pass
