"""Partitions whose replicas are elsewhere: their tail is followed, pieces of their history are fetched.

```
 want(group, offset) --> OPEN at a replica, the leader first --> DATA --> sink.fed: deliver, drop repeats
        ^                     |  peer down, replica moved, END
        `---- the same offset at the next replica <-----------'
 fetch(group, offset) -> OPEN once --> a chunk, kept for whoever reads there; bounded
 ask(group, what) -----> a question to replicas: where does it begin and end, what was its offset at a time
```
The component of channel FEEDS; the other side is ``feed_serving``. Positions are offsets, so nothing has to be agreed
on when a feed goes over to another replica.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from flockmq.durable.feed_messages import (
    AT,
    DATA,
    END,
    GONE,
    LATEST,
    FeedMessage,
    decode_feed,
    encode_ack,
    encode_close,
    encode_open,
)
from flockmq.durable.feed_serving import FeedServer
from flockmq.durable.partition_log import GoneBefore, PartitionLogs, Placement, Unreadable
from flockmq.log.batch import BatchView
from flockmq.peering.channels import FEEDS

if TYPE_CHECKING:
    from flockmq.peering.calls import Calls
    from flockmq.peering.ports import Outbox

POSITION: Final = 40
"""A question: where does a partition begin and end, and which offset is meant by this?"""
FROM_FIRST: Final = 0
FROM_END: Final = 1
FROM_OFFSET: Final = 2
FROM_TIME: Final = 3

SILENCE_MS: Final = 2_000
"""How long a replica may take to answer before another one is asked."""
RETRY_MS: Final = 200
UNSETTLED: Final = -1
"""Instead of the oldest offset: a replica that lives has not been asked."""
CHUNKS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Pieces of history kept for those who read them."""
FETCHES_MAX: Final = 64
"""That are under way at once."""
_ASK: Final = struct.Struct("<QBQ")
_TOLD: Final = struct.Struct("<QQQ")


class Told:
    """What the leader of a partition says of it."""

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
        self.node_id = node_id
        self.logs = logs
        self.placement = placement
        self.outbox = outbox
        self.calls = calls
        self.sink = sink
        self.caught_up = caught_up
        self.server = FeedServer(logs, outbox, caught_up)
        self.wake: Callable[[], None] = do_nothing
        self.gaps = 0
        """How often something that was to be delivered was gone from all logs."""
        self._up: dict[int, None] = {}
        self._dead: set[int] = set()
        self._number = 0
        self._tails: dict[int, Tail] = {}
        self._fetches: dict[tuple[int, int], Tail] = {}
        self._by_number: dict[int, Tail] = {}
        self._chunks: dict[tuple[int, int], Chunk] = {}
        self._chunks_bytes = 0
        self._gone: dict[int, int] = {}
        self._consumed: dict[int, int] = {}
        calls.serve(POSITION, self._tell)

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

    # --- questions ---

    def ask(self, group: int, what: int, value: int, reply: Callable[[Told | None], None], now: int) -> None:
        """Ask other replicas; None: nobody could tell, ask again later.

        Where a partition ends only its leader knows. Where it begins may differ: a replica that was refilled lacks what
        is older, so all are asked and the oldest answer counts.
        """
        asks_all = what != FROM_END
        peers = self._candidates(group)
        if asks_all:  # those that can't be reached, too: that an answer is missing has to be noticed
            live = [one for one in self.placement.replicas_of(group) if one != self.node_id and one not in self._dead]
            peers += [one for one in live if one not in peers]
        question = Question(_ASK.pack(group, what, value), peers, asks_all, reply)
        own = self.locate(group, what, value)
        if own is not None:
            question.take(own)
        self._ask_next(question, now, None, False)

    def _ask_next(self, question: Question, now: int, found: bytes | None, is_answer: bool = True) -> None:
        if found is not None and len(found) == _TOLD.size:
            offset, first, end = _TOLD.unpack(found)
            question.take(Told(offset, first, end))
        elif is_answer:
            question.is_missing = True
        if question.peers and (question.asks_all or question.told is None):
            peer = question.peers.pop(0)
            self.calls.ask(peer, POSITION, question.body, partial(self._ask_next, question, now), now)
        else:
            question.reply(question.outcome())

    def _tell(self, body: bytes) -> bytes:
        """Answer such a question, if the replica here can; nothing otherwise."""
        if len(body) != _ASK.size:
            return b""
        group, what, value = _ASK.unpack(body)
        told = self.locate(group, what, value)
        return _TOLD.pack(told.offset, told.first, told.end) if told is not None else b""

    def locate(self, group: int, what: int, value: int) -> Told | None:
        """The answer of the replica here; None when there is none, or (for the end) unless it leads."""
        logs = self.logs
        if not logs.is_here(group) or group not in self.caught_up or (what == FROM_END and not logs.is_leader(group)):
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

    # --- the component ---

    def peer_up(self, peer: int, now: int) -> None:
        """Somebody who may have replicas, or want feeds."""
        self._up[peer] = None
        self._dead.discard(peer)
        for tail in self._all():
            if not tail.peer:
                self._open(tail, now)

    def peer_down(self, peer: int, now: int) -> None:
        """Its feeds end, ours go on elsewhere."""
        self._up.pop(peer, None)
        self._consumed.pop(peer, None)
        self.server.peer_gone(peer)
        for tail in self._all():
            if tail.peer == peer:
                self._lose(tail)
                self._open(tail, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """As when the link is lost, and nobody waits for what it may have."""
        self._dead.add(peer)
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
        if message.why == GONE:
            tail.gone_at[peer] = message.offset
            oldest = self._oldest(tail)
            if oldest != UNSETTLED:
                self._skip(tail, oldest, now)
            elif any(one not in tail.gone_at for one in self._candidates(tail.group)):
                self._open(tail, now)

    def _oldest(self, tail: Tail) -> int:
        """Where the log begins, if all replicas that live say that what a feed wants is gone; else ``UNSETTLED``."""
        found = tail.gone_at
        if self.logs.is_here(tail.group) and self.logs.first(tail.group) > tail.next:
            found[self.node_id] = self.logs.first(tail.group)
        for replica in self.placement.replicas_of(tail.group):
            if replica not in found and replica not in self._dead:
                return UNSETTLED
        return min(found.values()) if found else UNSETTLED

    def _skip(self, tail: Tail, oldest: int, now: int) -> None:
        tail.gone_at.clear()
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
        for tail in self._all():
            has_moved = tail.peer and tail.peer not in self.placement.replicas_of(tail.group)
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

    def _candidates(self, group: int) -> list[int]:
        """Nodes with a replica that can be spoken to, the leader first."""
        leader = self.logs.leader_of(group)
        peers = [peer for peer in self.placement.replicas_of(group) if peer in self._up and peer != self.node_id]
        return sorted(peers, key=lambda peer: (peer != leader, peer))

    def _open(self, tail: Tail, now: int) -> None:
        peers = self._candidates(tail.group)
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
