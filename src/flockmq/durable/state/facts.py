"""What nodes tell each other of the cluster state they have, in owned maps.

Key ``f/index``: eight bytes, the index of the last command applied there; then one byte, 1 when the node has a replica
of group 0.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from flockmq.gossip.maps import OwnedMaps
    from flockmq.gossip.member import Member

INDEX: Final = b"f/index"
_VALUE: Final = struct.Struct("<QB")


class Head:
    """How far a node is."""

    def __init__(self, index: int, has_replica: bool) -> None:
        self.index = index
        self.has_replica = has_replica


class Membership(Protocol):
    """Which nodes are alive."""

    def alive(self) -> list[int]:
        """The live nodes, this one among them."""


class Facts(Membership, Protocol):
    """What the cluster state needs of gossip."""

    def tell(self, index: int, has_replica: bool) -> None:
        """This node is so far."""

    def heads(self) -> dict[int, Head]:
        """How far the other live nodes say they are."""


class Seen(Protocol):
    """Members as gossip has them."""

    def alive(self) -> list[Member]:
        """The live members, this node among them."""


class MapFacts:
    """``Facts`` in owned maps."""

    def __init__(self, maps: OwnedMaps, swim: Seen, node: int) -> None:
        self._maps = maps
        self._swim = swim
        self._node = node
        self._told = b""

    def tell(self, index: int, has_replica: bool) -> None:
        """This node is so far."""
        value = _VALUE.pack(index, has_replica)
        if value != self._told:
            self._told = value
            self._maps.set(INDEX, value)

    def alive(self) -> list[int]:
        """The live nodes, this one among them."""
        return [member.node_id for member in self._swim.alive()]

    def heads(self) -> dict[int, Head]:
        """How far the other live nodes say they are; what can't be read is left out."""
        found: dict[int, Head] = {}
        for owner in self._maps.owners():
            value = self._maps.get(owner, INDEX) if owner != self._node else None
            if value is not None and len(value) == _VALUE.size:
                index, has_replica = _VALUE.unpack(value)
                found[owner] = Head(index, bool(has_replica))
        return found
