"""Questions about partitions to the nodes that have them: where does one begin and end, which offset was it at a time?

```
 ask --> the replica here, then peers with a replica, the leader first --> Told
           the end: only the leader knows it
           the rest: all are asked, the oldest answer counts, for a replica that was refilled lacks what is older
```
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.durable.logs.partition_log import PartitionLogs, Placement, Unreadable
from flockmq.peering.kinds import POSITION

if TYPE_CHECKING:
    from flockmq.peering.calls import Calls

FROM_FIRST: Final = 0
FROM_END: Final = 1
FROM_OFFSET: Final = 2
FROM_TIME: Final = 3
"""What is asked for."""

NOTHING: Final = b""
"""An answer: there is no replica here, or none that works."""
LATER: Final = b"?"
"""An answer: there is one, and it does not know yet where the others stand, or does not lead."""
_ASK: Final = struct.Struct("<QBQ")
_TOLD: Final = struct.Struct("<QQQ")


class Told:
    """What a replica says of its log."""

    def __init__(self, offset: int, first: int, end: int) -> None:
        self.offset = offset
        self.first = first
        self.end = end


class Question:
    """One that goes from replica to replica."""

    def __init__(self, body: bytes, peers: list[int], asks_all: bool, reply: Callable[[Told | None], None]) -> None:
        self.body = body
        self.peers = peers
        self.asks_all = asks_all
        self.reply = reply
        self.told: Told | None = None
        self.is_missing = False
        """Somebody did not answer."""

    def outcome(self) -> Told | None:
        """What is certain."""
        told = self.told
        if told is not None and self.asks_all and self.is_missing and told.offset <= told.first:
            return None  # who did not answer may have an older beginning
        return told

    def take(self, told: Told) -> None:
        """An answer; the oldest counts."""
        known = self.told
        if known is not None:
            told = Told(min(told.offset, known.offset), min(told.first, known.first), max(told.end, known.end))
        self.told = told


class ReplicaPeers:
    """The other nodes that have replicas, and whether they can be spoken to."""

    def __init__(self, node_id: int, logs: PartitionLogs, placement: Placement) -> None:
        self.node_id = node_id
        self.logs = logs
        self.placement = placement
        self.up: dict[int, None] = {}
        self.dead: set[int] = set()
        """Nobody waits for what these may have."""

    def of(self, group: int) -> list[int]:
        """Those that can be spoken to, the leader first."""
        leader = self.logs.leader_of(group)
        peers = [peer for peer in self.placement.replicas_of(group) if peer in self.up and peer != self.node_id]
        return sorted(peers, key=lambda peer: (peer != leader, peer))

    def living(self, group: int) -> list[int]:
        """The same, and behind them those that live and can't be reached from here now."""
        peers = self.of(group)
        for peer in self.placement.replicas_of(group):
            if peer != self.node_id and peer not in self.dead and peer not in peers:
                peers.append(peer)
        return peers


class Positions:
    """Asks, and answers others."""

    def __init__(self, logs: PartitionLogs, peers: ReplicaPeers, calls: Calls, caught_up: set[int]) -> None:
        self.logs = logs
        self.peers = peers
        self.calls = calls
        self.caught_up = caught_up
        """Partitions whose replica here knows where the others stand."""
        calls.serve(POSITION, self._tell)

    def ask(self, group: int, what: int, value: int, reply: Callable[[Told | None], None], now: int) -> None:
        """Ask; None: nobody could tell for certain, ask again later."""
        asks_all = what != FROM_END
        peers = self.peers.living(group) if asks_all else self.peers.of(group)
        question = Question(_ASK.pack(group, what, value), peers, asks_all, reply)
        own = self.locate(group, what, value)
        if own is not None:
            question.take(own)
        self._go_on(question, now)

    def _go_on(self, question: Question, now: int) -> None:
        if question.peers and (question.asks_all or question.told is None):
            peer = question.peers.pop(0)
            self.calls.ask(peer, POSITION, question.body).then(partial(self._answered, question, now))
        else:
            question.reply(question.outcome())

    def _answered(self, question: Question, now: int, found: bytes | None) -> None:
        if found is not None and len(found) == _TOLD.size:
            offset, first, end = _TOLD.unpack(found)
            question.take(Told(offset, first, end))
        elif found != NOTHING:
            question.is_missing = True
        self._go_on(question, now)

    def _tell(self, body: bytes) -> bytes:
        """Answer such a question: by the replica here, that there is none, or that it can't tell yet."""
        if len(body) != _ASK.size:
            return NOTHING
        group, what, value = _ASK.unpack(body)
        told = self.locate(group, what, value)
        if told is not None:
            return _TOLD.pack(told.offset, told.first, told.end)
        return LATER if self.logs.is_here(group) else NOTHING

    def locate(self, group: int, what: int, value: int) -> Told | None:
        """The answer of the replica here; None when there is none, or (for the end) unless it leads and
        knows all of it."""
        logs = self.logs
        if not logs.is_here(group) or group not in self.caught_up or (what == FROM_END and not logs.knows_all(group)):
            return None
        first, end = logs.first(group), logs.end(group)
        offset = end
        if what == FROM_FIRST:
            offset = first
        elif what == FROM_OFFSET:
            offset = min(value, end)
        elif what == FROM_TIME:
            try:
                offset = logs.offset_at(group, value)
            except Unreadable:
                return None
        return Told(offset, first, end)
