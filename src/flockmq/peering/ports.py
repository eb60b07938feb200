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
    """Where components leave what they have to say to other nodes."""

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """Say this to a peer with the frame of this turn; it is lost when the link is down, or breaks."""


class Component(Protocol):
    """A part of a node that talks to its like on other nodes over one channel."""

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link to this peer now; nothing that was said before is known to have arrived."""

    def peer_down(self, peer: int, now: int) -> None:
        """The link to this peer is lost; it may live."""

    def peer_dead(self, peer: int, now: int) -> None:
        """This peer is dead, or has left."""

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """What the peer's component said; RemoteProtocolError or FlockError ends the link."""

    def tick(self, now: int) -> None:
        """Time passes; called about every 100 ms."""

    def flush(self, now: int) -> None:
        """A loop turn ends: say what was collected in it."""


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
        """The version of the own map that a peer has said to have applied."""
