"""Committed messages to those who subscribed, in commit order, from the log of each partition.

```
 own replica: applied --.                                    .--> clients that keep up: at once
 no replica: feeds -----+--> Stream: next offset --> runs ---+--> clients that are slow or want history: Catchup,
 a gap: read it --------'    (repeats dropped)               |    they read the log as they can, then are live again
                                                             +--> shared groups: where the partition is led from
                                                             `--> retained messages
```
What was committed before this node had caught up after its start is not live: nobody who is connected now waits for it.
A stream exists for the partitions of topics that somebody here may get something of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.catchup import UNKNOWN, Catchup
from flockmq.durable.decoding import NOBODY, BatchDecoder, Piece
from flockmq.durable.feed_messages import LATEST
from flockmq.durable.feeds import FROM_END, Feeds, Told, do_nothing
from flockmq.durable.interest import Interest
from flockmq.durable.pacing import fits, give, has_room
from flockmq.durable.partition_log import GoneBefore, PartitionLogs, Placement, Unreadable
from flockmq.durable.replay import Replay
from flockmq.log.batch import DATA, NOOP
from flockmq.log.errors import Gone
from flockmq.node.delivering import deliver_to_members, share_out
from flockmq.node.state import NodeState
from flockmq.routing.retained import APPLIED, FULL
from flockmq.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.peering.calls import Calls
    from flockmq.peering.ports import Outbox
    from flockmq.raft.ready import Ready
    from flockmq.routing.durable import DurableTopic
    from flockmq.routing.plan import RoutePlan, Target

CHUNK_BYTES: Final = 256 * 1024
"""What is read of a partition in one turn, unless a batch alone is larger."""
STEP_RECORDS: Final = 2_048
"""Records that are made into runs at once for a client that catches up."""
ASKS_MAX: Final = 256
"""Questions where partitions end, that are under way at once."""
SHARED_VERSION: Final = 5


class Stream:
    """A partition as the clients of this node get it."""

    def __init__(self, group: int, topic: DurableTopic) -> None:
        self.group = group
        self.topic = topic
        self.next = UNKNOWN
        """The offset that is delivered next."""


class Delivery:
    """See the module. The component of channel FEEDS, and ``node.logs`` of the broker (through ``replay``)."""

    def __init__(
        self,
        node: NodeState,
        node_id: int,
        logs: PartitionLogs,
        placement: Placement,
        outbox: Outbox,
        calls: Calls,
    ) -> None:
        self.node = node
        self.logs = logs
        self.caught_up: set[int] = set()
        """Partitions whose replica here has all that was committed before this node started."""
        self.feeds = Feeds(node_id, logs, placement, outbox, calls, self, self.caught_up)
        self.interest = Interest(node.table)
        self.streams: dict[int, Stream] = {}
        self.catching: dict[Session, Catchup] = {}
        """Sessions that read from logs."""
        self.lags = 0
        """How often a session fell behind and went on from the log."""
        self.gone = 0
        """Records that somebody was to get and that were gone from all logs by then."""
        self._wake: Callable[[], None] = do_nothing
        self._groups_seen: set[int] = set()
        self._is_loaded = False
        self._behind: dict[int, Stream] = {}
        self._asking: set[int] = set()
        self._level_at: dict[int, int] = {}
        """Where a partition ended when its leader was asked: the replica here has caught up when it is there."""
        node.table.noticed = set(node.table.filters())
        self.replay = Replay(self)
        node.logs = self.replay

    def set_wake(self, wake: Callable[[], None]) -> None:
        """How to ask for another turn."""
        self._wake = wake
        self.feeds.wake = wake

    # --- topics come and go ---

    def topics_changed(self, now: int, is_restored: bool = False) -> None:
        """The table has other durable topics. ``is_restored``: taken over whole, so they may be old.

        Who subscribed before a topic was created gets all of it; of topics that were there before, what is new.
        """
        is_news = self._is_loaded and not is_restored
        self._is_loaded = True
        fresh, gone = self.interest.follow()
        for topic in gone:
            self._end(topic.groups)
        for topic in fresh:
            left = [one.group for one in self.streams.values() if one.topic.id == topic.id]
            self._end([group for group in left if group not in topic.groups])
            if self.interest.is_wanted(topic):
                self._begin(topic, is_news, now)
            self._groups_seen.update(topic.groups)

    def notice(self, topic_filter: bytes, now: int) -> list[DurableTopic]:
        """A filter came or went; the topics that it may match names of."""
        topics = self.interest.note(topic_filter)
        for topic in topics:
            if self.interest.is_wanted(topic):
                self._begin(topic, False, now)
            else:
                self._end(topic.groups)
        return topics

    def _begin(self, topic: DurableTopic, is_new: bool, now: int) -> None:
        for group in topic.groups:
            stream = self.streams.get(group)
            if stream is None:
                stream = Stream(group, topic)
                self.streams[group] = stream
                if is_new and group not in self._groups_seen:
                    stream.next = 0
                self._find_source(stream, now)
            stream.topic = topic

    def _end(self, groups: list[int]) -> None:
        for group in groups:
            if self.streams.pop(group, None) is not None:
                self._behind.pop(group, None)
                self.feeds.unwant(group)
        for catchup in list(self.catching.values()):
            for group in groups:
                if group in catchup.positions:
                    self._drop(catchup, group)

    # --- where a stream comes from ---

    def _find_source(self, stream: Stream, now: int) -> None:
        """The replica here if it can serve, else a feed from another."""
        group = stream.group
        logs = self.logs
        is_here = logs.is_here(group)
        if stream.next == UNKNOWN:
            if not is_here:
                self.feeds.want(group, LATEST, now)
            elif group in self.caught_up:
                self._know(stream, logs.end(group))
            else:
                self._ask(group, now)
            return
        is_level = group in self.caught_up or (is_here and logs.end(group) >= stream.next)
        if is_here and is_level and logs.first(group) <= stream.next:
            self.feeds.unwant(group)
            if logs.end(group) > stream.next:
                self._behind[group] = stream
        else:
            self._behind.pop(group, None)
            self.feeds.want(group, stream.next, now)

    def _know(self, stream: Stream, offset: int) -> None:
        """It is known from where on a stream is live."""
        stream.next = offset
        for catchup in self.catching.values():
            catchup.stream_known(stream.group, offset)

    def _ask(self, group: int, now: int) -> None:
        """Ask the leader where a partition ends: what the replica here lacks up to there is not live."""
        if group in self._asking or len(self._asking) >= ASKS_MAX or group in self._level_at:
            return
        self._asking.add(group)
        self.feeds.ask(group, FROM_END, 0, lambda told: self._told(group, told), now)

    def _told(self, group: int, told: Told | None) -> None:
        self._asking.discard(group)
        if told is not None and group not in self.caught_up:
            self._level_at[group] = told.end
            self._look_level(group)
            stream = self.streams.get(group)
            if stream is not None and stream.next == UNKNOWN:
                self._know(stream, told.end)
                self._find_source(stream, self.node.now)

    def _look_level(self, group: int) -> None:
        if self.logs.end(group) >= self._level_at[group]:
            del self._level_at[group]
            self.caught_up.add(group)

    def closed(self, group: int, now: int) -> None:
        """The replica here is no more; the stream goes on from another."""
        self.caught_up.discard(group)
        self._level_at.pop(group, None)
        self.feeds.server.closed(group)
        stream = self.streams.get(group)
        if stream is not None:
            self._find_source(stream, now)

    # --- what is committed ---

    def applied(self, group: int, ready: Ready, now: int) -> None:
        """A replica here has applied more: deliver it."""
        leads = self.logs.is_leader(group)
        stream = self.streams.get(group)
        for entry in ready.committed:
            if entry.kind == DATA:
                decoder = BatchDecoder(entry.data)
                self._retain(group, decoder, leads, now)
                self._offer(group, stream, decoder, leads and group in self.caught_up, now)
            elif entry.kind == NOOP and leads and entry.term == self.logs.term_of(group):
                # The first entry of this node's own term: what comes behind it was published after that.
                self.caught_up.add(group)
                self._level_at.pop(group, None)
                if stream is not None and stream.next == UNKNOWN:
                    self._know(stream, entry.next_offset)
        if group in self._level_at:
            self._look_level(group)
        if stream is not None and (ready.install is not None or group in self._behind):
            self._find_source(stream, now)
            self._wake()
        self.feeds.server.applied(group)

    def _offer(self, group: int, stream: Stream | None, decoder: BatchDecoder, is_shared: bool, now: int) -> None:
        """The next batch of a partition, or one that was there before, or one behind a gap."""
        low = decoder.end
        if stream is not None and stream.next != UNKNOWN and stream.next < decoder.end:
            if stream.next < decoder.base:
                self._behind[group] = stream  # the replica here has more than was delivered: read it
            else:
                low = stream.next
                stream.next = decoder.end
        if low < decoder.end or is_shared:
            self._deliver(group, decoder, low, is_shared, now)

    def _deliver(self, group: int, decoder: BatchDecoder, low: int, is_shared: bool, now: int) -> None:
        """A batch to all that want it: from offset ``low`` on to clients of their own, all of it to shared groups."""
        table = self.node.table
        plans: list[RoutePlan] = []
        versions: list[int] = []
        by_client = False
        is_live = low < decoder.end
        for topic in decoder.topics:
            plan = table.plans.get(topic)
            if plan is None:
                plan = table.plan(topic)
            plans.append(plan)
            version = NOBODY
            if is_live and plan.targets:
                version = plan.targets[0].session.version
                by_client = by_client or has_no_local(plan.targets)
            if is_shared and plan.groups:
                version = version or SHARED_VERSION
                by_client = True
            versions.append(version)
        first = decoder.base if is_shared else low
        for piece in decoder.pieces(first, decoder.end, versions, self.node.wall_offset_ms, now, by_client):
            plan = plans[piece.topic_index]
            if plan.targets and piece.end > low:
                self._give_live(group, plan, piece if piece.offset >= low else cut_off(piece, low), now)
            if is_shared and plan.groups:
                self._share(plan, piece, now)

    def _give_live(self, group: int, plan: RoutePlan, piece: Piece, now: int) -> None:
        """A piece to the clients that follow the partition live."""
        run = piece.run
        stats = self.node.stats
        catching = self.catching
        for target in plan.targets:
            session = target.session
            if catching:
                catchup = catching.get(session)
                if catchup is not None and group in catchup.positions:
                    continue  # it gets this from the log
            if target.has_no_local and self._is_from(session, piece):
                if target.own is None:
                    continue
                target = target.own  # noqa: PLW2901
            qos = target.qos if target.qos < run.qos else run.qos
            retain = run.retain and target.retain_as_published
            if qos == 0:
                connection = session.connection
                if connection is not None:
                    lost = session.send_now(connection, run, retain, target.identifier_properties, now)
                    stats.publishes_out_qos0 += run.count - lost
                    stats.dropped_slow += lost
            elif fits(session, run):
                stats.dropped_queue += session.deliver(run, qos, retain, target.identifier_properties, None, now)
            else:
                self._lag(session, group, piece.offset)

    def _is_from(self, session: Session, piece: Piece) -> bool:
        return session.client_id == piece.client.decode("utf-8", "replace")

    def _share(self, plan: RoutePlan, piece: Piece, now: int) -> None:
        publisher_id = piece.client.decode("utf-8", "replace")
        for group in plan.groups:
            if group.remote is None:
                deliver_to_members(self.node, group, piece.run, None, publisher_id, now)
            else:
                share_out(self.node, group, piece.run, None, publisher_id, 0, now)

    def _retain(self, group: int, decoder: BatchDecoder, leads: bool, now: int) -> None:
        """Keep what is to be retained. All replicas do; the leader tells the nodes that have none."""
        if not decoder.has_retained():
            return
        store = self.node.retained
        wall_ms = decoder.view.base_timestamp
        for piece in decoder.retained(self.node.wall_offset_ms):
            topic = piece.run.topic
            message = piece.run.alone() if piece.run.payload(0) else None
            outcome = store.commit(topic, message, wall_ms, group, piece.offset, now)
            if outcome == APPLIED and leads and store.unsent is not None:
                store.unsent.add(topic)
            elif outcome == FULL:
                self.node.stats.retained_refused += 1

    # --- what feeds bring ---

    def fed_at(self, group: int, offset: int, now: int) -> None:  # noqa: ARG002  (the shape of a sink)
        """A feed begins here."""
        stream = self.streams.get(group)
        if stream is not None and stream.next == UNKNOWN:
            self._know(stream, offset)

    def fed(self, group: int, batches: list[bytes], now: int) -> None:
        """Batches from another replica."""
        stream = self.streams.get(group)
        if stream is not None:
            for batch in batches:
                self._offer(group, stream, BatchDecoder(batch), False, now)

    def fed_gone(self, group: int, first: int, now: int) -> None:  # noqa: ARG002  (the shape of a sink)
        """What comes next is nowhere any more."""
        stream = self.streams.get(group)
        if stream is not None and stream.next < first:
            self._note_gone(group, stream.next, first, "")
            stream.next = first

    def _note_gone(self, group: int, offset: int, first: int, client_id: str) -> None:
        self.gone += first - max(offset, 0)
        self.node.events.note(
            "durable_gap",
            {
                "partition": group,
                "from_offset": offset,
                "to_offset": first,
                "client_id": client_id,
                "message": "Records were deleted before they could be delivered; let the topic keep them for longer.",
            },
        )

    # --- sessions that read from logs ---

    def catchup_of(self, session: Session) -> Catchup:
        """Where a session stands; it begins to read."""
        catchup = self.catching.get(session)
        if catchup is None:
            catchup = Catchup(session)
            self.catching[session] = catchup
        return catchup

    def _lag(self, session: Session, group: int, offset: int) -> None:
        self.lags += 1
        self.catchup_of(session).lag(group, offset)

    def _drop(self, catchup: Catchup, group: int) -> None:
        """A session is level with a partition, or done with it."""
        catchup.drop(group)
        if not catchup.positions:
            self.catching.pop(catchup.session, None)

    def read(self, group: int, offset: int, now: int) -> list[bytes] | None:
        """Batches from an offset on, from the replica here or another; None: they are on their way."""
        logs = self.logs
        if logs.is_here(group) and logs.first(group) <= offset < logs.end(group):
            try:
                return logs.read(group, offset, CHUNK_BYTES)
            except (Gone, Unreadable):
                pass  # another replica may have it
        return self.feeds.fetch(group, offset, now)

    def _pump(self, catchup: Catchup, now: int) -> bool:
        """Let a session read on; True when it could go on at once."""
        session = catchup.session
        connection = session.connection
        if self.node.sessions.get(session.client_id) is not session:
            del self.catching[session]
            return False
        if connection is None:
            return False  # it reads on when its client is back
        has_read = False
        for group in list(catchup.positions):
            if not has_room(session, connection):
                if not connection.blocked and connection.out_bytes:
                    connection.hungry = True  # what is in its buffer is written in this turn
                    connection.mark()
                return False
            has_read = self._read_some(catchup, group, now) or has_read
        return has_read and len(catchup.positions) > 0

    def _read_some(self, catchup: Catchup, group: int, now: int) -> bool:
        """One chunk of one partition; False when there is nothing to read now."""
        stream = self.streams.get(group)
        position = catchup.positions[group]
        if stream is None:
            self._drop(catchup, group)
            return False
        if UNKNOWN in (position, stream.next):
            return False
        if position < stream.next:
            try:
                batches = self.read(group, position, now)
            except GoneBefore as error:
                self._note_gone(group, position, error.first, catchup.session.client_id)
                catchup.positions[group] = min(error.first, stream.next)
                return True
            if not batches:
                return False
            for batch in batches:
                decoder = BatchDecoder(batch)
                if decoder.end <= position:
                    continue  # a piece that was fetched may begin earlier
                end = min(decoder.end, stream.next)
                position = self._give_some(catchup, group, decoder, position, end, now)
                catchup.positions[group] = position
                if position < end or end == stream.next:
                    break
        if position >= stream.next and not catchup.is_waiting(group):
            self._drop(catchup, group)
        return True

    def _give_some(self, catchup: Catchup, group: int, decoder: BatchDecoder, low: int, end: int, now: int) -> int:
        """As much of a batch as the client takes; the offset of what comes next."""
        session = catchup.session
        connection = session.connection
        if connection is None:
            return low
        stats = self.node.stats
        while low < end:
            high = catchup.cut(group, low, min(end, low + STEP_RECORDS))
            targets = [catchup.target(self.node.table, group, topic, low) for topic in decoder.topics]
            versions = [NOBODY if target is None else session.version for target in targets]
            by_client = has_no_local([target for target in targets if target is not None])
            for piece in decoder.pieces(low, high, versions, self.node.wall_offset_ms, now, by_client):
                target = targets[piece.topic_index]
                if target is not None and target.has_no_local and self._is_from(session, piece):
                    target = target.own
                if target is None:
                    continue
                given = give(session, connection, target, piece, stats, now)
                if given < piece.run.count:
                    return piece.offset + given
            low = high
        return end

    # --- the component ---

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link to a peer."""
        self.feeds.peer_up(peer, now)

    def peer_down(self, peer: int, now: int) -> None:
        """There is none."""
        self.feeds.peer_down(peer, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """It is dead."""
        self.feeds.peer_dead(peer, now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """What it says of feeds."""
        self.feeds.receive(peer, body, now)

    def tick(self, now: int) -> None:
        """Time passes: look where streams can come from, ask again what nobody answered."""
        for group in self.logs.groups():
            if group not in self.caught_up:
                self._ask(group, now)
        for stream in list(self.streams.values()):
            if stream.next == UNKNOWN or self.feeds.wants(stream.group) or not self.logs.is_here(stream.group):
                self._find_source(stream, now)
        self.feeds.tick(now)
        self.replay.tick(now)

    def flush(self, now: int) -> None:
        """A loop turn ends: streams and sessions that are behind read a piece."""
        noticed = self.node.table.noticed
        if noticed:
            for topic_filter in list(noticed):
                self.notice(topic_filter, now)
            noticed.clear()
        more = False
        for stream in list(self._behind.values()):
            more = self._read_on(stream, now) or more
        for catchup in list(self.catching.values()):
            more = self._pump(catchup, now) or more
        self.replay.look(now)
        self.feeds.flush(now)
        if more:
            self._wake()

    def _read_on(self, stream: Stream, now: int) -> bool:
        """Deliver what the replica here has more than the stream; True when that was not all."""
        group = stream.group
        del self._behind[group]
        try:
            for batch in self.logs.read(group, stream.next, CHUNK_BYTES):
                self._offer(group, stream, BatchDecoder(batch), False, now)
        except (Gone, Unreadable):
            self.feeds.want(group, stream.next, now)
            return False
        if self.logs.end(group) <= stream.next:
            self._behind.pop(group, None)
            return False
        self._behind[group] = stream
        return True


def has_no_local(targets: list[Target]) -> bool:
    """Whether it matters to any of them who published a message."""
    return any(target.has_no_local for target in targets)


def cut_off(piece: Piece, low: int) -> Piece:
    """The part of a piece from an offset on."""
    run = piece.run.part(low - piece.offset, piece.run.count)
    return Piece(run, low, piece.topic_index, piece.client)
