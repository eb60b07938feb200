"""Sessions on their way between two nodes, and how one is put together again.

```
 old owner                                              new owner
   disconnect the client (0x8E)
   encode the session; it keeps its subscriptions, and what comes from now on waits apart ("the rest")
   MOVE chunk 0 ... n  ---------------------------------> decode; subscribe; what comes from now on waits apart ("own")
        <------------------------------------- INSTALLED  every node knows the new route (or a second has passed)
   FENCE to all nodes, FENCED from all of them
   unsubscribe; MOVE the rest ---------------------------> QoS 2 in it: FENCE to all nodes, FENCED from all of them
                                                           session + rest + own, in this order; CONNACK
   forget
```
A link delivers in order, two links do not: the old owner's fence brings in what a node sent it before it knew the new
route, though the news that it knows was faster.
A message published meanwhile may reach both nodes: then it is in the rest and in what is the new owner's own. At QoS 1
it is delivered twice; at QoS 2 the one in the rest is left out, found by its topic, properties and payload. The fence
makes sure that the other one is there by then: whatever a node sent to the old owner, it sent to the new one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.node.lifecycle import NEVER_EXPIRES
from flockmq.node.state import SESSION_TIMER, WILL_TIMER, NodeState
from flockmq.peering.rendezvous import hash64
from flockmq.peering.session_codec import GroupName, MovedSession, encode_rest, encode_session
from flockmq.peering.session_messages import CHUNK_BYTES_MAX, IS_REST, MOVE, Message
from flockmq.session.outbound import DELIVERY_OVERHEAD_BYTES, Delivery, LogSource, Outbound

if TYPE_CHECKING:
    from flockmq.mqtt.run import Run
    from flockmq.peering.session_messages import Post
    from flockmq.session.session import Session

CHUNKS_AHEAD: Final = 4
"""Chunks sent and not yet acknowledged."""
MOVE_RETRY_MS: Final = 500
MOVE_MS_MAX: Final = 60_000
"""After this long the old owner takes a session back that the new one does not take."""


class Departure:
    """A session that leaves this node. It is in the table still, but no longer among the node's sessions."""

    def __init__(
        self, number: int, to: int, nonce: int, epoch: int, session: Session, expires_at: int, will_at: int, now: int
    ) -> None:
        self.number = number
        self.to = to
        self.nonce = nonce
        self.epoch = epoch
        """Under which it is the new owner's."""
        self.session = session
        self.expires_at = expires_at
        """When it would have expired; 0: never."""
        self.will_at = will_at
        """When its will is due; 0: it has none that waits."""
        self.logged: set[int] = set()
        """QoS 2 ids that stay behind: the new owner asks the logs."""
        self.outbound: Outbound | None = None
        """What was encoded of it, should it have to stay."""
        self.chunks: list[bytes] = []
        self.acknowledged = 0
        self.sent = 0
        self.is_rest = False
        self.subscribed = True
        self.active = False
        self.retry_at = now
        self.until = now + MOVE_MS_MAX
        self.dropped = 0
        self.is_installed = False
        self.fences: set[int] = set()
        """Nodes that may have sent here what they would send to the new owner by now."""
        self.fences_until = 0

    def begin(self, now: int) -> None:
        """Encode the session; what comes for it from now on waits apart."""
        session = self.session
        self.active = True
        self.is_rest = False
        self.is_installed = False
        self.outbound = session.outbound
        expires_in = max(self.expires_at - now, 0) if self.expires_at else -1
        will_in = max(self.will_at - now, 0) if self.will_at else -1
        self.cut(encode_session(session, expires_in, will_in, now, self.logged))
        session.outbound = None

    def begin_rest(self, now: int) -> None:
        """Encode what came since."""
        self.is_rest = True
        data, dropped = encode_rest(self.session.outbound, now)
        self.dropped += dropped
        self.cut(data)

    def cut(self, data: bytes) -> None:
        """Cut into chunks; there is always one."""
        self.chunks = [data[at : at + CHUNK_BYTES_MAX] for at in range(0, len(data), CHUNK_BYTES_MAX)]
        self.acknowledged = 0
        self.sent = 0

    def pump(self, post: Post, now: int) -> None:
        """Send chunks as far as the new owner's acknowledgements allow."""
        count = len(self.chunks)
        while self.sent < count and self.sent - self.acknowledged < CHUNKS_AHEAD:
            message = Message(
                MOVE,
                self.session.client_id,
                flags=IS_REST if self.is_rest else 0,
                nonce=self.nonce,
                epoch=self.epoch,
                node=self.number,
                value=self.sent << 32 | count,
                data=self.chunks[self.sent],
            )
            post.say(self.to, message)
            self.sent += 1
        self.retry_at = now + MOVE_RETRY_MS

    def repeat(self, post: Post, now: int) -> None:
        """Send again what may have been lost; at least one chunk, so that the other side says where it stands."""
        self.sent = min(self.acknowledged, len(self.chunks) - 1)
        self.acknowledged = self.sent
        self.pump(post, now)

    def acknowledge(self, index: int, is_rest: bool) -> bool:
        """A chunk has arrived; True when these were all."""
        if is_rest != self.is_rest or index != self.acknowledged:
            return False
        self.acknowledged += 1
        self.sent = max(self.sent, self.acknowledged)
        return self.acknowledged == len(self.chunks)

    def gather(self) -> None:
        """The session stays: put back together what was encoded and what came since."""
        session = self.session
        rest = session.outbound
        if self.outbound is not None:
            session.outbound = self.outbound
            self.outbound = None
            if rest is not None:
                append(session, session.outbound, rest.queue[rest.queue_head :])


class Arrival:
    """A session that comes to this node."""

    def __init__(self, number: int, peer: int, client_id: str, epoch: int, now: int) -> None:
        self.number = number
        self.peer = peer
        self.client_id = client_id
        self.epoch = epoch
        self.chunks: list[bytes] = []
        self.rest_chunks: list[bytes] = []
        self.size = 0
        self.session: Session | None = None
        """Once decoded: the session, or the one that it was added to."""
        self.base: Outbound | None = None
        """What was on its way to the client, without what came here in the meantime."""
        self.is_apart = False
        """What comes here is kept apart until the rest is there."""
        self.own: dict[int, int] = {}
        """QoS 2 messages that came here in the meantime, by hash, for a rest that comes late."""
        self.route_mark = 0
        self.installed_until = 0
        """When other nodes are no longer waited for."""
        self.said_installed = False
        self.rest: list[Delivery] = []
        self.fences: set[int] = set()
        """Nodes whose messages may be on their way here still; the rest waits for those that it may be twice with."""
        self.fences_until = 0
        self.touched_at = now


def put_in(node: NodeState, moved: MovedSession, now: int) -> None:
    """Make a session that came this node's: among its sessions, in the table, with its timers."""
    session = moved.session
    session.detached_at = now
    if session.received:
        session.collected = set(session.received)  # another node may have had it since, with a client that went on
    if session.client_id not in node.sessions:
        node.spaces.session_began(session.client_id)
    node.sessions[session.client_id] = session
    for subscription in session.subscriptions.values():
        node.table.add(subscription)
    if session.outbound is not None:
        find_groups(node, session.outbound.flights)
        find_groups(node, session.outbound.queue)
    if moved.expires_in >= 0:
        session.timer = node.timers.add(now + moved.expires_in, SESSION_TIMER, session)
    if session.will is not None:
        session.will_timer = node.timers.add(now + max(moved.will_in, 0), WILL_TIMER, session)


def take_out(node: NodeState, session: Session) -> None:
    """Take a session's subscriptions out of the table; the session keeps its list of them."""
    for subscription in session.subscriptions.values():
        node.table.remove(session, subscription.group, subscription.topic_filter)


def put_back(node: NodeState, departure: Departure) -> None:
    """A session that was to leave stays. Its client may have gone on with the new owner all the same."""
    session = departure.session
    if session.received:
        session.received -= departure.logged.difference(session.unsettled or ())
        session.collected = set(session.received)
    departure.gather()
    if not departure.subscribed:
        for subscription in session.subscriptions.values():
            node.table.add(subscription)
        departure.subscribed = True
    if session.client_id not in node.sessions:
        node.spaces.session_began(session.client_id)
    node.sessions[session.client_id] = session
    if node.ports.replay is not None:
        node.ports.replay.stayed(session)
    if departure.expires_at:
        session.timer = node.timers.add(departure.expires_at, SESSION_TIMER, session)
    if departure.will_at:
        session.will_timer = node.timers.add(departure.will_at, WILL_TIMER, session)


def expiry_of(session: Session) -> int:
    """When a session without client expires; 0: never."""
    return 0 if session.expiry_s == NEVER_EXPIRES else session.detached_at + session.expiry_s * 1000


def find_groups(node: NodeState, deliveries: list[Delivery]) -> None:
    """Give deliveries that a shared group chose the group of that name here."""
    for delivery in deliveries:
        wanted = delivery.group
        if isinstance(wanted, GroupName):
            entry = node.table.entry(wanted.topic_filter)
            groups = entry.groups if entry is not None else None
            delivery.group = groups.get(wanted.group) if groups is not None else None


def append(session: Session, outbound: Outbound, deliveries: list[Delivery]) -> int:
    """Queue deliveries that were queued elsewhere before, within the bounds; how many messages were dropped."""
    dropped = 0
    for delivery in deliveries:
        count = delivery.high - delivery.low
        is_kept = isinstance(delivery.group, LogSource)  # its session's position in that log is behind it
        if not is_kept and (
            outbound.queued + count > outbound.messages_max or outbound.held + delivery.held > outbound.bytes_max
        ):
            dropped += count
            continue
        outbound.queue.append(delivery)
        outbound.queued += count
        outbound.held += delivery.held
    session.dropped += dropped
    return dropped


def outbound_of(session: Session) -> Outbound:
    """The window and queue of a session, made if it has none."""
    outbound = session.outbound
    if outbound is None:
        outbound = Outbound(session.queue_messages_max, session.queue_bytes_max)
        session.outbound = outbound
    return outbound


def unsent(outbound: Outbound | None) -> list[Delivery]:
    """What can be delivered through another session of the same client: all that waits, and QoS 1 without PUBACK.

    A QoS 2 message that was sent may have arrived: only the session that sent it could find out.
    """
    if outbound is None:
        return []
    found: list[Delivery] = []
    for flight in outbound.flights[outbound.flights_head :]:
        if flight.qos == 1:
            for place in flight.unsettled():
                index = flight.low + place
                found.append(waiting(flight, index))
    return found + outbound.queue[outbound.queue_head :]


def waiting(delivery: Delivery, index: int) -> Delivery:
    """One message of a delivery's run, not sent yet."""
    run = delivery.run.part(index, index + 1)
    found = Delivery(run, 0, run.count, delivery.qos, delivery.retain, delivery.properties, delivery.group, 0)
    found.skipped = delivery.skipped + index
    found.held = len(run.wire) + DELIVERY_OVERHEAD_BYTES
    return found


def add_late(node: NodeState, session: Session, deliveries: list[Delivery], now: int) -> None:
    """Queue what came from another node for a session that is in use here, and send what may be sent."""
    if not deliveries:
        return
    find_groups(node, deliveries)
    node.stats.dropped_queue += append(session, outbound_of(session), deliveries)
    node.stats.dropped_queue += session.pump(now)


def put_together(node: NodeState, arrival: Arrival, rest: list[Delivery], now: int) -> None:
    """End the time apart: what came with the session, then the rest, then what came here."""
    session = arrival.session
    if session is None or not arrival.is_apart:
        return
    arrival.is_apart = False
    own = session.outbound
    base = arrival.base
    arrival.base = None
    mine = own.queue[own.queue_head :] if own is not None else []
    arrival.own = count_exact(mine)
    find_groups(node, rest)
    found = without(rest, arrival.own)
    if base is None and not found:
        return
    session.outbound = base
    outbound = outbound_of(session)
    node.stats.dropped_queue += append(session, outbound, found)
    node.stats.dropped_queue += append(session, outbound, mine)
    node.stats.dropped_queue += outbound.forget_expired(now)


def exact_key(run: Run, index: int) -> int:
    """What a QoS 2 message is recognised by."""
    properties, payload = run.parse(index)
    sizes = len(run.topic).to_bytes(4, "little") + len(properties).to_bytes(4, "little")
    return hash64(sizes + run.topic + properties + payload)


def count_exact(deliveries: list[Delivery]) -> dict[int, int]:
    """How often each QoS 2 message is among deliveries; those to shared groups reach one node only."""
    counts: dict[int, int] = {}
    for delivery in deliveries:
        if delivery.qos == 2 and delivery.group is None:
            for index in range(delivery.low, delivery.high):
                key = exact_key(delivery.run, index)
                counts[key] = counts.get(key, 0) + 1
    return counts


def without(deliveries: list[Delivery], known: dict[int, int]) -> list[Delivery]:
    """Leave out QoS 2 messages that came the other way as well; each of ``known`` is used up once."""
    if not known:
        return deliveries
    found: list[Delivery] = []
    for delivery in deliveries:
        if delivery.qos != 2 or delivery.group is not None:
            found.append(delivery)
            continue
        for index in range(delivery.low, delivery.high):
            key = exact_key(delivery.run, index)
            left = known.get(key, 0)
            if left:
                known[key] = left - 1
            else:
                found.append(waiting(delivery, index))
    return found
