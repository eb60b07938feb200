"""MQTT clients as members of consumer groups: ``$queue/NAME`` and ``$queue/NAME/FILTER``.

```
 SUBSCRIBE --join--> SessionMember --take--> runs --> session.deliver --> PUBACK < 0x80: ack     >= 0x80: nack
                                                                          0x87, 0x99: dead letter at once
 UNSUBSCRIBE, connection lost --> what the client has goes to other members at once
```
A member has a part of its session's window for each partition of the group. Messages go out at QoS 1 whatever their
publisher chose: the group is at least once, and the PUBACK is its acknowledgement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.cluster.filters import filters_overlap, internal_filter
from flockmq.cluster.groups import SHARE
from flockmq.durable.groups.holds import Hold, Member
from flockmq.durable.groups.messages import BACK, BURY, NACK
from flockmq.durable.groups.window import DELIVERIES
from flockmq.mqtt import reasons
from flockmq.mqtt.namespaces import split_client_id
from flockmq.mqtt.properties import Properties, encode_block
from flockmq.session.members import offer, take_back
from flockmq.session.sources import MemberSource

if TYPE_CHECKING:
    from flockmq.cluster.groups import ConsumerGroup
    from flockmq.durable.deliver.decoding import Piece
    from flockmq.durable.groups.members import Members
    from flockmq.durable.groups.recent import RecentBatch
    from flockmq.durable.state.group_directory import GroupDirectory
    from flockmq.node.state import NodeState
    from flockmq.session.session import Session

WINDOW_MAX: Final = 3_000
"""Records that one member has at a time, of all partitions."""
QUEUES_MAX: Final = 100
"""Groups that one session is a member of."""
BURYING: Final = (reasons.NOT_AUTHORIZED, reasons.PAYLOAD_FORMAT_INVALID)
"""Reason codes of a PUBACK that make a dead letter at once."""


class HeldRun:
    """Consecutive records of a hold on their way to a client."""

    def __init__(self, queue: SessionQueue, member: SessionMember, hold: Hold, offset: int, count: int) -> None:
        self.source = MemberSource(queue, self)
        self.member = member
        self.hold = hold
        self.offset = offset
        self.left = count


class SessionQueue:
    """The groups that one session is a member of."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.by_filter: dict[bytes, SessionMember] = {}
        self.runs: dict[HeldRun, None] = {}
        self._noted: list[HeldRun] = []
        """Runs with acknowledgements that are not settled yet."""

    def note(self, source: MemberSource) -> None:
        """See ``QueuePort``."""
        if isinstance(source.of, HeldRun):
            if not self._noted:
                self._members.acknowledged(self)
            self._noted.append(source.of)

    def flush(self) -> None:
        """A turn ends: settle what the client has acknowledged."""
        noted, self._noted = self._noted, []
        for run in noted:
            if run in self.runs:
                self._acknowledge(run)
                if run.left <= 0:
                    del self.runs[run]

    def _acknowledge(self, run: HeldRun) -> None:
        puller = self._members.puller(run.hold.partition)
        for low, high in run.source.take_acked():
            run.left -= high - low
            for start, stop in run.hold.open.parts(run.offset + low, run.offset + high):
                puller.acknowledge(run.hold, start, stop)

    def refused(self, source: MemberSource, place: int, reason: int) -> None:
        """See ``QueuePort``."""
        run = source.of
        if not isinstance(run, HeldRun):
            return
        run.left -= 1
        if run.left <= 0:
            self.runs.pop(run, None)
        offset = run.offset + place
        if offset in run.hold.open:
            puller = self._members.puller(run.hold.partition)
            text = f"PUBACK 0x{reason:02x} {reasons.NAMES.get(reason, '')}".strip().encode()
            puller.settle(BURY if reason in BURYING else NACK, run.hold, offset, offset + 1, reason=text)

    def drop(self, member: SessionMember) -> None:
        """A member of this session leaves."""
        for run in [one for one in self.runs if one.member is member]:
            del self.runs[run]


class SessionMember(Member):
    """One session in one group."""

    def __init__(
        self, group: ConsumerGroup, session: Session, queue: SessionQueue, node: NodeState, members: Members
    ) -> None:
        super().__init__(group.id, session.client_id.encode())
        self.session = session
        self.properties = b""
        self.wants_info = False
        self.group_name = group.name
        self.ack_wait_ms = group.ack_wait_ms
        self._queue = queue
        self._node = node
        self._members = members

    def quota(self, partition: int) -> int:  # noqa: ARG002
        """A part of the session's window."""
        window = min(self.session.window, WINDOW_MAX)
        return max(window // max(len(self.partitions), 1), 1)

    def take(self, hold: Hold, batches: list[RecentBatch]) -> None:
        """See Member."""
        connection = self.session.connection
        puller = self._members.puller(hold.partition)
        grant = hold.grant
        if connection is None:
            puller.settle(BACK, hold, grant.low, grant.high)
            return
        now = self._node.now
        hold.until = now + self.ack_wait_ms
        came: list[tuple[int, int]] = []
        for batch in batches:
            decoder = batch.decoder()
            versions = [connection.version] * len(decoder.topics)
            for low, high in hold.open.parts(max(grant.low, batch.base), min(grant.high, batch.end)):
                for piece in decoder.pieces(low, high, versions, self._node.wall_offset_ms, now):
                    came.append((piece.offset, piece.end))
                    self._deliver(hold, piece, now)
        for low, high in hold.left():
            start = low
            for first, last in sorted(came):
                if low <= first < high:
                    self._expired(hold, start, first)
                    start = max(start, last)
            self._expired(hold, start, high)

    def _expired(self, hold: Hold, low: int, high: int) -> None:
        """Messages whose expiry interval is over are not delivered by MQTT."""
        if low < high:
            self._members.puller(hold.partition).acknowledge(hold, low, high)

    def _deliver(self, hold: Hold, piece: Piece, now: int) -> None:
        count = piece.run.count
        if not self.wants_info or self.session.connection is None or self.session.connection.version != 5:
            self._send(hold, piece, 0, count, self.properties, now)
            return
        for place in range(count):
            info = self._info(hold, piece.offset + place)
            self._send(hold, piece, place, place + 1, self.properties + info, now)

    def _info(self, hold: Hold, offset: int) -> bytes:
        properties = Properties()
        properties.user = [
            ("flockmq-group", self.group_name),
            ("flockmq-delivery", str(hold.grant.attempt & DELIVERIES)),
            ("flockmq-partition", str(hold.partition)),
            ("flockmq-offset", str(offset)),
        ]
        return encode_block(properties)

    def _send(self, hold: Hold, piece: Piece, low: int, high: int, properties: bytes, now: int) -> None:
        session = self.session
        run = piece.run if high - low == piece.run.count else piece.run.part(low, high)
        held = HeldRun(self._queue, self, hold, piece.offset + low, high - low)
        self._queue.runs[held] = None
        if not offer(session, run, properties, held.source, now):
            # The session has no room for all of it: all goes back.
            self._queue.runs.pop(held, None)
            puller = self._members.puller(hold.partition)
            puller.settle(BACK, hold, piece.offset + low, piece.offset + high)

    def lost(self, hold: Hold) -> None:
        """See Member: what waits for its turn to be sent is not sent any more."""
        outbound = self.session.outbound
        for run in [one for one in self._queue.runs if one.hold is hold]:
            if outbound is not None:
                take_back(outbound, run.source, False)
            del self._queue.runs[run]


class SessionMembers:
    """The ``GroupPort`` of a broker; see the module."""

    def __init__(self, node: NodeState, directory: GroupDirectory, members: Members) -> None:
        self._node = node
        self._directory = directory
        self._members = members

    def join(
        self, session: Session, full_filter: bytes, name: bytes, inner: bytes, identifier: int, wants_info: bool
    ) -> tuple[int, str]:
        """See ``GroupPort``."""
        namespace, _ = split_client_id(session.client_id)
        group = self._directory.named(namespace, name.decode())
        if group is None or not self._members.has_room():
            shown = name.decode()[:128]
            return reasons.TOPIC_FILTER_INVALID, f"There is no consumer group {shown}; make it with `flockmq group`"
        code, why = self._refusal(session, group, inner)
        if code:
            return code, why
        if full_filter not in session.queues and len(session.queues) >= QUEUES_MAX:
            return reasons.QUOTA_EXCEEDED, f"A client may be a member of {QUEUES_MAX} consumer groups"
        self.leave(session, full_filter)
        session.queues[full_filter] = b"%d %d" % (identifier, wants_info)
        self._enter(session, full_filter, group, inner, identifier, wants_info)
        return 0, ""

    def _refusal(self, session: Session, group: ConsumerGroup, inner: bytes) -> tuple[int, str]:
        filters = [one for place in self._directory.places_of(group) for one in place.topic.filters]
        if group.made_by_share:
            filters = [internal_filter(group.namespace, one.key) for one in group.bindings]
        if inner:
            if not any(filters_overlap(inner, one) for one in filters):
                shown = group.name[:128]
                return reasons.TOPIC_FILTER_INVALID, f"The consumer group {shown} reads nothing of this filter"
            if group.mode != SHARE:
                return reasons.TOPIC_FILTER_INVALID, f"Members of a group in {group.mode} mode take all that it reads"
            filters = [inner]
        identity = session.connection.identity if session.connection is not None else None
        for one in [] if self._node.gate_is_open else dict.fromkeys(filters):
            if identity is None or not self._node.gate.may_subscribe(identity, one):
                return reasons.NOT_AUTHORIZED, "This client may not subscribe to all that the consumer group reads"
        return 0, ""

    def _enter(
        self,
        session: Session,
        full_filter: bytes,
        group: ConsumerGroup,
        inner: bytes,
        identifier: int,
        wants_info: bool,
    ) -> None:
        queue = session.queue
        if not isinstance(queue, SessionQueue):
            queue = session.queue = SessionQueue(self._members)
        member = SessionMember(group, session, queue, self._node, self._members)
        member.topic_filter = inner
        member.wants_info = wants_info
        if identifier:
            properties = Properties()
            properties.subscription_identifiers = [identifier]
            member.properties = encode_block(properties)
        queue.by_filter[full_filter] = member
        self._members.join(member)

    def leave(self, session: Session, full_filter: bytes) -> None:
        """See ``GroupPort``."""
        session.queues.pop(full_filter, None)
        queue = session.queue
        member = queue.by_filter.pop(full_filter, None) if isinstance(queue, SessionQueue) else None
        if member is not None and isinstance(queue, SessionQueue):
            self._end(session, queue, member)

    def _end(self, session: Session, queue: SessionQueue, member: SessionMember) -> None:
        queue.flush()
        self._members.leave(member)
        for run in [one for one in queue.runs if one.member is member]:
            if session.outbound is not None:
                take_back(session.outbound, run.source, True)
        queue.drop(member)

    def detached(self, session: Session) -> None:
        """See ``GroupPort``."""
        queue = session.queue
        if isinstance(queue, SessionQueue):
            for member in list(queue.by_filter.values()):
                self._end(session, queue, member)
        session.queue = None

    def resumed(self, session: Session) -> None:
        """See ``GroupPort``."""
        namespace, _ = split_client_id(session.client_id)
        for full_filter, asked in list(session.queues.items()):
            name, _, inner = full_filter[len(b"$queue/") :].partition(b"/")
            group = self._directory.named(namespace, name.decode())
            if group is None or self._refusal(session, group, inner)[0]:
                del session.queues[full_filter]
                continue
            identifier, wants_info = asked.split(b" ")
            self._enter(session, full_filter, group, inner, int(identifier), wants_info == b"1")
