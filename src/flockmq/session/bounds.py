"""Limits that every packet and message is held against, once for all connections of a listener.

``Limits`` is interpreted, and slow to read; copies of its values in each connection would be memory of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.node.settings import Limits

PACKET_BYTES_MAX: Final = 268_435_460
"""No packet is larger."""


class Bounds:
    """Limits of clients that are let in, or of strangers: those that are not let in yet."""

    def __init__(self, limits: Limits, of_clients: Bounds | None = None) -> None:
        """``of_clients``: these are limits of strangers; those hold once they are let in."""
        self.limits = limits
        self.of_clients = of_clients
        self.packet_bytes_max = limits.packet_bytes_max or PACKET_BYTES_MAX
        self.properties_max = limits.properties_max or PACKET_BYTES_MAX
        if of_clients is not None:
            self.packet_bytes_max = min(self.packet_bytes_max, limits.connect_bytes_max or PACKET_BYTES_MAX)
            self.properties_max = limits.connect_properties_max or PACKET_BYTES_MAX
        self.topic_bytes_max = limits.topic_bytes_max
        self.topic_levels_max = limits.topic_levels_max
        self.messages_per_s_max = limits.messages_per_s_max
        self.write_bytes_max = limits.write_bytes_max or 1 << 62


def stranger_bounds(limits: Limits) -> Bounds:
    """What holds for a connection that has just been opened."""
    return Bounds(limits, Bounds(limits))
