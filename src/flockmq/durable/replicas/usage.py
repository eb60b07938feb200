"""What namespaces with limits use on each node, told to the others in owned maps: limits are for all nodes together.

Key ``f/ns/NAME``: connections and sessions there, four bytes each; then eight bytes, how many bytes its durable topics
store in partitions which that node leads (0 when they are not limited). A node that has nothing of these tells nothing.

```
 once a second   this node's figures --> its map --gossip--> other nodes' maps --> Space.tell_elsewhere
```
So a limit can be passed by what begins everywhere within about a second. A namespace that stores as much as it may is
named in ``Spaces.full``: that is all that publishing looks at. Where a leader has changed, two nodes count a partition
for a moment; so it has to be too much for some seconds, unless what this node has is too much alone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.durable.replicas.stored import StoredBytes
    from flockmq.gossip.maps import OwnedMaps
    from flockmq.session.space import Space, Spaces

KEY: Final = b"f/ns/"
EVERY_MS: Final = 1_000
FULL_ROUNDS: Final = 3
_VALUE: Final = struct.Struct("<IIQ")
_MOST: Final = 0xFFFFFFFF


class NamespaceUsage:
    """Tells and hears the figures of one node."""

    def __init__(self, maps: OwnedMaps, node: int, spaces: Spaces, stored: StoredBytes) -> None:
        self._maps = maps
        self._node = node
        self._spaces = spaces
        self._stored = stored
        self._told: dict[str, bytes] = {}
        self._over: dict[str, int] = {}
        """For how many rounds a namespace has been full."""
        self._due_at = 0
        # This node may have been in another cluster just now, and its map is still the same.
        for key in [key for key, _ in maps.items(node) if key.startswith(KEY)]:
            maps.delete(key)

    def tick(self, now: int) -> None:
        """Tell and hear, once a second."""
        self._stored.go_on()
        if now < self._due_at:
            return
        self._due_at = now + EVERY_MS
        limited = [space for space in self._spaces.all() if space.is_limited()]
        names = {space.name for space in limited}
        for name in [one for one in self._told if one not in names]:
            self._maps.delete(KEY + name.encode())
            del self._told[name]
        self._stored.begin({space.name for space in limited if space.stored_bytes_max})
        for space in limited:
            space.stored_bytes = self._stored.of(space.name)
            self._tell(space)
            self._hear(space)
        self._over = {space.name: self._over.get(space.name, 0) + 1 for space in limited if space.is_full()}
        self._spaces.full = {
            space.name.encode()
            for space in limited
            if self._over.get(space.name, 0) >= FULL_ROUNDS or 0 < space.stored_bytes_max <= space.stored_bytes
        }

    def _tell(self, space: Space) -> None:
        value = b""
        if space.connections or space.sessions or space.stored_bytes:
            value = _VALUE.pack(min(space.connections, _MOST), min(space.sessions, _MOST), space.stored_bytes)
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
        stored_bytes = 0
        nodes = 0
        key = KEY + space.name.encode()
        for owner in self._maps.owners():
            value = self._maps.get(owner, key) if owner != self._node else None
            if value is not None and len(value) == _VALUE.size:
                found = _VALUE.unpack(value)
                connections += found[0]
                sessions += found[1]
                stored_bytes += found[2]
                nodes += found[0] > 0
        space.tell_elsewhere(connections, sessions, nodes, stored_bytes)
