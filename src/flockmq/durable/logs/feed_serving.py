"""The side of feeds that has the log: sends committed batches to nodes that have none, no faster than they take them.

```
 OPEN --> Feed: next offset --pump, once a turn--> DATA, within the window of its peer --> ACK opens the window
                  ^-- something was applied here
```
All feeds of a peer share one window of bytes, and take turns when it is small: a node that stands still costs no more
than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.logs.feed_messages import (
    ACK,
    CLOSE,
    DONE,
    GONE,
    LATEST,
    LEADERLESS,
    NOT_HERE,
    OPEN,
    FeedMessage,
    encode_at,
    encode_data,
    encode_end,
)
from flockmq.durable.logs.partition_log import PartitionLogs, Unreadable
from flockmq.errors import OffsetGone, RemoteProtocolError
from flockmq.log.batch import BatchView
from flockmq.mqtt import reasons
from flockmq.peering.channels import FEEDS

if TYPE_CHECKING:
    from flockmq.peering.ports import Outbox

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Sent to a peer and not yet worked off."""
CHUNK_BYTES: Final = 256 * 1024
"""Of one feed in a turn, unless a batch alone is larger."""
FEEDS_MAX: Final = 65_536
"""That one peer may have."""
LEADERLESS_MS: Final = 2_000
LOOK_MS: Final = 500
"""How often all feeds are looked at."""


class Feed:
    """What one peer gets of one partition."""

    def __init__(self, number: int, group: int, offset: int, once: bool) -> None:
        self.number = number
        self.group = group
        self.next = offset
        self.once = once


class FedPeer:
    """A peer with its feeds."""

    def __init__(self) -> None:
        self.feeds: dict[int, Feed] = {}
        self.unacknowledged = 0
        self.ready: dict[int, None] = {}
        """Feeds that may have something to say, in turn."""


class FeedServer:
    """All feeds that this node serves."""

    def __init__(self, logs: PartitionLogs, outbox: Outbox, caught_up: set[int]) -> None:
        self.logs = logs
        self.outbox = outbox
        self.caught_up = caught_up
        """Groups whose replica here has what was committed before this node started."""
        self.peers: dict[int, FedPeer] = {}
        self.bytes_sent = 0
        self._by_group: dict[int, set[tuple[int, int]]] = {}
        self._leaderless: dict[int, int] = {}
        self._look_at = 0

    def peer_gone(self, peer: int) -> None:
        """Its feeds end; it opens them anew."""
        gone = self.peers.pop(peer, None)
        if gone is not None:
            for feed in gone.feeds.values():
                self._forget(peer, feed)

    def receive(self, peer: int, message: FeedMessage) -> None:
        """What a consumer says."""
        fed = self.peers.setdefault(peer, FedPeer())
        if message.kind == OPEN:
            self._open(peer, fed, message)
        elif message.kind == ACK:
            fed.unacknowledged = max(fed.unacknowledged - message.size, 0)
        elif message.kind == CLOSE:
            feed = fed.feeds.pop(message.feed, None)
            fed.ready.pop(message.feed, None)
            if feed is not None:
                self._forget(peer, feed)

    def _open(self, peer: int, fed: FedPeer, message: FeedMessage) -> None:
        if len(fed.feeds) >= FEEDS_MAX or message.feed in fed.feeds:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A node opens a feed twice, or too many of them")
        group = message.group
        if not self.logs.is_here(group) or (group not in self.caught_up and message.offset == LATEST):
            self._say(peer, encode_end(message.feed, NOT_HERE, 0))
            return
        offset = self.logs.end(group) if message.offset == LATEST else message.offset
        if offset < self.logs.first(group):
            self._say(peer, encode_end(message.feed, GONE, self.logs.first(group)))
            return
        fed.feeds[message.feed] = Feed(message.feed, group, offset, message.once)
        fed.ready[message.feed] = None
        self._by_group.setdefault(group, set()).add((peer, message.feed))
        self._say(peer, encode_at(message.feed, offset))

    def applied(self, group: int) -> None:
        """There is more in the log of a group."""
        for peer, number in self._by_group.get(group, ()):
            self.peers[peer].ready[number] = None

    def closed(self, group: int) -> None:
        """The replica here is no more."""
        for peer, number in list(self._by_group.get(group, ())):
            self._end(peer, self.peers[peer].feeds[number], NOT_HERE, 0)

    def tick(self, now: int) -> None:
        """Send consumers elsewhere if this replica has heard of no leader for a while."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_MS
        for group in list(self._by_group):
            if not self.logs.is_here(group):
                self.closed(group)
            elif self.logs.leader_of(group):
                self._leaderless.pop(group, None)
            elif now - self._leaderless.setdefault(group, now) >= LEADERLESS_MS:
                for peer, number in list(self._by_group[group]):
                    self._end(peer, self.peers[peer].feeds[number], LEADERLESS, 0)
        for group in [group for group in self._leaderless if group not in self._by_group]:
            del self._leaderless[group]

    def flush(self) -> bool:
        """Send what there is, a piece of each feed; True when there is more for the next turn."""
        more = False
        for peer, fed in self.peers.items():
            for number in list(fed.ready):
                if fed.unacknowledged >= WINDOW_BYTES:
                    break  # those that had no turn come first next time
                del fed.ready[number]
                feed = fed.feeds.get(number)
                if feed is not None and self._pump(peer, fed, feed):
                    fed.ready[number] = None
            more = more or (len(fed.ready) > 0 and fed.unacknowledged < WINDOW_BYTES)
        return more

    def _pump(self, peer: int, fed: FedPeer, feed: Feed) -> bool:
        """One piece; True when there may be more."""
        try:
            if not self.logs.is_here(feed.group):
                raise Unreadable("The replica is no more.")
            end = self.logs.end(feed.group)
            batches = self.logs.read(feed.group, feed.next, CHUNK_BYTES) if feed.next < end else []
        except OffsetGone:
            self._end(peer, feed, GONE, self.logs.first(feed.group))
            return False
        except Unreadable:
            lost = self.logs.lost_until(feed.group, feed.next)  # damaged, and there is no other replica
            self._end(peer, feed, GONE if lost else NOT_HERE, lost)
            return False
        if batches:
            size = sum([len(batch) for batch in batches])
            fed.unacknowledged += size
            self.bytes_sent += size
            feed.next = BatchView(batches[-1]).next_offset
            self._say(peer, encode_data(feed.number, batches))
        if feed.once:
            self._end(peer, feed, DONE, feed.next)
            return False
        return feed.next < end

    def _end(self, peer: int, feed: Feed, why: int, offset: int) -> None:
        fed = self.peers[peer]
        fed.feeds.pop(feed.number, None)
        fed.ready.pop(feed.number, None)
        self._forget(peer, feed)
        self._say(peer, encode_end(feed.number, why, offset))

    def _forget(self, peer: int, feed: Feed) -> None:
        readers = self._by_group.get(feed.group)
        if readers is not None:
            readers.discard((peer, feed.number))
            if not readers:
                del self._by_group[feed.group]

    def _say(self, peer: int, body: bytes) -> None:
        self.outbox.send(peer, FEEDS, body)
