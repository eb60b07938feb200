"""Sockets for multicast: one that hears a group on all interfaces, and one per interface to speak with.

A listening socket is bound to the group's address, so nothing but that group arrives at it; address and port are
shared, so that several nodes on one machine hear the same announcements. What is sent
stays in the local network (TTL 1).
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from flockmq.discovery.ports import DiscoveryError

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOPS: Final = 1


class Group:
    """One multicast group: `hearing` is the socket to read from."""

    def __init__(self, group: str, port: int, interfaces: Sequence[str]) -> None:
        self.group = group
        self.port = port
        self.version = ip_address(group).version
        self.speaking: list[tuple[str, socket.socket]] = []
        family = socket.AF_INET if self.version == 4 else socket.AF_INET6
        self.hearing = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._open(family, _indexes(interfaces))
        except BaseException:
            self.close()
            raise

    def _open(self, family: socket.AddressFamily, indexes: list[tuple[int, str]]) -> None:
        hearing = self.hearing
        hearing.setblocking(False)
        hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if self.version == 6:
            hearing.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        hearing.bind((self.group, self.port))
        trouble: OSError | None = None
        for index, name in indexes:
            try:
                self._join(index)
                self.speaking.append((name, self._speaker(family, index)))
            except OSError as error:  # an interface that is down, or without an address of this family
                trouble = error
        if not self.speaking:
            raise trouble or OSError("no network interface")

    def _join(self, index: int) -> None:
        address = ip_address(self.group).packed
        if self.version == 4:
            request = address + bytes(4) + struct.pack("@i", index)
            self.hearing.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        else:
            request = address + struct.pack("@I", index)
            self.hearing.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)

    def _speaker(self, family: socket.AddressFamily, index: int) -> socket.socket:
        speaking = socket.socket(family, socket.SOCK_DGRAM)
        try:
            speaking.setblocking(False)
            if self.version == 4:
                request = bytes(8) + struct.pack("@i", index)
                speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
                speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _HOPS)
                speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            else:
                speaking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
                speaking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOPS)
                speaking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        except BaseException:
            speaking.close()
            raise
        return speaking

    def send(self, datagram: bytes) -> int:
        """Say it on every interface; how many took it. One that is down now may be up the next time."""
        sent = 0
        for _, speaking in self.speaking:
            with suppress(OSError):
                speaking.sendto(datagram, (self.group, self.port))
                sent += 1
        return sent

    def close(self) -> None:
        """Close all sockets."""
        self.hearing.close()
        for _, speaking in self.speaking:
            speaking.close()
        self.speaking.clear()


def _indexes(interfaces: Sequence[str]) -> list[tuple[int, str]]:
    known = {name: index for index, name in socket.if_nameindex()}
    for name in interfaces:
        if name not in known:
            raise DiscoveryError(
                f"discovery.mcast.interfaces names {name!r}, which this machine does not have; there are "
                f"{', '.join(known)}."
            )
    return [(known[name], name) for name in (interfaces or known)]


def open_groups(groups: Sequence[str], port: int, interfaces: Sequence[str]) -> list[Group]:
    """All groups that this machine can hear; DiscoveryError when it is none."""
    opened: list[Group] = []
    trouble: list[str] = []
    for group in groups:
        try:
            opened.append(Group(group, port, interfaces))
        except OSError as error:
            trouble.append(f"{group}: {error.strerror or error}")
    if not opened:
        raise DiscoveryError(f"No multicast group can be used here ({'; '.join(trouble)}); try another discovery.")
    return opened
