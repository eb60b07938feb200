"""The former owner of a session closes its client and forgets its copy, because another node claimed the client id.

```
 DISPLACED (client, epoch) of the shard's leader --> 0x8E, forgotten; persistent: where it stood is kept for a while
 YIELD (client, epoch) of the next owner ----------> the same, and where it stood
 messages of shared groups that wait --> a stand-in of the session keeps them until the group has another member
```
The former owner sends no statement to the log about the closed connection or the will: the claim covers both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.durable.calls import OK, Reply
from flockmq.durable.machine.session_bodies import read_named
from flockmq.durable.sessions.standing import standing_of
from flockmq.node.delivering import find_group
from flockmq.node.lifecycle import displace, end_session
from flockmq.peering.fields import Reader
from flockmq.peering.kinds import DISPLACED_CALL, YIELD_CALL
from flockmq.routing.shared import ShareGroup
from flockmq.routing.subscription import Subscription
from flockmq.session.outbound import Outbound
from flockmq.session.session import Session

if TYPE_CHECKING:
    from flockmq.durable.calls import PartitionCalls
    from flockmq.durable.deliver.replay import Replay
    from flockmq.durable.sessions.claims import Uncertain
    from flockmq.node.state import NodeState
    from flockmq.session.outbound import Delivery

KEPT_MS: Final = 5_000
"""How long a former owner remembers the standing of a session."""
KEPT_MAX: Final = 10_000
KEPT_BYTES_MAX: Final = 64 * 1_024 * 1_024
STAND_IN_MS: Final = 3_000
"""How long messages of a shared group wait for another member of it."""
STAND_INS_MAX: Final = 10_000


class _Kept:
    """The standing of a session that left this node."""

    def __init__(self, body: bytes, until: int) -> None:
        self.body = body
        self.until = until


class _StandIn:
    """A session that keeps the shared subscriptions of a session that left, and their waiting messages."""

    def __init__(self, session: Session, until: int) -> None:
        self.session = session
        self.until = until


class Yielding:
    """See the module."""

    def __init__(self, node: NodeState, calls: PartitionCalls, replay: Replay, uncertain: Uncertain) -> None:
        self._node = node
        self._calls = calls
        self._replay = replay
        self._uncertain = uncertain
        self._kept: dict[tuple[bytes, int], _Kept] = {}
        """By client and epoch, the oldest first."""
        self._kept_bytes = 0
        self._stand_ins: list[_StandIn] = []
        self.yielded = 0
        """Sessions that went to other nodes."""
        calls.serve_replica(DISPLACED_CALL, self._on_displaced)
        calls.serve_replica(YIELD_CALL, self._on_yield)

    def _on_displaced(self, body: bytes) -> Reply:
        reader = Reader(body)
        while reader.pos < reader.end:
            client, epoch = read_named(reader)
            if self._uncertain.granted.get(client) == epoch:
                del self._uncertain.granted[client]  # its client still waits for the CONNACK, and is refused
            session = self._found(client, epoch)
            if session is not None:
                standing = self._displace(session)
                if standing:
                    self._keep((client, epoch), standing)
        return Reply(OK)

    def _on_yield(self, body: bytes) -> Reply:
        client, epoch = read_named(Reader(body))
        kept = self._kept.pop((client, epoch), None)
        if kept is not None:
            self._kept_bytes -= len(kept.body)
            return Reply(OK, kept.body)
        session = self._found(client, epoch)
        return Reply(OK, b"" if session is None else self._displace(session))

    def _found(self, client: bytes, epoch: int) -> Session | None:
        session = self._node.sessions.get(client.decode("utf-8", "replace"))
        return session if session is not None and session.has_record and session.record_epoch == epoch else None

    def _displace(self, session: Session) -> bytes:
        """Close the client of a session and forget the session; returns its standing."""
        node = self._node
        now = node.now
        if session.connection is not None:
            node.finish(session.connection, now)  # packets that the client sent before count
        self.yielded += 1
        standing = b""
        if session.is_logged:
            standing = standing_of(session.outbound, self._replay.places(session)).encode()
        self._stand_in(session)
        displace(node, session, now)
        return standing

    def _keep(self, key: tuple[bytes, int], body: bytes) -> None:
        self._kept[key] = _Kept(body, self._calls.now + KEPT_MS)
        self._kept_bytes += len(body)
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        kept = self._kept.pop(next(iter(self._kept)))
        self._kept_bytes -= len(kept.body)

    # Shared groups.

    def _stand_in(self, session: Session) -> None:
        """Move the waiting messages of shared subscriptions to a stand-in of the session."""
        shared = {name: one for name, one in session.subscriptions.items() if one.group}
        if not shared or len(self._stand_ins) >= STAND_INS_MAX:
            return
        node = self._node
        other = Session(session.client_id, session.version, node.now)
        other.queue_messages_max = session.queue_messages_max
        other.queue_bytes_max = session.queue_bytes_max
        for full_filter, one in shared.items():
            subscription = Subscription(
                other,
                one.topic_filter,
                one.group,
                one.qos,
                one.no_local,
                one.retain_as_published,
                one.retain_handling,
                one.identifier,
            )
            other.subscriptions[full_filter] = subscription
            node.table.add(subscription)
        if session.outbound is not None:
            other.outbound = _shared_of(session.outbound)
            session.outbound = None
        self._stand_ins.append(_StandIn(other, node.now + STAND_IN_MS))

    def _is_needed(self, session: Session) -> bool:
        """Whether a group of a stand-in has no other member yet."""
        for subscription in session.subscriptions.values():
            group = find_group(self._node, subscription.group, subscription.topic_filter)
            if group is not None and not group.remote and len(group.members) <= 1:
                return True
        return False

    def tick(self, now: int) -> None:
        """Forget old standings; let shared groups choose other members for waiting messages."""
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._forget_oldest()
        if self._stand_ins:
            over = [one for one in self._stand_ins if one.until <= now or not self._is_needed(one.session)]
            self._stand_ins = [one for one in self._stand_ins if one not in over]
            for one in over:
                end_session(self._node, one.session, now)


def _shared_of(outbound: Outbound) -> Outbound:
    """Messages for which shared groups chose this session, for another member: QoS 1, and messages not sent yet."""
    found = Outbound(outbound.messages_max, outbound.bytes_max)
    for delivery in outbound.waiting_runs():
        if isinstance(delivery.group, ShareGroup) and (delivery.qos == 1 or not delivery.first):
            _add(found, delivery)
    return found


def _add(outbound: Outbound, delivery: Delivery) -> None:
    outbound.held += delivery.held
    if delivery.first:
        outbound.flights.append(delivery)
        outbound.inflight += len(delivery.unsettled())
    else:
        outbound.queue.append(delivery)
        outbound.queued += delivery.high - delivery.low
