"""What namespaces with limits use on each node, told to the others in owned maps: limits are for all nodes together.

Key ``f/ns/NAME``: connections and sessions there, four bytes each. A node that has none of either tells nothing.

```
 once a second   this node's figures --> its map --gossip--> other nodes' maps --> Space.tell_elsewhere
```
So a limit can be passed by what begins everywhere within about a second.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.gossip.maps import OwnedMaps
    from flockmq.session.space import Space, Spaces

KEY: Final = b"f/ns/"
EVERY_MS: Final = 1_000
_VALUE: Final = struct.Struct("<II")
_MOST: Final = 0xFFFFFFFF


class NamespaceUsage:
    """Tells and hears the figures of one node."""

    def __init__(self, maps: OwnedMaps, node: int, spaces: Spaces) -> None:
        self._maps = maps
        self._node = node
        self._spaces = spaces
        self._told: dict[str, bytes] = {}
        self._due_at = 0

    def tick(self, now: int) -> None:
        """Tell and hear, once a second."""
        if now < self._due_at:
            return
        self._due_at = now + EVERY_MS
        limited = [space for space in self._spaces.all() if space.is_limited()]
        names = {space.name for space in limited}
        for name in [one for one in self._told if one not in names]:
            self._maps.delete(KEY + name.encode())
            del self._told[name]
        for space in limited:
            self._tell(space)
            self._hear(space)

    def _tell(self, space: Space) -> None:
        value = b""
        if space.connections or space.sessions:
            value = _VALUE.pack(min(space.connections, _MOST), min(space.sessions, _MOST))
        if value == self._told.get(space.name, b""):
            return
        key = KEY + space.name.encode()
        if value:
            self._maps.set(key, value)
            self._told[space.name] = value
        else:
            self._maps.delete(key)
            del self._told[space.name]

    def _hear(self, space: Space) -> None:
        connections = 0
        sessions = 0
        nodes = 0
        key = KEY + space.name.encode()
        for owner in self._maps.owners():
            value = self._maps.get(owner, key) if owner != self._node else None
            if value is not None and len(value) == _VALUE.size:
                found = _VALUE.unpack(value)
                connections += found[0]
                sessions += found[1]
                nodes += found[0] > 0
        space.tell_elsewhere(connections, sessions, nodes)
