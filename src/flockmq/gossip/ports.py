"""What membership needs from the node it is part of."""

from __future__ import annotations

from typing import Protocol


class Outbox(Protocol):
    """Where is left what goes to other nodes over links."""

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """Say this to a peer with the frame of this turn; it is lost when the link is down, or breaks."""
