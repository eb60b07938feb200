"""Whether the peer of a connection is still there: when to ask it, and when it has been silent for too long."""

from __future__ import annotations

from typing import Final

from flockmq.wire.frames import PING, frame_head

ASK: Final = frame_head(PING)
FINE: Final = 0
ASKS: Final = 1
"""Ask the peer now."""
SILENT: Final = 2
"""The peer was asked, and is lost."""


class Pulse:
    """One per connection."""

    def __init__(self) -> None:
        self.heard = True
        """Bytes came since the last beat."""
        self.quiet_since = 0
        self._asked_at = -1

    def beat(self, now: int, keepalive_ms: int, silence_ms: int, may_ask: bool) -> int:
        """Look at the connection: FINE, ASKS or SILENT."""
        if self.heard:
            self.heard = False
            self.quiet_since = now
            self._asked_at = -1
        elif self._asked_at >= 0:
            if now - self._asked_at >= silence_ms:
                return SILENT
        elif may_ask and now - self.quiet_since >= keepalive_ms:
            self._asked_at = now
            return ASKS
        return FINE

    def forgive(self) -> None:
        """This node did nothing for a while: bytes that the peer sent meanwhile are not read yet."""
        self._asked_at = -1
        self.heard = True
