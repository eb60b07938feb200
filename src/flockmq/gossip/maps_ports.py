"""What owned maps need from the node around them."""

from __future__ import annotations

from typing import Protocol


class Outbox(Protocol):
    """Where messages to peers are left."""

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """Say this to a peer with the frame of this turn, after all that was said before; lost when the link is."""
