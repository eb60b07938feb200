"""Committed messages to subscribers, in commit order, from the log of each partition.

```
 own replica: applied --.                                    .--> clients that keep up: at once
 no replica: feeds -----+--> Stream: next offset --> runs ---+--> clients that are slow or want history: Catchup,
 a gap: read it --------'    (repeats dropped)               |    they read the log as they can, then are live again
                                                             +--> shared groups: where the partition is led from
                                                             `--> retained messages
```
What was committed before this node had caught up after its start is not live: no client that is connected now waits for
it. A stream exists for the partitions of topics that a client here may get something of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.deliver.catchup import UNKNOWN
from flockmq.durable.deliver.decoding import UNWANTED, BatchDecoder, Piece
from flockmq.durable.deliver.log_readers import LogReaders, has_no_local, is_from
from flockmq.durable.deliver.pacing import fits, would_overtake
from flockmq.durable.deliver.replay import Replay
from flockmq.durable.deliver.streams import Stream, Streams
from flockmq.durable.logs.history import CHUNK_BYTES
from flockmq.errors import Behind, Damaged, NoReplica, OffsetGone
from flockmq.log.batch import DATA, NOOP, BatchView
from flockmq.node.delivering import deliver_to_members, share_out
from flockmq.node.state import NodeState
from flockmq.routing.retained import APPLIED, FULL
from flockmq.session.outbound import LogSource

if TYPE_CHECKING:
    from flockmq.durable.logs.feeds import Fed
    from flockmq.durable.logs.logs import Logs
    from flockmq.raft.ready import Ready
    from flockmq.routing.plan import RoutePlan

SHARED_VERSION: Final = 5
"""The version of MQTT in which messages for shared groups are made: which member gets them is not known yet."""


class Delivery:
    """See the module. The component of channel FEEDS, and the broker's port ``replay``."""

    def __init__(self, node: NodeState, logs: Logs) -> None:
        self.node = node
        self.logs = logs
        self.local = logs.local
        self.caught_up = logs.caught_up
        self.feeds = logs.feeds
        self.readers = LogReaders(node, logs.history)
        self.streams = Streams(node, logs, self.readers)
        self.replay = Replay(node, self.streams, self.readers)

    def topics_changed(self, now: int, is_restored: bool = False) -> None:
        """The table has other durable topics. ``is_restored``: taken over whole, so they may be old.

        A client that subscribed before a topic was created gets all of it; of older topics, what is new.
        """
        self.streams.topics_changed(now, is_restored)

    def begun(self, group: int) -> None:
        """This node began the log of a partition that was made after its start: all that comes is live."""
        self.caught_up.add(group)

    def closed(self, group: int, now: int) -> None:
        """The replica of a partition here is no more."""
        self.streams.closed(group, now)

    # --- what is committed ---

    def applied(self, group: int, ready: Ready, now: int) -> None:
        """A replica here has applied more: deliver it."""
        leads = self.local.is_leader(group)
        stream = self.streams.by_group.get(group)
        for entry in ready.committed:
            if entry.kind == DATA:
                self._take(group, stream, entry.data, leads, now)
            elif entry.kind == NOOP and leads and entry.term == self.local.term_of(group):
                self.streams.begin_term(group, entry.next_offset)
        self.streams.applied(group)
        if stream is not None and (ready.install is not None or group in self.streams.behind):
            self.streams.find_source(stream, now)
            self.logs.wake()

    def _take(self, group: int, stream: Stream | None, batch: bytes, leads: bool, now: int) -> None:
        """A batch that was applied. Whatever is wrong with it: all replicas have it, and consensus must go on."""
        if stream is None and group in self.streams.hidden:
            return  # shared groups and the retained store have got these messages from their publishers' nodes
        try:
            decoder = BatchDecoder(batch)
            if group in self.node.table.capture.groups:  # a copy: shared groups and the retained store have it
                self._offer(group, stream, decoder, False, now)
                return
            self._retain(group, decoder, leads, now)
            self._offer(group, stream, decoder, leads and group in self.caught_up, now)
        except Exception as error:  # a bug; the message is in the log, and the messages behind it are delivered
            self.readers.note_fault(group, error)
            self._pass_over(stream, batch)

    def _take_more(self, stream: Stream, batches: list[bytes], now: int) -> None:
        """Batches out of a log, here or elsewhere."""
        for batch in batches:
            try:
                self._offer(stream.group, stream, BatchDecoder(batch), False, now)
            except Exception as error:  # as above
                self.readers.note_fault(stream.group, error)
                self._pass_over(stream, batch)

    def _pass_over(self, stream: Stream | None, batch: bytes) -> None:
        view = BatchView(batch)
        if stream is not None and view.base_offset <= stream.next:
            stream.next = max(stream.next, view.next_offset)

    def _offer(self, group: int, stream: Stream | None, decoder: BatchDecoder, is_shared: bool, now: int) -> None:
        """The next batch of a partition, or one that was there before, or one behind a gap."""
        low = decoder.end
        if stream is not None and stream.next != UNKNOWN and stream.next < decoder.end:
            if stream.next < decoder.base:
                self.streams.behind[group] = stream  # the replica here has more than was delivered: read it
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
            version = UNWANTED
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
        catching = self.readers.catching
        is_copy = group in self.node.table.capture.groups
        for target in plan.targets:
            session = target.session
            if is_copy and not (session.is_logged and target.qos):
                continue  # it got the message when that was published
            if catching:
                catchup = catching.get(session)
                if catchup is not None and group in catchup.positions:
                    continue  # it gets this from the log
            if target.has_no_local and is_from(session, piece):
                if target.own is None:
                    continue
                target = target.own  # noqa: PLW2901
            qos = target.qos if target.qos < run.qos else run.qos
            retain = run.retain and target.retain_as_published
            if qos == 0:
                connection = session.connection
                if connection is not None and would_overtake(session, target, qos):
                    self.readers.lag(session, group, piece.offset)
                elif connection is not None:
                    lost = session.send_now(connection, run, retain, target.identifier_properties, now)
                    stats.publishes_out_qos0 += run.count - lost
                    stats.dropped_slow += lost
            elif fits(session, run) and (session.connection is not None or not session.is_logged):
                source = LogSource(group, piece.offset) if session.is_logged else None
                stats.dropped_queue += session.deliver(run, qos, retain, target.identifier_properties, source, now)
            else:
                self.readers.lag(session, group, piece.offset)

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
        stamps = decoder.view.timestamps()
        for piece in decoder.retained(self.node.wall_offset_ms):
            topic = piece.run.topic
            message = piece.run.alone() if piece.run.payload(0) else None
            outcome = store.commit(topic, message, stamps[piece.offset - decoder.base], group, piece.offset, now)
            if outcome == APPLIED and leads and store.unsent is not None:
                store.unsent.add(topic)
            elif outcome == FULL:
                self.node.stats.retained_refused += 1

    # --- what feeds bring ---

    def _take_fed(self, fed: Fed, now: int) -> None:
        """Batches from another replica, or where a feed begins."""
        stream = self.streams.by_group.get(fed.group)
        if stream is None:
            return
        if fed.batches:
            self._take_more(stream, fed.batches, now)
        elif stream.next == UNKNOWN:
            self.streams.know(stream, fed.offset)

    def _skip_gone(self) -> None:
        """Go on behind the records that are gone from all replicas."""
        for group, first in self.feeds.take_skipped().items():
            stream = self.streams.by_group.get(group)
            if stream is not None and stream.next < first:
                self.readers.note_gone(group, stream.next, first, "")
                stream.next = first

    # --- the component ---

    def peer_up(self, peer: int, now: int) -> None:
        """There is a link to a peer."""
        self.feeds.peer_up(peer, now)

    def peer_down(self, peer: int, now: int) -> None:
        """The link to the peer is lost."""
        self.feeds.peer_down(peer, now)

    def peer_dead(self, peer: int, now: int) -> None:
        """Membership holds the peer dead."""
        self.feeds.peer_dead(peer, now)

    def receive(self, peer: int, body: bytes, now: int) -> None:
        """What it says of feeds."""
        fed = self.feeds.receive(peer, body, now)
        if fed is not None:
            self._skip_gone()
            self._take_fed(fed, now)

    def tick(self, now: int) -> None:
        """Time passes."""
        self.streams.tick(now)
        self.feeds.tick(now)
        self.replay.look(now)

    def flush(self, now: int) -> None:
        """A loop turn ends: streams and sessions that are behind read a piece."""
        self._skip_gone()
        noticed = self.node.table.noticed
        if noticed:
            for topic_filter in list(noticed):
                self.streams.notice(topic_filter, now)
            noticed.clear()
        more = False
        for stream in list(self.streams.behind.values()):
            more = self._read_on(stream, now) or more
        if self.readers.active:
            more = self.readers.flush(now) or more
        self.replay.look(now)
        self.feeds.flush()
        if more:
            self.logs.wake()

    def _read_on(self, stream: Stream, now: int) -> bool:
        """Deliver what the replica here has more than the stream; True when that was not all."""
        group = stream.group
        behind = self.streams.behind
        del behind[group]
        try:
            self._take_more(stream, self.local.read(group, stream.next, CHUNK_BYTES), now)
        except (OffsetGone, Behind, Damaged, NoReplica):
            self.feeds.want(group, stream.next, now)
            return False
        if self.local.end(group) <= stream.next:
            behind.pop(group, None)
            return False
        behind[group] = stream
        return True


def cut_off(piece: Piece, low: int) -> Piece:
    """The part of a piece from an offset on."""
    run = piece.run.part(low - piece.offset, piece.run.count)
    return Piece(run, low, piece.topic_index, piece.client)
