"""Which filters lead to which nodes: every node publishes its own, and knows those of all others.

```
 SUBSCRIBE --> table.touched --flush--> own map:  r/<filter>                          a client subscribed alone
                                                  s/<length><group><filter> -> count  members of a shared group
 other nodes' maps --apply--> table.add_route, set_share --> plans
 a node dies ------------------------> table.remove_peer

 SUBACK waits: asked --flush--> pending (version) --> every ALIVE node has applied that version, or is SUSPECT by now
                                                  `-> or it took too long: a second for clean sessions
```
The changes of a turn become one delta, without subscriptions that began and ended within the turn. Filters below
``$SYS`` are not published: those topics are each node's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.errors import RemoteProtocolError
from flockmq.mqtt.topics import check_topic_filter
from flockmq.node.state import NodeState
from flockmq.node.subscribing import subscribed
from flockmq.peering.forwarding import Forwarding
from flockmq.routing.peer import Peer
from flockmq.session.connection import Connection
from flockmq.session.session import Session

if TYPE_CHECKING:
    from flockmq.peering.ports import Maps
    from flockmq.routing.subscription import Subscription

ROUTE: Final = b"r/"
SHARE: Final = b"s/"
CLEAN_WAIT_MS: Final = 1_000
"""Longest wait for the SUBACK of a session that ends with its connection."""
WAIT_MS: Final = 30_000
"""Longest wait for any SUBACK: a node may live, and be out of reach from here alone. Clients give up about then."""
PENDING_MAX: Final = 65_536
"""SUBACKs that wait; beyond it connections that subscribe are not read until theirs is out."""
MEMBERS_MAX: Final = 0xFFFFFFFF


class Pending:
    """A SUBACK that waits."""

    def __init__(
        self, connection: Connection, session: Session, suback: bytes, keys: list[bytes], fresh: list[Subscription]
    ) -> None:
        self.connection = connection
        self.session = session
        self.suback = suback
        self.keys = keys
        self.fresh = fresh
        self.version = 0
        self.deadline = 0
        self.paused = False
        self.done = False


class Routes:
    """The routes of a cluster; see the module. The broker's port ``routes``."""

    def __init__(self, node: NodeState, node_id: int, forwarding: Forwarding, maps: Maps) -> None:
        self.node = node
        self.node_id = node_id
        self.forwarding = forwarding
        self.maps = maps
        self.alive: dict[int, Peer] = {}
        """ALIVE nodes, without this node."""
        self.suspects: dict[int, Peer] = {}
        self.dead: dict[int, str] = {}
        """Names of nodes that died, for people; the last ones."""
        self.pending_max = PENDING_MAX
        self.malformed = 0
        """Routes of other nodes that can't be read."""
        self._fresh: dict[bytes, int] = {}
        """Version of keys that not every ALIVE node has; all others are no newer than ``_settled``."""
        self._settled = 0
        self._acknowledged = 0
        """The version that every ALIVE node has."""
        self._asked: list[Pending] = []
        self._pending: list[Pending] = []

    # --- members ---

    def peer_alive(self, peer: int, name: str, now: int) -> None:
        """A node is there, or is there again, or has another name."""
        known = self.forwarding.peer(peer)
        known.name = name
        known.peer = name
        self.alive[peer] = known
        self.suspects.pop(peer, None)
        self.dead.pop(peer, None)
        self._look(now)

    def peer_suspect(self, peer: int, now: int) -> None:
        """A node does not answer: SUBACKs do not wait for it, but it gets its messages."""
        known = self.alive.pop(peer, None)
        if known is not None:
            self.suspects[peer] = known
        self._look(now)

    def peer_up(self, peer: int, now: int) -> None:
        """A link is up; the peer's routes come through the maps."""

    def peer_down(self, peer: int, now: int) -> None:
        """A link is lost; membership decides whether the node lives."""

    def peer_dead(self, peer: int, now: int) -> None:
        """A node is dead, or has left: its routes go with it."""
        known = self.alive.pop(peer, None) or self.suspects.pop(peer, None)
        gone = self.forwarding.peer(peer)
        self.node.table.remove_peer(gone)
        if known is not None:
            self.dead.pop(peer, None)
            self.dead[peer] = gone.name
            if len(self.dead) > 1_000:
                del self.dead[next(iter(self.dead))]
        self._look(now)

    # --- other nodes' routes ---

    def apply(self, owner: int, key: bytes, value: bytes | None) -> bool:
        """Another node's map has changed at a key (None: deleted); False when the key is none of ours."""
        kind = key[:2]
        if kind not in (ROUTE, SHARE):
            return False
        try:
            if kind == ROUTE:
                self._apply_route(owner, key[2:], value)
            else:
                group, topic_filter = split_share(key)
                members = 0 if value is None else int.from_bytes(value[:4], "little")
                check_topic_filter(topic_filter)
                self.node.table.set_share(group, topic_filter, self.forwarding.peer(owner), members)
        except RemoteProtocolError:
            self.malformed += 1
        return True

    def _apply_route(self, owner: int, topic_filter: bytes, value: bytes | None) -> None:
        check_topic_filter(topic_filter)
        if value is None:
            self.node.table.remove_route(topic_filter, self.forwarding.peer(owner))
        else:
            self.node.table.add_route(topic_filter, self.forwarding.peer(owner))

    # --- this node's routes ---

    def tick(self, now: int) -> None:
        """Answer clean sessions that waited for long enough, and forget clients that left."""
        for pending in self._pending:
            if pending.done:
                continue
            if pending.session.connection is not pending.connection or pending.deadline <= now:
                self._answer(pending)
        self._pending = [pending for pending in self._pending if not pending.done]
        self._look(now)

    def flush(self, now: int) -> None:
        """Tell the others about this turn's changes; answer those whose routes are known everywhere."""
        touched = self.node.table.touched
        if touched:
            self._publish(touched)
            touched.clear()
        if self._asked:
            for pending in self._asked:
                for key in pending.keys:
                    pending.version = max(pending.version, self._fresh.get(key, self._settled))
            self._pending.extend(self._asked)
            self._asked = []
        if self._pending or self._fresh:
            self._look(now)

    def _publish(self, touched: set[tuple[bytes, bytes]]) -> None:
        table = self.node.table
        maps = self.maps
        for group, topic_filter in sorted(touched):
            if is_own_matter(topic_filter):
                continue
            key = key_of(group, topic_filter)
            count = table.count_own(group, topic_filter)
            value = min(count, MEMBERS_MAX).to_bytes(4, "little") if group else b""
            known = maps.get(self.node_id, key)
            if count == 0:
                if known is not None:
                    maps.delete(key)
                self._fresh.pop(key, None)
            elif known != value:
                # Where the map has no room (it counts and reports that), clients get only messages of this node.
                self._fresh[key] = maps.set(key, value)

    # --- SUBACKs ---

    def hold(
        self,
        connection: Connection,
        session: Session,
        suback: bytes,
        entered: list[Subscription],
        fresh: list[Subscription],
        now: int,
    ) -> bool:
        """Keep a SUBACK until all ALIVE nodes know its filters; False when they do."""
        if not self.alive:
            return False
        touched = self.node.table.touched
        keys: list[bytes] = []
        for subscription in entered:
            topic_filter = subscription.topic_filter
            if is_own_matter(topic_filter):
                continue
            key = key_of(subscription.group, topic_filter)
            is_new = touched is not None and (subscription.group, topic_filter) in touched
            if is_new or self._fresh.get(key, self._settled) > self._acknowledged:
                keys.append(key)
        if not keys:
            return False
        pending = Pending(connection, session, suback, keys, fresh)
        pending.deadline = now + (WAIT_MS if session.expiry_s else CLEAN_WAIT_MS)
        if len(self._pending) + len(self._asked) >= self.pending_max:
            pending.paused = True
            connection.waits_for += 1
            connection.reading_paused = True
            connection.mark()
        self._asked.append(pending)
        return True

    def mark(self) -> int:
        """The version with all subscriptions made so far; -1 while this node has not sent it yet."""
        return -1 if self.node.table.touched else self.maps.version

    def is_known(self, mark: int) -> bool:
        """Whether every node that is ALIVE has this version."""
        return all(self.maps.acknowledged(peer) >= mark for peer in self.alive)

    def waiting(self) -> int:
        """How many SUBACKs wait."""
        return len(self._pending) + len(self._asked)

    def _look(self, now: int) -> None:  # noqa: ARG002 deadlines are the tick's
        """Answer SUBACKs whose version every ALIVE node has by now."""
        acknowledged = self.maps.version
        for peer in self.alive:
            acknowledged = min(acknowledged, self.maps.acknowledged(peer))
        if self._fresh and acknowledged > self._acknowledged:
            self._settled = max(self._settled, acknowledged)
            self._fresh = {key: version for key, version in self._fresh.items() if version > acknowledged}
        self._acknowledged = acknowledged
        answered = 0
        for pending in self._pending:
            if pending.version > acknowledged:
                break
            self._answer(pending)
            answered += 1
        if answered:
            del self._pending[:answered]

    def _answer(self, pending: Pending) -> None:
        if pending.done:
            return
        pending.done = True
        subscribed(self.node, pending.connection, pending.session, pending.suback, pending.fresh)
        if pending.paused:
            pending.connection.waits_for -= 1
            pending.connection.start_reading_again()


def is_own_matter(topic_filter: bytes) -> bool:
    """Whether a filter matches each node's own topics: no wildcard matches names that begin with ``$``."""
    return topic_filter.startswith(b"$SYS/") or topic_filter == b"$SYS"


def key_of(group: bytes, topic_filter: bytes) -> bytes:
    """The key of a filter, or of a group at a filter, in the node's own map."""
    if not group:
        return ROUTE + topic_filter
    return SHARE + len(group).to_bytes(2, "little") + group + topic_filter


def split_share(key: bytes) -> tuple[bytes, bytes]:
    """Group and filter of a key that begins with ``s/``."""
    start = 4
    stop = start + int.from_bytes(key[2:4], "little")
    return key[start:stop], key[stop:]
