"""The partitions that clients here get something of: up to where they were delivered, and where more comes from.

```
 a client wants a topic ---> Stream per partition: next offset unknown --.
                                                                        |  no replica here: a feed from its end
            the replica here has caught up: its end  <------------------+  a replica that starts: its leader tells the
            where the leader said that the log ends  <------------------'  end, what lies before it is not live

 next offset known:  the replica here has it --> from there        else --> a feed, until the replica here has it
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.deliver.catchup import UNKNOWN
from flockmq.durable.deliver.interest import Interest
from flockmq.durable.logs.feed_messages import FROM_END
from flockmq.log.starts import LATEST, Start

if TYPE_CHECKING:
    from flockmq.durable.deliver.log_readers import LogReaders
    from flockmq.durable.logs.logs import Logs
    from flockmq.node.state import NodeState
    from flockmq.routing.durable import DurableTopic
    from flockmq.tasks import Task

THOROUGH_MS: Final = 500
"""How often streams that are well are looked at: there may be thousands."""
LOOK_MS: Final = 1_000
"""How often all partitions here are gone through when none has anything to ask."""
ASKS_MAX: Final = 256
"""Questions where partitions end, that are under way at once."""


class Stream:
    """A partition as the clients of this node get it."""

    def __init__(self, group: int, topic: DurableTopic) -> None:
        self.group = group
        self.topic = topic
        self.next = UNKNOWN
        """The offset that is delivered next."""


class Streams:
    """All of them; see the module."""

    def __init__(self, node: NodeState, logs: Logs, readers: LogReaders) -> None:
        self.node = node
        self.logs = logs
        self.local = logs.local
        self.feeds = logs.feeds
        self.interest = Interest(node.table)
        self.caught_up = logs.caught_up
        self.by_group = readers.streams
        self.behind: dict[int, Stream] = {}
        """Streams whose local replica has more records than were delivered."""
        self.hidden: set[int] = set()
        """Partitions of topics without filters: their records are no live messages."""
        self._readers = readers
        self._groups_seen: set[int] = set()
        self._is_loaded = False
        self._thorough_at = 0
        self._look_at = 0
        self._asking: set[int] = set()
        self._level_at: dict[int, int] = {}
        """Where a partition ended when its leader was asked: the replica here has caught up when it is there."""

    # --- topics come and go ---

    def topics_changed(self, now: int, is_restored: bool) -> None:
        """The table has other durable topics; see ``Delivery.topics_changed``."""
        is_news = self._is_loaded and not is_restored
        self._is_loaded = True
        fresh, gone = self.interest.follow()
        for topic in gone:
            self._end(topic.groups)
            self.hidden.difference_update(topic.groups)
        for topic in fresh:
            if not topic.filters:
                self.hidden.update(topic.groups)
            left = [one.group for one in self.by_group.values() if one.topic.id == topic.id]
            self._end([group for group in left if group not in topic.groups])
            if self.interest.is_wanted(topic):
                # Shards that a topic got while this node knew it are new to the subscribers here, however late it
                # hears of them: maybe more than was asked for, never less.
                self._begin(topic, is_news or bool(left), now)
            self._groups_seen.update(topic.groups)

    def want_capture(self, now: int) -> None:
        """A session here gets messages from the log of persistent sessions, from now on."""
        self.interest.wants_capture = True
        topic = self.node.table.capture.topic
        if topic is not None:
            self._begin(topic, False, now)

    def notice(self, topic_filter: bytes, now: int) -> list[DurableTopic]:
        """A filter came or went; the topics that subscribers to it get messages from."""
        self.interest.note(topic_filter)
        topics = self.interest.sources(topic_filter)
        for topic in topics:
            if self.interest.is_wanted(topic):
                self._begin(topic, False, now)
            else:
                self._end(topic.groups)
        return topics

    def _begin(self, topic: DurableTopic, is_new: bool, now: int) -> None:
        for group in topic.groups:
            stream = self.by_group.get(group)
            if stream is None:
                stream = Stream(group, topic)
                self.by_group[group] = stream
                if is_new and group not in self._groups_seen:
                    stream.next = 0
                self.find_source(stream, now)
            stream.topic = topic

    def _end(self, groups: list[int]) -> None:
        for group in groups:
            if self.by_group.pop(group, None) is not None:
                self.behind.pop(group, None)
                self.feeds.unwant(group)
        if groups:
            self._readers.stream_ended(groups)

    # --- where a stream comes from ---

    def find_source(self, stream: Stream, now: int) -> None:
        """The replica here if it can serve, else a feed from another."""
        group = stream.group
        local = self.local
        is_here = local.is_here(group)
        if stream.next == UNKNOWN:
            if not is_here:
                self.feeds.want(group, FROM_END, now)
            elif group in self.caught_up:
                self.know(stream, local.end(group))
            else:
                self._ask(group)
            return
        is_level = group in self.caught_up or (is_here and local.end(group) >= stream.next)
        if is_here and is_level and local.first(group) <= stream.next:
            self.feeds.unwant(group)
            if local.end(group) > stream.next:
                self.behind[group] = stream
        else:
            self.behind.pop(group, None)
            self.feeds.want(group, stream.next, now)

    def know(self, stream: Stream, offset: int) -> None:
        """The offset from which a stream is live is known."""
        stream.next = offset
        self._readers.stream_known(stream.group, offset)

    def begin_term(self, group: int, offset: int) -> None:
        """This node leads, and its first entry is committed: what comes behind it was published after that."""
        self.caught_up.add(group)
        self._level_at.pop(group, None)
        stream = self.by_group.get(group)
        if stream is not None and stream.next == UNKNOWN:
            self.know(stream, offset)

    def _ask(self, group: int) -> None:
        """Ask the leader where a partition ends: what the replica here lacks up to there is not live."""
        if group not in self._asking and len(self._asking) < ASKS_MAX and group not in self._level_at:
            self.logs.tasks.start("end of a stream", self._find_end(group))

    def _find_end(self, group: int) -> Task[None]:
        self._asking.add(group)
        try:
            found = (yield from self.logs.locate([group], Start(LATEST))).get(group)
        finally:
            self._asking.discard(group)
        if found is not None and group not in self.caught_up:
            self._level_at[group] = found.end
            self.applied(group)
            stream = self.by_group.get(group)
            if stream is not None and stream.next == UNKNOWN:
                self.know(stream, found.end)
                self.find_source(stream, self.node.now)

    def applied(self, group: int) -> None:
        """A replica here has more: maybe as much as its leader had when it was asked."""
        if group in self._level_at and self.local.end(group) >= self._level_at[group]:
            del self._level_at[group]
            self.caught_up.add(group)

    def closed(self, group: int, now: int) -> None:
        """The replica here is no more; the stream goes on from another."""
        self.caught_up.discard(group)
        self._level_at.pop(group, None)
        stream = self.by_group.get(group)
        if stream is not None:
            self.find_source(stream, now)

    def tick(self, now: int) -> None:
        """Look where streams can come from, ask again what no node answered."""
        if now >= self._look_at:
            self._look_at = now + LOOK_MS
            for group in self.local.groups():
                if group not in self.caught_up:
                    self._look_at = now
                    if self.local.leader_of(group):  # no other node could tell
                        self._ask(group)
        is_thorough = now >= self._thorough_at
        if is_thorough:
            self._thorough_at = now + THOROUGH_MS
        for stream in list(self.by_group.values()):
            if stream.next == UNKNOWN or (is_thorough and self._is_elsewhere(stream.group)):
                self.find_source(stream, now)

    def _is_elsewhere(self, group: int) -> bool:
        return self.feeds.wants(group) or not self.local.is_here(group)
