"""The shapes that the parts of a clustered node have in common.

```
                 .--> Component (routes)     --.
 ClusterNode ----+--> Component (runs)       --+--> Outbox --> one frame per peer and turn
 frames, time    '--> Component (retained)   --'
```
"""

from __future__ import annotations

from typing import Protocol


class Outbox(Protocol):
    """Takes the parts that components send to other nodes."""

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """Send a part with the frame of this turn. The part is lost when the link is down, or breaks."""


class Component(Protocol):
    """A part of a node that talks to the same part of other nodes over one channel."""

    def peer_up(self, peer: int, now: int) -> None:
        """A link to this peer is up. Whether earlier parts arrived is not known."""

    def peer_down(self, peer: int, now: int) -> None:
        """The link to this peer is lost; it may live."""

    def peer_dead(self, peer: int, now: int) -> None:
        """This peer is dead, or has left."""

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """Read a part of the peer's component; RemoteProtocolError or FlockError ends the link."""

    def tick(self, now: int) -> None:
        """Time passes; called about every 100 ms."""

    def flush(self, now: int) -> None:
        """A loop turn ends: send the parts that were collected in it."""


class Maps(Protocol):
    """The owned maps, as far as routes need them."""

    @property
    def version(self) -> int:
        """Version of this node's own map."""

    def set(self, key: bytes, value: bytes) -> int:
        """Set a key of the own map; the version that this change has."""

    def delete(self, key: bytes) -> int:
        """Delete a key of the own map; the version that this change has."""

    def get(self, owner: int, key: bytes) -> bytes | None:
        """A value of a node's map."""

    def acknowledged(self, peer: int) -> int:
        """The version of the own map that a peer has acknowledged as applied."""
