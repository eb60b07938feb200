"""Partitions whose replicas are elsewhere: their tail is followed, pieces of their history are fetched.

```
 want(group, offset) --> OPEN at a replica, the leader first --> DATA --> sink.fed: deliver, drop repeats
        ^                     |  peer down, replica moved, END
        `---- the same offset at the next replica <-----------'
 fetch(group, offset) -> OPEN once --> a chunk, kept for whoever reads there; bounded
```
The component of channel FEEDS; the other side is ``feed_serving``. Positions are offsets, so nothing has to be agreed
on when a feed goes over to another replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.durable.logs.feed_messages import (
    AT,
    DATA,
    END,
    GONE,
    LATEST,
    NOT_HERE,
    FeedMessage,
    decode_feed,
    encode_ack,
    encode_close,
    encode_open,
)
from flockmq.durable.logs.feed_serving import FeedServer
from flockmq.durable.logs.partition_log import GoneBefore, PartitionLogs, Placement
from flockmq.durable.logs.positions import Positions, ReplicaPeers
from flockmq.log.batch import BatchView
from flockmq.peering.channels import FEEDS

if TYPE_CHECKING:
    from flockmq.peering.calls import Calls
    from flockmq.peering.ports import Outbox

SILENCE_MS: Final = 2_000
"""How long a replica may take to answer before another one is asked."""
RETRY_MS: Final = 200
THOROUGH_MS: Final = 500
"""How often feeds that are well are looked at: there may be thousands."""
UNSETTLED: Final = -1
"""Instead of the oldest offset: a replica that lives has not been asked."""
CHUNKS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Pieces of history kept for those who read them."""
FETCHES_MAX: Final = 64
"""That are under way at once."""


class Sink(Protocol):
    """Whoever gets what feeds bring."""

    def fed_at(self, group: int, offset: int, now: int) -> None:
        """A feed that was to begin at the end begins here."""

    def fed(self, group: int, batches: list[bytes], now: int) -> None:
        """The next committed batches; may be repeats."""

    def fed_gone(self, group: int, first: int, now: int) -> None:
        """What comes next is gone; the log begins here."""


class Tail:
    """The feed of a partition's new batches, or one chunk of old ones."""

    def __init__(self, group: int, offset: int, once: bool) -> None:
        self.group = group
        self.next = offset
        self.once = once
        self.peer = 0
        self.number = 0
        self.is_open = False
        self.asked_at = 0
        self.retry_at = 0
        self.tries = 0
        self.gone_at: dict[int, int] = {}
        """Replicas that said that what is wanted is gone, each with the oldest offset it has."""
        self.not_there: set[int] = set()
        """Nodes that have no replica, or none that works."""
        self.chunk: list[bytes] = []


class Chunk:
    """A piece of history."""

    def __init__(self, start: int, batches: list[bytes]) -> None:
        self.start = start
        self.end = BatchView(batches[-1]).next_offset
        self.batches = batches
        self.size = sum([len(batch) for batch in batches])


class Feeds:
    """See the module."""

    def __init__(
        self,
        node_id: int,
        logs: PartitionLogs,
        placement: Placement,
        outbox: Outbox,
        calls: Calls,
        sink: Sink,
        caught_up: set[int],
    ) -> None:
        self.logs = logs
        self.outbox = outbox
        self.sink = sink
        self.peers = ReplicaPeers(node_id, logs, placement)
        self.positions = Positions(logs, self.peers, calls, caught_up)
        self.server = FeedServer(logs, outbox, caught_up)
        self.wake: Callable[[], None] = do_nothing
        self.gaps = 0
        """How often something that was to be delivered was gone from all logs."""
        self._number = 0
        self._tails: dict[int, Tail] = {}
        self._fetches: dict[tuple[int, int], Tail] = {}
        self._by_number: dict[int, Tail] = {}
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self._chunks_bytes = 0
        self._gone: dict[int, int] = {}
        self._consumed: dict[int, int] = {}
        self._thorough_at = 0

    # --- the tail ---

    def want(self, group: int, offset: int, now: int) -> None:
        """Follow a partition from an offset on, ``LATEST``: from its end. A feed that is there already goes on."""
        if group not in self._tails:
            tail = Tail(group, offset, False)
            self._tails[group] = tail
            self._open(tail, now)

    def unwant(self, group: int) -> None:
        """No more of this partition."""
        tail = self._tails.pop(group, None)
        if tail is not None:
            self._close(tail)

    def wants(self, group: int) -> bool:
        """Whether a partition is followed."""
        return group in self._tails

    # --- history ---

    def fetch(self, group: int, offset: int, now: int) -> list[bytes] | None:
        """Batches from the one that holds ``offset`` on; None: they are on their way. GoneBefore: they are nowhere."""
        for (chunk_group, _), chunk in self._chunks.items():
            if chunk_group == group and chunk.start <= offset < chunk.end:
                return chunk.batches
        first = self._gone.pop(group, 0)
        if offset < first:
            raise GoneBefore(group, offset, first)
        if (group, offset) not in self._fetches and len(self._fetches) < FETCHES_MAX:
            fetch = Tail(group, offset, True)
            oldest = self._oldest(fetch)
            if oldest != UNSETTLED:
                raise GoneBefore(group, offset, oldest)
            self._fetches[group, offset] = fetch
            self._open(fetch, now)
        return None

    def _keep(self, tail: Tail) -> None:
        if not tail.chunk:
            return
        chunk = Chunk(min(tail.next, BatchView(tail.chunk[0]).base_offset), tail.chunk)
        while self._chunks and self._chunks_bytes + chunk.size > CHUNKS_BYTES_MAX:
            oldest = next(iter(self._chunks))
            self._chunks_bytes -= self._chunks.pop(oldest).size
        old = self._chunks.pop((tail.group, chunk.start), None)
        if old is not None:
            self._chunks_bytes -= old.size
        self._chunks[tail.group, chunk.start] = chunk
        self._chunks_bytes += chunk.size

    # --- the component ---

    def peer_up(self, peer: int, now: int) -> None:
        """Somebody who may have replicas, or want feeds."""
        self.peers.up[peer] = None
        self.peers.dead.discard(peer)
        for tail in self._all():
            if not tail.peer:
                self._open(tail, now)

    def peer_down(self, peer: int, now: int) -> None:
        """Its feeds end, ours go on elsewhere."""
        self.peers.up.pop(peer, None)
        self._consumed.pop(peer, None)
        self.server.peer_gone(peer)
        for tail in self._all():
            if tail.peer == peer:
                self._lose(tail)
                self._open(tail, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """As when the link is lost, and nobody waits for what it may have."""
        self.peers.dead.add(peer)
        self.peer_down(peer, now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """What the other side says."""
        message = decode_feed(body)
        if message is None:
            return
        if message.kind not in (AT, DATA, END):
            self.server.receive(peer, message)
            return
        self._consumed[peer] = self._consumed.get(peer, 0) + message.size
        tail = self._by_number.get(message.feed)
        if tail is None or tail.peer != peer:
            return  # of a feed that was closed meanwhile
        tail.asked_at = 0
        if message.kind == AT:
            self._on_at(tail, message, now)
        elif message.kind == END:
            self._on_end(tail, message, now)
        elif tail.once:
            tail.chunk += message.batches
        else:
            tail.next = max(tail.next, BatchView(message.batches[-1]).next_offset) if message.batches else tail.next
            self.sink.fed(tail.group, message.batches, now)

    def _on_at(self, tail: Tail, message: FeedMessage, now: int) -> None:
        tail.is_open = True
        tail.tries = 0
        tail.gone_at.clear()
        tail.not_there.clear()
        if tail.next == LATEST:
            tail.next = message.offset
            self.sink.fed_at(tail.group, message.offset, now)

    def _on_end(self, tail: Tail, message: FeedMessage, now: int) -> None:
        peer = tail.peer
        self._lose(tail)
        if tail.once and tail.chunk:
            del self._fetches[tail.group, tail.next]
            self._keep(tail)
            self.wake()
            return
        tail.tries += 1
        tail.retry_at = now + RETRY_MS
        if message.why == NOT_HERE:
            tail.not_there.add(peer)
        if message.why == GONE or (message.why == NOT_HERE and tail.gone_at):
            if message.why == GONE:
                tail.gone_at[peer] = message.offset
            oldest = self._oldest(tail)
            if oldest != UNSETTLED:
                self._skip(tail, oldest, now)
            elif any(one not in tail.gone_at for one in self.peers.of(tail.group)):
                self._open(tail, now)

    def _oldest(self, tail: Tail) -> int:
        """Where the log begins, if all replicas that live say that what a feed wants is gone; else ``UNSETTLED``."""
        found = tail.gone_at
        if self.logs.is_here(tail.group) and self.logs.first(tail.group) > tail.next:
            found[self.peers.node_id] = self.logs.first(tail.group)
        for peer in self.peers.living(tail.group):
            if peer not in found and peer not in tail.not_there:
                return UNSETTLED
        return min(found.values()) if found else UNSETTLED

    def _skip(self, tail: Tail, oldest: int, now: int) -> None:
        tail.gone_at.clear()
        tail.not_there.clear()
        tail.tries = 0
        if tail.once:
            del self._fetches[tail.group, tail.next]
            self._gone[tail.group] = oldest
            self.wake()
            return
        self.gaps += 1
        tail.next = oldest
        self.sink.fed_gone(tail.group, oldest, now)
        self._open(tail, now)

    def tick(self, now: int) -> None:
        """Try again what did not work, look whether replicas have moved."""
        is_thorough = now >= self._thorough_at
        if is_thorough:
            self._thorough_at = now + THOROUGH_MS
        for tail in self._all():
            if tail.is_open and tail.peer and not is_thorough:
                continue
            has_moved = tail.peer and tail.peer not in self.peers.placement.replicas_of(tail.group)
            is_silent = tail.asked_at and now - tail.asked_at >= SILENCE_MS
            if has_moved or is_silent:
                tail.tries += 1
                self._close(tail)
            if not tail.peer and now >= tail.retry_at:
                self._open(tail, now)
        self.server.tick(now)

    def flush(self, now: int) -> None:  # noqa: ARG002  (the shape of a component)
        """Send what others wait for, and say what was worked off."""
        for peer, size in self._consumed.items():
            if size:
                self.outbox.send(peer, FEEDS, encode_ack(size))
        self._consumed.clear()
        if self.server.flush():
            self.wake()

    # --- within ---

    def _all(self) -> list[Tail]:
        return [*self._tails.values(), *self._fetches.values()]

    def _open(self, tail: Tail, now: int) -> None:
        peers = self.peers.of(tail.group)
        if not peers:
            tail.retry_at = now + RETRY_MS
            return
        peers = [one for one in peers if one not in tail.gone_at] or peers
        self._number += 1
        tail.peer = peers[tail.tries % len(peers)]
        tail.number = self._number
        tail.is_open = False
        tail.asked_at = now
        tail.chunk = []
        self._by_number[tail.number] = tail
        self.outbox.send(tail.peer, FEEDS, encode_open(tail.number, tail.group, tail.next, tail.once))

    def _close(self, tail: Tail) -> None:
        if tail.peer:
            self.outbox.send(tail.peer, FEEDS, encode_close(tail.number))
        self._lose(tail)

    def _lose(self, tail: Tail) -> None:
        self._by_number.pop(tail.number, None)
        tail.peer = 0
        tail.number = 0
        tail.asked_at = 0


def do_nothing() -> None:
    """What the driver has yet to fill in."""
