"""Sessions that read from logs because they are slow or want history: a chunk of each partition a turn, paced.

```
 Catchup: position --> SharedBatches: read once for all that stand there --> runs for its subscriptions --> paced
                 ^------------------------------------------------------------------------ how far it came ---'
 position = what is delivered live --> done: from here on live
```
"""

from __future__ import annotations

import struct
import traceback
from itertools import islice
from typing import TYPE_CHECKING, Final

from flockmq.durable.deliver.catchup import UNKNOWN, Catchup
from flockmq.durable.deliver.decoding import Piece
from flockmq.durable.deliver.pacing import buffer_room, give, has_room
from flockmq.durable.deliver.shared_batches import SharedBatch, SharedBatches
from flockmq.durable.logs.history import CHUNK_BYTES
from flockmq.errors import Damaged, OffsetGone
from flockmq.routing.plan import Target
from flockmq.session.places import POSITION, LogPlace
from flockmq.session.session import Session

if TYPE_CHECKING:
    from flockmq.durable.deliver.streams import Stream
    from flockmq.durable.logs.history import History
    from flockmq.node.state import NodeState
    from flockmq.session.connection import Connection

PUMPED_MAX: Final = 64
"""Sessions that read on in one turn."""
USER_PROPERTY: Final = b"\x26"
GAP: Final = b"flockmq-gap"
"""User property of the first message behind records that are gone; its value is how many those were."""
U16: Final = struct.Struct(">H")


class LogReaders:
    """All sessions that read; see the module."""

    def __init__(self, node: NodeState, history: History) -> None:
        self.node = node
        self.shared = SharedBatches(history)
        self._history = history
        self.streams: dict[int, Stream] = {}
        """By partition; filled by ``Streams``."""
        self.catching: dict[Session, Catchup] = {}
        """All that stand somewhere before the end of a log,"""
        self.active: dict[Session, Catchup] = {}
        """and those of them that read on: their clients are connected."""
        self._idle = 0
        """How many were looked at since one could read on."""
        self.lags = 0
        """How often a session fell behind and went on from the log."""
        self.passed = 0
        """Records that sessions did not read because they want none of their names."""
        self.gone = 0
        """Records that a client was to get and that were gone from all logs by then."""

    def of(self, session: Session) -> Catchup:
        """Where a session stands; it begins to read."""
        catchup = self.catching.get(session)
        if catchup is None:
            catchup = Catchup(session)
            self.catching[session] = catchup
        if session.connection is not None:
            self.active[session] = catchup
        return catchup

    def resume(self, session: Session) -> None:
        """Its client is back."""
        catchup = self.catching.get(session)
        if catchup is not None:
            self.active[session] = catchup

    def end(self, session: Session) -> None:
        """The session is no more."""
        self.catching.pop(session, None)
        self.active.pop(session, None)
        if not self.active:
            self.shared.clear()

    def lag(self, session: Session, group: int, offset: int) -> None:
        """A session has no room for what comes from this offset on."""
        self.lags += 1
        self.of(session).lag(group, offset)

    def places(self, session: Session, groups: list[int]) -> list[LogPlace]:
        """Where a session stands in partitions: where it reads, else where this node delivers live."""
        catchup = self.catching.get(session)
        found = catchup.places() if catchup is not None else []
        for group in groups:
            stream = self.streams.get(group)
            is_live = catchup is None or group not in catchup.positions
            if is_live and stream is not None and stream.next != UNKNOWN:
                found.append(LogPlace(POSITION, b"", group, stream.next))
        return found

    def arrive(self, session: Session) -> None:
        """A session came from another node."""
        if session.places:
            self.of(session).take_places(session.places)
        session.places = None

    def advance(self, session: Session, positions: dict[int, int]) -> None:
        """Let a session pass captured messages that its record has passed: leaders saw that it wants none of them."""
        catchup = self.catching.get(session)
        if catchup is not None:
            for group in self.node.table.capture.groups:
                if group in positions:
                    catchup.advance(group, positions[group])

    def stream_known(self, group: int, offset: int) -> None:
        """The offset from which a partition is live is known."""
        for catchup in self.catching.values():
            catchup.stream_known(group, offset)

    def stream_ended(self, groups: list[int]) -> None:
        """No client here wants these partitions any more."""
        for catchup in list(self.catching.values()):
            for group in groups:
                if group in catchup.positions:
                    self._drop(catchup, group)

    def note_gone(self, group: int, offset: int, first: int, client_id: str) -> None:
        """Records are gone that were to be delivered."""
        self.gone += first - max(offset, 0)
        self.node.events.note(
            "durable_gap",
            {
                "partition": group,
                "from_offset": offset,
                "to_offset": first,
                "client_id": client_id,
                "message": "Records were deleted, or damaged on the only replica, before they could be delivered; let "
                "the topic keep them for longer, or on more nodes.",
            },
        )

    def note_fault(self, group: int, error: Exception) -> None:
        """Something that was committed can't be delivered."""
        trace = "".join(traceback.format_exception(error)[-8:])
        fields: dict[str, object] = {"doing": f"delivery of partition {group}", "error": repr(error)}
        self.node.events.note("internal_error", {**fields, "traceback": trace})

    def flush(self, now: int) -> bool:
        """Let some read on, in turn; True when one could go on at once, or was not looked at since a session did."""
        more = False
        if self._idle >= len(self.active):
            self._idle = 0
        for session in list(islice(self.active, PUMPED_MAX)):
            catchup = self.active.pop(session)
            self.active[session] = catchup  # to the end of the line
            self._idle += 1
            if self._pump(catchup, now):
                self._idle = 0
                more = True
        return more or self._idle < len(self.active)

    def _drop(self, catchup: Catchup, group: int) -> None:
        """A session is level with a partition, or done with it."""
        catchup.drop(group)
        if not catchup.positions:
            self.end(catchup.session)

    def _pump(self, catchup: Catchup, now: int) -> bool:
        session = catchup.session
        connection = session.connection
        if self.node.sessions.get(session.client_id) is not session:
            self.end(session)
            return False
        if connection is None:
            self.active.pop(session, None)  # it reads on when its client is back
            return False
        has_read = False
        for group in list(catchup.positions):
            if not has_room(session, connection, buffer_room(len(self.active))):
                if not connection.blocked and connection.out_bytes:
                    connection.hungry = True  # what is in its buffer is written in this turn
                    connection.mark()
                return False
            if group in catchup.held and session.outbound is not None and session.outbound.queued:
                continue
            catchup.held.discard(group)
            has_read = self._read_some(catchup, group, now) or has_read
        return has_read and len(catchup.positions) > 0

    def _read_some(self, catchup: Catchup, group: int, now: int) -> bool:
        """One chunk of one partition; False when nothing came of it: there is no more, or the client has to wait."""
        stream = self.streams.get(group)
        position = begin = catchup.positions[group]
        if stream is None:
            self._drop(catchup, group)
            return False
        if UNKNOWN in (position, stream.next):
            return False
        is_sought = group in self.node.table.capture.groups
        if is_sought and position < stream.next:
            if not self._seek(catchup, group, position, stream.next):
                return False  # another node is being asked
            position = catchup.positions[group]
        due = catchup.due.get(group) if is_sought else None
        if position < stream.next and (due is None or position < due.high):
            try:
                batches = self.shared.read(group, position, CHUNK_BYTES if due is None else due.size)
            except (OffsetGone, Damaged) as error:
                following = error.first if isinstance(error, OffsetGone) else error.end
                self.note_gone(group, position, following, catchup.session.client_id)
                catchup.gap += following - max(position, 0)
                catchup.positions[group] = min(following, stream.next)
                return True
            if not batches:
                return False
            position = self._give_batches(catchup, stream, batches, position, now)
        # A session from another node may be ahead of this one's stream: then the stream has to come that far first.
        if position == stream.next and not catchup.is_waiting(group) and not catchup.has_listed(group, position):
            self._drop(catchup, group)
        return position > begin

    def _seek(self, catchup: Catchup, group: int, position: int, end: int) -> bool:
        """Let a session pass records whose names it does not want; False: where these end is not known yet."""
        due = catchup.due.get(group)
        if due is not None and position < due.high:
            return True
        found = self._history.seek(group, position, catchup.captured_filters())
        if found is None:
            return False
        catchup.due[group] = found
        catchup.positions[group] = min(found.low, end)
        self.passed += catchup.positions[group] - position
        return True

    def _give_batches(
        self, catchup: Catchup, stream: Stream, batches: list[SharedBatch], position: int, now: int
    ) -> int:
        group = stream.group
        due = catchup.due.get(group)
        for batch in batches:
            end = min(batch.end, stream.next)
            if end <= position:
                continue  # others read from earlier on
            try:
                position = self._give_some(catchup, group, batch, position, end, now)
            except Exception as error:  # a bug; the messages behind it are delivered
                self.note_fault(group, error)
                position = end
            catchup.positions[group] = position
            if position < end or end == stream.next or (due is not None and position >= due.high):
                break
        return position

    def _give_some(self, catchup: Catchup, group: int, batch: SharedBatch, low: int, end: int, now: int) -> int:
        """As much of a batch as the client takes; the offset of what comes next."""
        session = catchup.session
        connection = session.connection
        if connection is None:
            return low
        node = self.node
        is_copy = group in node.table.capture.groups
        room = buffer_room(len(self.active))
        while low < end:
            if catchup.is_listed(group, low):
                low += 1
                continue
            high = catchup.cut(group, low, end)
            wanted = catchup.wanted(node.table, group, batch, low)
            if wanted is None:
                low = high
                continue
            by_client = wanted.tells_clients_apart()
            for piece in batch.pieces(wanted.filters, low, high, session.version, by_client, node.wall_offset_ms):
                target = wanted.target(piece.topic_index)
                if target is None or (is_copy and not target.qos):
                    continue  # what is subscribed at QoS 0 came when it was published
                if target.has_no_local and is_from(session, piece):
                    target = target.own
                if target is None or 0 < piece.run.expires_at <= now:
                    continue
                given = self._give(catchup, connection, target, group, piece, now, room)
                if given < piece.run.count:
                    if has_room(session, connection, room):
                        catchup.held.add(group)  # there is room: it would overtake
                    return piece.offset + given
            low = high
        return end

    def _give(
        self, catchup: Catchup, connection: Connection, target: Target, group: int, piece: Piece, now: int, room: int
    ) -> int:
        """As many messages of a piece as there is room for; the first one behind a gap says so. How many."""
        session = catchup.session
        stats = self.node.stats
        if not catchup.gap or connection.version != 5:
            return give(session, connection, target, group, piece, stats, now, room)
        first = Piece(piece.run.part(0, 1), piece.offset, piece.topic_index, piece.client)
        if not give(session, connection, after_gap(target, catchup.gap), group, first, stats, now, room):
            return 0
        catchup.gap = 0
        if piece.run.count == 1:
            return 1
        rest = Piece(piece.run.part(1, piece.run.count), piece.offset + 1, piece.topic_index, piece.client)
        return 1 + give(session, connection, target, group, rest, stats, now, room)


def after_gap(target: Target, gap: int) -> Target:
    """What a session gets of a message that is the first one behind so many records that are gone."""
    told = Target(
        target.session, target.qos, target.retain_as_published, target.identifiers, target.has_no_local, target.own
    )
    count = str(gap).encode()
    told.identifier_properties += USER_PROPERTY + U16.pack(len(GAP)) + GAP + U16.pack(len(count)) + count
    return told


def has_no_local(targets: list[Target]) -> bool:
    """Whether it matters to any of them which client published a message."""
    return any(target.has_no_local for target in targets)


def is_from(session: Session, piece: Piece) -> bool:
    """Whether a session's own client published it."""
    return session.client_id == piece.client.decode("utf-8", "replace")
