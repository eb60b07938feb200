"""The PROXY protocol header, versions 1 (text) and 2 (binary): the address of the client behind a load balancer.

```
 bytes --> ProxyParser.feed --> None          more is needed; all bytes so far belong to the header
                            --> ProxyHeader   source address and port, TLS facts, and the rest: what the client sent
                            --> FlockError    not a header, or not one that is allowed here: close the connection
```
A header without an address (``UNKNOWN``, ``LOCAL``: the balancer's own health check) leaves ``address`` empty; the
peer of the socket stands then. The name in a client certificate is believed only where the balancer says that it
verified it. Lengths are bounded before anything is collected: 107 bytes (version 1), HEADER_BYTES_MAX (version 2).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from flockmq.errors import FlockError

VERSION_1: Final = 1
VERSION_2: Final = 2
ANY_VERSION: Final = 3

HEADER_BYTES_MAX: Final = 2_048

_TEXT_BYTES_MAX: Final = 107
_TEXT_START: Final = b"PROXY "
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED_BYTES: Final = 16

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_UNSPECIFIED: Final = 0x00
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_UNIX_STREAM: Final = 0x31
_ADDRESS_BYTES: Final = {_TCP4: 12, _TCP6: 36, _UNIX_STREAM: 216}

_TLV_SSL: Final = 0x20
_TLV_SSL_COMMON_NAME: Final = 0x22
_CLIENT_TLS: Final = 0x01
_CLIENT_CERTIFICATE: Final = 0x06  # shown on this connection, or on the session it resumed


class ProxyHeader:
    """What the balancer said about a connection."""

    def __init__(self, address: str, port: int, rest: bytes) -> None:
        self.address: str = address
        """The client's, or ``unix:`` and a path; empty when the balancer gave none."""
        self.port: int = port
        self.tls: bool = False
        """Whether the client speaks TLS to the balancer."""
        self.certificate_name: str | None = None
        """Common name of the client certificate that the balancer verified; empty when it gave several."""
        self.rest: bytes = rest


class ProxyParser:
    """Collects one header and reads it."""

    def __init__(self, versions: int = ANY_VERSION) -> None:
        self._versions: int = versions
        self._held: bytes = b""

    def feed(self, data: bytes) -> ProxyHeader | None:
        """Take the next bytes of the connection."""
        held = self._held + data
        if self._versions & VERSION_1 and held[:6] == _TEXT_START[: len(held)]:
            header = _read_text(held)
        elif self._versions & VERSION_2 and held[:12] == _SIGNATURE[: len(held)]:
            header = _read_binary(held)
        else:
            raise FlockError("The connection does not begin with the PROXY header that this listener requires")
        self._held = b"" if header is not None else held
        return header


def _read_text(held: bytes) -> ProxyHeader | None:
    end = held.find(b"\r\n", 0, _TEXT_BYTES_MAX)
    if end < 0:
        if len(held) >= _TEXT_BYTES_MAX:
            raise FlockError(f"The PROXY header is over {_TEXT_BYTES_MAX} bytes")
        return None
    rest = held[end + 2 :]
    words = held[:end].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader("", 0, rest)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise FlockError("The PROXY header is not 'PROXY TCP4|TCP6 source destination port port'")
    try:
        source = ip_address(words[2])
        destination = ip_address(words[3])
    except ValueError:
        raise FlockError("The PROXY header holds something that is no IP address") from None
    version = 4 if words[1] == "TCP4" else 6
    if source.version != version or destination.version != version or "%" in words[2]:
        raise FlockError(f"The PROXY header says {words[1]} and holds an address of another kind")
    _read_port(words[5])
    return ProxyHeader(plain_address(source), _read_port(words[4]), rest)


def _read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65_535):
        raise FlockError("The PROXY header holds something that is no port")
    return int(text)


def _read_binary(held: bytes) -> ProxyHeader | None:
    if len(held) < _FIXED_BYTES:
        return None
    command = held[12]
    family = held[13]
    length = int.from_bytes(held[14:16], "big")
    end = _FIXED_BYTES + length
    if command not in (_LOCAL, _PROXY):
        raise FlockError("The PROXY header has an unknown version or command")
    if end > HEADER_BYTES_MAX:
        raise FlockError(f"The PROXY header is over {HEADER_BYTES_MAX} bytes")
    if len(held) < end:
        return None
    rest = held[end:]
    if command == _LOCAL or family == _UNSPECIFIED:
        return ProxyHeader("", 0, rest)
    address_bytes = _ADDRESS_BYTES.get(family, 0)
    if not address_bytes:
        raise FlockError(f"The PROXY header names protocol {family:#04x}; MQTT comes by TCP or a UNIX stream")
    if length < address_bytes:
        raise FlockError("The PROXY header is too short for the addresses it announces")
    header = _read_addresses(family, held[_FIXED_BYTES:end], rest)
    _read_tls(header, held[_FIXED_BYTES + address_bytes : end])
    return header


def _read_addresses(family: int, body: bytes, rest: bytes) -> ProxyHeader:
    if family == _TCP4:
        return ProxyHeader(plain_address(IPv4Address(body[:4])), int.from_bytes(body[8:10], "big"), rest)
    if family == _TCP6:
        return ProxyHeader(plain_address(IPv6Address(body[:16])), int.from_bytes(body[32:34], "big"), rest)
    path = body[:108].partition(b"\0")[0].decode(errors="backslashreplace")
    return ProxyHeader("unix:" + path, 0, rest)


def _read_tls(header: ProxyHeader, body: bytes) -> None:
    for kind, value in _records(body):
        if kind != _TLV_SSL:
            continue
        if len(value) < 5:
            raise FlockError("The TLS record of the PROXY header is too short")
        header.tls = value[0] & _CLIENT_TLS != 0
        verified = int.from_bytes(value[1:5], "big") == 0 and value[0] & _CLIENT_CERTIFICATE != 0
        if not (header.tls and verified):
            continue
        for inner_kind, inner_value in _records(value[5:]):
            if inner_kind == _TLV_SSL_COMMON_NAME:
                is_first = header.certificate_name is None
                header.certificate_name = _read_name(inner_value) if is_first else ""


def _read_name(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FlockError("The certificate name in the PROXY header is not UTF-8") from None


def _records(body: bytes) -> list[tuple[int, bytes]]:
    """Split type-length-value records."""
    found: list[tuple[int, bytes]] = []
    position = 0
    while position < len(body):
        start = position + 3
        length = int.from_bytes(body[position + 1 : start], "big")
        if start + length > len(body):
            raise FlockError("A record of the PROXY header is longer than the header")
        found.append((body[position], body[start : start + length]))
        position = start + length
    return found


def plain_address(address: IPv4Address | IPv6Address) -> str:
    """Write an address the one way it is known by; an IPv4 client is the same client when it came through IPv6."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
