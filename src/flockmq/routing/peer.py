"""Another node, as the router sees it: which filters lead there, and what was said to it in this loop turn.

```
 route(run) --> put(head, wire) --> out: everything of this turn, in order --> one part of the turn's frame
                      |                 `--> QoS 1 and 2 are kept until the peer acknowledges: a broken link loses none
                      `-- full: dropped and counted
```
A peer is a connection in all that has to do with congestion. As a subscriber it slows publishers down: its buffers are
half full, or it asked for it. As a publisher it is slowed down by our subscribers, which the peer is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.session.bounds import Bounds
from flockmq.session.connection import CONNECTED, Connection

if TYPE_CHECKING:
    from flockmq.node.settings import Limits
    from flockmq.session.stats import Stats

RUN_OVERHEAD_BYTES: Final = 100
"""What a run costs beside its bytes while it waits: small ones must not slip under the bounds."""
RUN_BYTES_MAX: Final = 100_000_000
"""Largest run that is sent to another node: frames on links have their limit."""


class Peer(Connection):
    """Another node. ``number`` must be one that no client's connection has."""

    def __init__(
        self, node_id: int, name: str, number: int, limits: Limits, now: int, dirty: list[Connection], stats: Stats
    ) -> None:
        super().__init__(number, "peer", Bounds(limits), name, now, dirty, stats)
        self.phase = CONNECTED
        self.node_id = node_id
        self.name = name
        self.linked = False
        """Both sides have said where they stand: what is written now arrives, or the link breaks."""
        self.asked_to_wait = False
        """The peer's subscribers can't keep up: publishers to it wait."""
        self.kept_runs = 0
        """Runs in ``out`` (two pieces each) that have to be sent again if the link breaks."""
        self.kept_bytes = 0
        """Everything of QoS 1 and 2 that the peer has not acknowledged, that of this turn included."""
        self.kept_max = self.bounds.write_bytes_max
        self.routes: set[bytes] = set()
        """Filters that lead there."""
        self.shares: set[tuple[bytes, bytes]] = set()
        """Shared groups with members there: group, filter."""
        self.dropped_kept = 0
        """QoS 1 and 2 messages that found the buffer full; ``dropped`` counts those of QoS 0, also without a link."""

    def put(self, head: bytes, wire: bytes, qos: int, count: int) -> bool:
        """Have a run sent with this turn's frame; False when there is no room for it, or at QoS 0 no link."""
        size = len(head) + len(wire)
        if qos:
            kept_bytes = self.kept_bytes + size + RUN_OVERHEAD_BYTES
            if kept_bytes > self.kept_max or size > RUN_BYTES_MAX:
                self.dropped_kept += count
                return False
            self.kept_bytes = kept_bytes
            self.kept_runs += 1
        elif (
            not self.linked
            or self.out_bytes + size + RUN_OVERHEAD_BYTES > self.bounds.write_bytes_max
            or size > RUN_BYTES_MAX
        ):
            self.dropped += count
            return False
        self.out.append(head)
        self.out.append(wire)
        self.out_bytes += size + RUN_OVERHEAD_BYTES
        self.messages_out += count
        if not self.dirty:
            self.dirty = True
            self.dirty_connections.append(self)
        return True

    def is_full(self) -> bool:
        """Whether publishers should wait for this peer."""
        return (
            self.asked_to_wait
            or self.out_bytes * 2 > self.bounds.write_bytes_max
            or self.kept_bytes * 2 > self.kept_max
        )

    def has_room(self) -> bool:
        """Whether the publishers that waited may go on."""
        return (
            not self.asked_to_wait
            and not self.blocked
            and self.out_bytes * 4 <= self.bounds.write_bytes_max
            and self.kept_bytes * 4 <= self.kept_max
        )

    def take_out(self, pieces: int) -> None:
        """Forget the first pieces of ``out`` (two for each run), which were sent or are kept elsewhere."""
        out = self.out[pieces:]
        self.out = out
        size = 0
        kept = 0
        for index in range(1, len(out), 2):
            size += len(out[index - 1]) + len(out[index]) + RUN_OVERHEAD_BYTES
            if out[index][0] & 6:
                kept += 1
        self.out_bytes = size
        self.kept_runs = kept
