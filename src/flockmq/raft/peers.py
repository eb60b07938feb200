"""What a host knows of another node, and what it is about to say to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flockmq.raft.clock import TickClock
    from flockmq.raft.messages import Message

NEVER: Final = -(1 << 62)


class Peer:
    """One other node."""

    def __init__(self, node: int, elapsed: int) -> None:
        self.node = node
        self.boot = 0
        self.reachable = True
        """Heard within an election timeout. A node that was never heard gets that long to speak."""
        self.heard_at = elapsed
        self.heard_raw = NEVER
        """What the clock said at the last tick before that: not later than when it was."""
        self.steady_since = 0
        """The tick since when the node, in its present life, was heard without a gap."""
        self.was_restarted = False
        self.frame_seen = 0
        """Number of the latest frame that came."""
        self.frame_sent = 0
        self.out: list[Message] = []
        self.out_bytes = 0
        self.is_full = False
        """This turn's frame is large enough."""
        self.beat_is_due = False
        """Time to say something, if only that we live."""
        self.is_waiting = False
        """A message in the frame of this turn answers the peer."""

    def is_current(self, boot: int) -> bool:
        """Whether a frame is from the node as it runs now, as far as we know."""
        return boot >= self.boot

    def heard_frame(self, boot: int, number: int, clock: TickClock, gap_ms: int) -> bool:
        """A frame came; False when a later one came before it. ``gap_ms``: so long a silence is a gap."""
        if not 0 <= clock.raw - self.heard_raw < gap_ms:
            self.steady_since = clock.ticks
        if boot > self.boot:
            self.was_restarted = self.boot != 0
            self.boot = boot
            self.frame_seen = 0
            self.steady_since = clock.ticks
        self.heard_at = clock.elapsed
        self.heard_raw = clock.raw
        if number <= self.frame_seen:
            return False
        self.frame_seen = number
        return True

    def say(self, message: Message, size: int) -> None:
        """Put a message into this turn's frame."""
        self.out.append(message)
        self.out_bytes += size

    def has_something(self) -> bool:
        """Whether a frame is to be sent."""
        return bool(self.out) or self.beat_is_due

    def take(self) -> tuple[list[Message], int]:
        """This turn's messages, and the number of the frame."""
        messages = self.out
        self.out = []
        self.out_bytes = 0
        self.frame_sent += 1
        self.beat_is_due = False
        self.is_waiting = False
        return messages, self.frame_sent
