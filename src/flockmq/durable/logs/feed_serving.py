"""The side of feeds that has the log: sends committed batches to nodes that have none, no faster than they take them.

```
 OPEN --> Feed: next offset --pump, once a turn--> DATA, within the window of its peer --> ACK opens the window
                  ^-- entries were applied here
```
All feeds of a peer share one window of bytes, and take turns when it is small: a node that stands still costs no more
than that window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.logs.feed_messages import (
    ACK,
    AT,
    CLOSE,
    DATA,
    END,
    FROM_END,
    GONE,
    LEADERLESS,
    LOST,
    NOT_HERE,
    OPEN,
    FeedMessage,
)
from flockmq.errors import Behind, Damaged, NoReplica, OffsetGone, RemoteProtocolError
from flockmq.log.batch import BatchView
from flockmq.mqtt import reasons
from flockmq.peering.channels import FEEDS

if TYPE_CHECKING:
    from flockmq.durable.logs.local import LocalLogs
    from flockmq.peering.ports import Outbox

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Sent to a peer and not yet worked off."""
CHUNK_BYTES: Final = 256 * 1024
"""Of one feed in a turn, unless a batch alone is larger."""
FEEDS_MAX: Final = 65_536
"""Feeds that one peer may have."""
LEADERLESS_MS: Final = 2_000
LOOK_MS: Final = 500
"""How often all feeds are looked at."""


class Feed:
    """What one peer gets of one partition."""

    def __init__(self, peer: int, number: int, group: int, offset: int) -> None:
        self.peer = peer
        self.number = number
        self.group = group
        self.next = offset


class FedPeer:
    """A peer with its feeds."""

    def __init__(self) -> None:
        self.feeds: dict[int, Feed] = {}
        self.unacknowledged = 0
        self.ready: dict[int, None] = {}
        """Feeds that may have something to send, in turn."""


class FeedServer:
    """All feeds that this node serves."""

    def __init__(self, local: LocalLogs, outbox: Outbox, caught_up: set[int]) -> None:
        self._local = local
        self._outbox = outbox
        self._caught_up = caught_up
        """Partitions whose replica here has all that was committed before this node started."""
        self.peers: dict[int, FedPeer] = {}
        self._by_group: dict[int, dict[Feed, None]] = {}
        self._leaderless: dict[int, int] = {}
        self._look_at = 0

    def peer_gone(self, peer: int) -> None:
        """The feeds of a peer end; the peer opens them anew."""
        gone = self.peers.pop(peer, None)
        if gone is not None:
            for feed in gone.feeds.values():
                self._forget(feed)

    def receive(self, peer: int, message: FeedMessage) -> None:
        """A message of a consumer."""
        fed = self.peers.setdefault(peer, FedPeer())
        if message.kind == OPEN:
            self._open(peer, fed, message)
        elif message.kind == ACK:
            fed.unacknowledged = max(fed.unacknowledged - message.offset, 0)
        elif message.kind == CLOSE:
            feed = fed.feeds.pop(message.feed, None)
            fed.ready.pop(message.feed, None)
            if feed is not None:
                self._forget(feed)

    def _open(self, peer: int, fed: FedPeer, message: FeedMessage) -> None:
        if len(fed.feeds) >= FEEDS_MAX or message.feed in fed.feeds:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, "A node opens a feed twice, or too many of them")
        group = message.group
        feed = Feed(peer, message.feed, group, message.offset)
        if not self._local.is_here(group) or (group not in self._caught_up and message.offset == FROM_END):
            self._send(feed, END, why=NOT_HERE)
            return
        if message.offset == FROM_END:
            feed.next = self._local.end(group)
        if feed.next < self._local.first(group):
            self._send(feed, END, self._local.first(group), GONE)
            return
        fed.feeds[feed.number] = feed
        fed.ready[feed.number] = None
        self._by_group.setdefault(group, {})[feed] = None
        self._send(feed, AT, feed.next)

    def applied(self, group: int) -> None:
        """There is more in the log of a partition."""
        for feed in self._by_group.get(group, ()):
            self.peers[feed.peer].ready[feed.number] = None

    def closed(self, group: int) -> None:
        """The replica here is no more."""
        self._end_all(group, NOT_HERE)

    def _end_all(self, group: int, why: int) -> None:
        for feed in list(self._by_group.get(group, ())):
            self._end(feed, why)

    def tick(self, now: int) -> None:
        """Send consumers elsewhere if this replica has heard of no leader for a while."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_MS
        for group in list(self._by_group):
            if not self._local.is_here(group):
                self.closed(group)
            elif self._local.leader_of(group):
                self._leaderless.pop(group, None)
            elif now - self._leaderless.setdefault(group, now) >= LEADERLESS_MS:
                self._end_all(group, LEADERLESS)
        for group in [group for group in self._leaderless if group not in self._by_group]:
            del self._leaderless[group]

    def flush(self) -> bool:
        """Send what there is, a piece of each feed; True when there is more for the next turn."""
        more = False
        for fed in self.peers.values():
            for number in list(fed.ready):
                if fed.unacknowledged >= WINDOW_BYTES:
                    break  # feeds that had no turn come first next time
                del fed.ready[number]
                feed = fed.feeds.get(number)
                if feed is not None and self._pump(fed, feed):
                    fed.ready[number] = None
            more = more or (len(fed.ready) > 0 and fed.unacknowledged < WINDOW_BYTES)
        return more

    def _pump(self, fed: FedPeer, feed: Feed) -> bool:
        """Send one piece; True when there may be more."""
        group = feed.group
        try:
            end = self._local.end(group)
            if end < 0:
                raise NoReplica
            batches = self._local.read(group, feed.next, CHUNK_BYTES) if feed.next < end else []
        except OffsetGone as error:
            self._end(feed, GONE, error.first)
            return False
        except (Behind, Damaged, NoReplica):
            lost = self._local.lost_until(group, feed.next)
            self._end(feed, LOST if lost else NOT_HERE, lost)
            return False
        if batches:
            feed.next = BatchView(batches[-1]).next_offset
            fed.unacknowledged += self._send(feed, DATA, batches=batches)
        return feed.next < end

    def _end(self, feed: Feed, why: int, offset: int = 0) -> None:
        fed = self.peers[feed.peer]
        fed.feeds.pop(feed.number, None)
        fed.ready.pop(feed.number, None)
        self._forget(feed)
        self._send(feed, END, offset, why)

    def _forget(self, feed: Feed) -> None:
        feeds = self._by_group.get(feed.group)
        if feeds is not None:
            feeds.pop(feed, None)
            if not feeds:
                del self._by_group[feed.group]

    def _send(self, feed: Feed, kind: int, offset: int = 0, why: int = 0, batches: list[bytes] | None = None) -> int:
        message = FeedMessage(kind, feed.number, 0, offset, why)
        message.batches = batches or []
        self._outbox.send(feed.peer, FEEDS, message.encode())
        return sum([len(batch) for batch in message.batches])
