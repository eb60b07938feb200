"""What membership needs from the node it is part of."""

from __future__ import annotations

from typing import Protocol


class Digests(Protocol):
    """The owned maps, whose digest travels with datagrams."""

    def digest(self) -> bytes:
        """All maps in at most 64 bytes."""

    def on_digest(self, peer: int, digest: bytes, now: int) -> None:
        """A live member sent its digest; FlockError: it can't be read."""


class Outbox(Protocol):
    """Where is left what goes to other nodes over links."""

    def send(self, peer: int, channel: int, body: bytes) -> None:
        """Say this to a peer with the frame of this turn; it is lost when the link is down, or breaks."""
