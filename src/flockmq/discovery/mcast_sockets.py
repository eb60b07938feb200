"""Sockets for multicast: for every group and every interface one to hear with and one to speak with.

Those that hear are bound to the group's address on their interface, so nothing but that arrives at them; address and
port are shared, so that several nodes on one machine hear the same announcements. What is sent stays in the local
network (TTL 1). Interfaces come and go: `refresh` opens what is new and closes what is gone.
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
_IP_MULTICAST_ALL: Final = 49
"""Linux; not in Python's socket module: whether a socket hears groups that only others on the machine joined."""


class Station:
    """One group on one interface; OSError when that interface can't have it."""

    def __init__(self, group: str, port: int, index: int) -> None:
        self.version = ip_address(group).version
        self._index = index
        self._packed = ip_address(group).packed
        self._address: tuple[str, int] | tuple[str, int, int, int] = (group, port)
        family = socket.AF_INET
        if self.version == 6:
            self._address = (group, port, 0, index)
            family = socket.AF_INET6
        self.hearing = socket.socket(family, socket.SOCK_DGRAM)
        self.speaking = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._prepare_hearing()
            self._prepare_speaking()
        except BaseException:
            self.close()
            raise

    def _prepare_hearing(self) -> None:
        hearing = self.hearing
        hearing.setblocking(False)
        hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if self.version == 6:
            hearing.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        hearing.bind(self._address)
        if self.version == 6:
            request = self._packed + struct.pack("@I", self._index)
            hearing.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        else:
            request = self._packed + bytes(4) + struct.pack("@i", self._index)
            hearing.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            with suppress(OSError):  # elsewhere announcements are heard once per interface, which does no harm
                hearing.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)

    def _prepare_speaking(self) -> None:
        speaking = self.speaking
        speaking.setblocking(False)
        if self.version == 6:
            speaking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, self._index)
            speaking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOPS)
            speaking.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        else:
            request = bytes(8) + struct.pack("@i", self._index)
            speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
            speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _HOPS)
            speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)

    def send(self, datagram: bytes) -> bool:
        """Say it; whether the interface took it. One that is down now may be up the next time."""
        try:
            self.speaking.sendto(datagram, self._address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close both sockets."""
        self.hearing.close()
        self.speaking.close()


Stations = dict[tuple[str, int], Station]
"""Open ones, by group and number of the interface."""


def refresh(
    open_ones: Stations, groups: Sequence[str], port: int, interfaces: Sequence[str]
) -> tuple[Stations, Stations]:
    """Open all groups on all interfaces that can have them; what was opened now, and what must be closed.

    DiscoveryError when nothing is open, nor can be.
    """
    wanted = {(group, index): name for group in groups for index, name in _indexes(interfaces)}
    gone = {key: station for key, station in open_ones.items() if key not in wanted}
    new: Stations = {}
    trouble: list[str] = []
    for (group, index), name in wanted.items():
        if (group, index) in open_ones:
            continue
        try:
            new[group, index] = Station(group, port, index)
        except OSError as error:  # an interface that is down, or without an address of this family
            trouble.append(f"{group} on {name}: {error.strerror or error}")
    if not new and len(gone) == len(open_ones):
        reasons = "; ".join(trouble[:5])
        raise DiscoveryError(f"No multicast group can be used here ({reasons}); try another cluster.discovery.")
    return new, gone


def _indexes(interfaces: Sequence[str]) -> list[tuple[int, str]]:
    known = {name: index for index, name in socket.if_nameindex()}
    for name in interfaces:
        if name not in known:
            raise DiscoveryError(
                f"discovery.mcast.interfaces names {name!r}, which this machine does not have; there are "
                f"{', '.join(known)}."
            )
    return [(known[name], name) for name in (interfaces or known)]
