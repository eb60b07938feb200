"""The parts that a node sends to its linked peers in one turn: the ``Outbox`` of all components.

```
 component.send(peer, channel, body) --> parts of this turn, by peer --> take_frames(): one frame per peer
 consensus.send_now(...) -----------------------------------------------> ship(): before the turn ends
```
"""

from __future__ import annotations

from collections.abc import Callable

from flockmq.peering.channels import RAFT, part_head

Frames = list[tuple[int, list[bytes]]]
"""Peer, and the pieces of one frame for it."""


class Exchange:
    """See the module. ``ship`` sends a frame at once."""

    def __init__(self, ship: Callable[[int, list[bytes]], None]) -> None:
        self.clusters: dict[int, int] = {}
        """Linked peers, each with the cluster id that it told."""
        self.frames_dropped = 0
        """Parts for peers without a link."""
        self._ship = ship
        self._out: dict[int, list[bytes]] = {}

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """Put a part into the frame of this turn."""
        if peer not in self.clusters:
            self.frames_dropped += 1
            return
        parts = self._out.get(peer)
        if parts is None:
            parts = []
            self._out[peer] = parts
        parts.append(part_head(channel, len(body)))
        parts.append(body)

    def send_now(self, peer: int, body: bytes) -> None:
        """Send a part of consensus before the turn ends, together with all parts that were put before it."""
        self.send(peer, RAFT, body)
        pieces = self._out.pop(peer, None)
        if pieces is not None:
            self._ship(peer, pieces)

    def forget(self, peer: int) -> None:
        """The link to this peer is lost, and so are its parts of this turn."""
        self._out.pop(peer, None)

    def take_frames(self) -> Frames:
        """For each peer with news, the pieces of one frame."""
        if not self._out:
            return []
        frames = list(self._out.items())
        self._out = {}
        return frames
