"""Where another node may be reached: a host (name or address) and a port."""

from __future__ import annotations

from typing import Final, NamedTuple

from flockmq.errors import FlockError

PORT: Final = 16_000
"""The default port on which nodes listen for each other."""
HOST_CHARACTERS_MAX: Final = 253
"""As long as a name in DNS may be."""
_FORBIDDEN: Final = frozenset(" \t\r\n/@\\\"'<>[]{}#?,;")


class Contact(NamedTuple):
    """The address of a node, as other nodes get it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def make_contact(host: str, port: int) -> Contact:
    """A contact as another node told it; FlockError when it can't be one."""
    if not 0 < len(host) <= HOST_CHARACTERS_MAX or not host.isprintable() or not _FORBIDDEN.isdisjoint(host):
        raise FlockError(f"{host[:HOST_CHARACTERS_MAX]!r} is not a host; expected a name or an IP address.")
    if not 0 < port <= 65_535:
        raise FlockError(f"{port} is not a port; expected 1 to 65535.")
    return Contact(host, port)


def parse_contact(text: str, port: int = PORT) -> Contact:
    """Read ``host``, ``host:port``, ``[::1]:port`` or a bare IPv6 address; FlockError tells what is wrong."""
    host, port_text = text.strip(), ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise FlockError(f"{text!r} is not an address of a node; write IPv6 like [2001:db8::1]:{port}.")
        port_text = rest[1:]
        if rest and not port_text:
            raise FlockError(f"{text!r} ends where a port should follow; write host:{port}.")
    elif host.count(":") == 1:
        host, _, port_text = host.partition(":")
        if not port_text:
            raise FlockError(f"{text!r} ends where a port should follow; write host:{port}.")
    if port_text:
        if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5):
            raise FlockError(f"{text!r} is not an address of a node; expected host:port with a port from 1 to 65535.")
        port = int(port_text)
    try:
        return make_contact(host, port)
    except FlockError as error:
        raise FlockError(f"{text!r} is not an address of a node: {error}") from None
