"""The tail of partitions whose replicas are elsewhere: committed batches are pushed here as they come.

```
 want(group, offset) --> OPEN at a replica, the leader first --> DATA --> Fed: deliver, drop repeats
        ^                     |  peer down, replica moved, END
        `---- the same offset at the next replica <-----------'
          GONE: all replicas are asked where the log begins (``locating``); beyond the offset: skip to there
```
The other side is ``feed_serving``. Positions are offsets, so nothing has to be agreed on when a feed goes over to
another replica. Why the tail is pushed and not fetched: ``docs/decisions/one-way-to-ask-a-log.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.durable.logs.feed_messages import (
    ACK,
    AT,
    CLOSE,
    DATA,
    FROM_END,
    GONE,
    LOST,
    OPEN,
    FeedMessage,
    decode_feed,
)
from flockmq.durable.logs.feed_serving import FeedServer
from flockmq.durable.logs.locating import REPLICAS
from flockmq.log.batch import BatchView
from flockmq.log.starts import EARLIEST, Start
from flockmq.peering.channels import FEEDS

if TYPE_CHECKING:
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.durable.logs.locating import Locating
    from flockmq.durable.logs.replica_peers import ReplicaPeers
    from flockmq.peering.calls import Calls
    from flockmq.peering.ports import Outbox
    from flockmq.tasks import Task

SILENCE_MS: Final = 2_000
"""How long a replica may take to answer before another one is asked."""
RETRY_MS: Final = 200
THOROUGH_MS: Final = 500
"""How often feeds that are well are looked at: there may be thousands."""


class Tail:
    """The feed of a partition's new batches."""

    def __init__(self, group: int, offset: int) -> None:
        self.group = group
        self.next = offset
        self.peer = 0
        self.number = 0
        self.is_open = False
        self.is_asking = False
        """Whether all replicas are being asked where the log begins."""
        self.asked_at = 0
        self.retry_at = 0
        self.tries = 0


class Fed(NamedTuple):
    """What a feed brought: batches, or (without) where it begins."""

    group: int
    offset: int
    batches: list[bytes]


class Feeds:
    """See the module."""

    def __init__(
        self,
        local: LocalLogs,
        peers: ReplicaPeers,
        locating: Locating,
        calls: Calls,
        outbox: Outbox,
        wake: Callable[[], None],
    ) -> None:
        self.server = FeedServer(local, outbox, locating.caught_up)
        self._peers = peers
        self._locating = locating
        self._tasks = calls.tasks
        self._outbox = outbox
        self._wake = wake
        self._number = 0
        self._tails: dict[int, Tail] = {}
        self._by_number: dict[int, Tail] = {}
        self._skipped: dict[int, int] = {}
        self._consumed: dict[int, int] = {}
        self._thorough_at = 0

    def want(self, group: int, offset: int, now: int) -> None:
        """Follow a partition from an offset on, ``FROM_END``: from its end. A feed that is there already goes on.

        A feed that begins behind the offset begins anew: one from the end, whose offset became known in another way.
        """
        tail = self._tails.get(group)
        if tail is None:
            tail = Tail(group, offset)
            self._tails[group] = tail
            self._open(tail, now)
        elif offset != FROM_END and group not in self._skipped and (tail.next == FROM_END or tail.next > offset):
            self._close(tail)
            tail.next = offset
            self._open(tail, now)

    def unwant(self, group: int) -> None:
        """Follow a partition no more."""
        tail = self._tails.pop(group, None)
        if tail is not None:
            self._close(tail)

    def wants(self, group: int) -> bool:
        """Whether a partition is followed."""
        return group in self._tails

    def take_skipped(self) -> dict[int, int]:
        """Partitions whose next records are gone from all replicas, each with the offset at which its feed goes on."""
        skipped = self._skipped
        if skipped:
            self._skipped = {}
        return skipped

    # --- the component ---

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link to a peer: feeds without a source may begin there."""
        self._peers.up(peer)
        for tail in self._tails.values():
            if not tail.peer:
                self._open(tail, now)

    def peer_down(self, peer: int, now: int) -> None:
        """Feeds of the peer end, feeds from it go on elsewhere."""
        self._peers.down(peer)
        self._consumed.pop(peer, None)
        self.server.peer_gone(peer)
        for tail in self._tails.values():
            if tail.peer == peer:
                self._lose(tail)
                self._open(tail, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """As when the link is lost, and no reader waits for what the peer may have."""
        self._peers.died(peer)
        self.peer_down(peer, now)

    def receive(self, peer: int, body: bytes, now: int) -> Fed | None:
        """A message of the other side; what there is to deliver."""
        message = decode_feed(body)
        if message is None:
            return None
        if message.kind in (OPEN, ACK, CLOSE):
            self.server.receive(peer, message)
            return None
        self._consumed[peer] = self._consumed.get(peer, 0) + message.size
        tail = self._by_number.get(message.feed)
        if tail is None or tail.peer != peer:
            return None  # of a feed that was closed meanwhile
        tail.asked_at = 0
        if message.kind == DATA:
            if message.batches:
                tail.next = max(tail.next, BatchView(message.batches[-1]).next_offset)
            return Fed(tail.group, tail.next, message.batches)
        if message.kind != AT:
            self._on_end(tail, message, now)
            return None
        tail.is_open = True
        tail.tries = 0
        if tail.next != FROM_END:
            return None
        tail.next = message.offset
        return Fed(tail.group, message.offset, [])

    def _on_end(self, tail: Tail, message: FeedMessage, now: int) -> None:
        self._lose(tail)
        tail.tries += 1
        tail.retry_at = now + RETRY_MS
        if message.why == LOST:
            self._skip(tail, message.offset)
            self._open(tail, now)
        elif message.why == GONE and not tail.is_asking:
            self._tasks.start("where a log begins", self._ask_beginning(tail))

    def _ask_beginning(self, tail: Tail) -> Task[None]:
        tail.is_asking = True
        try:
            found = yield from self._locating.locate([tail.group], Start(EARLIEST), REPLICAS)
        finally:
            tail.is_asking = False
        if tail.peer or self._tails.get(tail.group) is not tail:
            return  # open again, or not wanted any more
        if tail.group in found:
            if found[tail.group].first > tail.next:
                self._skip(tail, found[tail.group].first)
            self._open(tail, self._tasks.now)

    def _skip(self, tail: Tail, offset: int) -> None:
        tail.next = offset
        self._skipped[tail.group] = offset
        self._wake()

    def tick(self, now: int) -> None:
        """Try again what did not work, look whether replicas have moved."""
        is_thorough = now >= self._thorough_at
        if is_thorough:
            self._thorough_at = now + THOROUGH_MS
        for tail in self._tails.values():
            if tail.is_open and tail.peer and not is_thorough:
                continue
            has_moved = tail.peer and not self._peers.holds(tail.peer, tail.group)
            is_silent = tail.asked_at and now - tail.asked_at >= SILENCE_MS
            if has_moved or is_silent:
                tail.tries += 1
                self._close(tail)
            if not tail.peer and now >= tail.retry_at and not tail.is_asking:
                self._open(tail, now)
        self.server.tick(now)

    def flush(self) -> None:
        """Send what other nodes wait for, and say what was worked off."""
        for peer, size in self._consumed.items():
            if size:
                self._outbox.send(peer, FEEDS, FeedMessage(ACK, offset=size).encode())
        self._consumed.clear()
        if self.server.flush():
            self._wake()

    # --- within ---

    def _open(self, tail: Tail, now: int) -> None:
        peers = self._peers.linked(tail.group)
        if not peers:
            tail.retry_at = now + RETRY_MS
            return
        self._number += 1
        tail.peer = peers[tail.tries % len(peers)]
        tail.number = self._number
        tail.is_open = False
        tail.asked_at = now
        self._by_number[tail.number] = tail
        self._outbox.send(tail.peer, FEEDS, FeedMessage(OPEN, tail.number, tail.group, tail.next).encode())

    def _close(self, tail: Tail) -> None:
        if tail.peer:
            self._outbox.send(tail.peer, FEEDS, FeedMessage(CLOSE, tail.number).encode())
        self._lose(tail)

    def _lose(self, tail: Tail) -> None:
        self._by_number.pop(tail.number, None)
        tail.peer = 0
        tail.number = 0
        tail.asked_at = 0
