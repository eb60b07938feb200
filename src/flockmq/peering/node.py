"""A broker among others: membership, routes and retained messages around one ``Broker``, as one pure object.

```
 datagrams --> Swim ----- members alive, dead ---------.
 frames -----> parts, by channel --> Component --------+--> Broker: routes, retained messages
 clients ----> Broker --> what concerns other nodes ---'
                                   |
                              turn(): flush all --> frames, one per peer; datagrams; links to open and close
                                      consensus --> ship(): its frames leave as soon as it has spoken
```
A peer is *up* for the components when there is a link to it, it belongs to this node's cluster, and membership does not
hold it dead. With a peer that is linked but not up, this node exchanges only formation, membership and questions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flockmq.gossip.maps import OwnedMaps
from flockmq.gossip.maps_codec import Change
from flockmq.gossip.maps_settings import MapsSettings
from flockmq.gossip.member import (
    ALIVE_AGAIN,
    CHANGED,
    DEAD,
    DIED,
    HAS_LEFT,
    JOINED,
    LEFT,
    SUSPECTED,
    Member,
    MemberEvent,
)
from flockmq.gossip.swim import Swim
from flockmq.node.broker import Broker
from flockmq.peering.calls import Calls
from flockmq.peering.channels import CALLS, MAPS, MEMBERS, split_parts
from flockmq.peering.exchange import Exchange, Frames
from flockmq.peering.formation import FORMATION, decode_word
from flockmq.peering.forming import Formation
from flockmq.peering.forwarding import Forwarding
from flockmq.peering.retained import RetainedSync
from flockmq.peering.routes import Routes

if TYPE_CHECKING:
    import random

    from flockmq.gossip.settings import GossipSettings
    from flockmq.peering.ports import Component

CLIENTS: Final = b"f/clients"
"""How many clients a node has, four bytes, little-endian."""
CHANGES_MAX: Final = 2_000
"""Changes of other nodes' maps that are applied in one turn. The rest waits, and is not acknowledged before."""
FACTS_MS: Final = 2_000
"""How often a node checks whether its own figures for other nodes have changed."""


class LinkRequest:
    """A node that this node wants a link to (at an address), or no longer wants (the host is empty)."""

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port


class Base:
    """The parts that all components of a node use: the broker, the outbox, membership, owned maps, calls and routes."""

    def __init__(
        self,
        broker: Broker,
        me: Member,
        gossip: GossipSettings,
        ship: Callable[[int, list[bytes]], None],
        rng: random.Random,
        now: int,
    ) -> None:
        node_id, boot = me.node_id, me.boot
        self.broker = broker
        self.node_id = node_id
        self.boot = boot
        self.rng = rng
        self.exchange = Exchange(ship)
        self.maps = OwnedMaps(node_id, boot, self.exchange, MapsSettings(), rng, now)
        self.swim = Swim(gossip, me, rng, now, self.exchange, self.maps)
        self.calls = Calls(self.exchange, boot=boot)
        self.forwarding = Forwarding(broker.node, boot, self.exchange)
        self.routes = Routes(broker.node, node_id, self.forwarding, self.maps)
        self.retained = RetainedSync(node_id, broker.retained, self.exchange, broker.node.events, rng, now)


class Upper:
    """Hooks of durable topics, which use a clustered node: its links and maps."""

    def __init__(
        self, waking: set[int], writable: Callable[[int, bool], None], told: dict[bytes, Callable[[], None]]
    ) -> None:
        self.waking = waking
        """Channels whose components ask for a turn themselves, when a frame needs one."""
        self.writable = writable
        """Called when a link has room, or has none any more."""
        self.told = told
        """Called when other nodes tell something new under a key of their maps."""


class ClusterNode:
    """See the module."""

    def __init__(
        self,
        base: Base,
        formation: Formation,
        components: dict[int, Component],
        turn: tuple[tuple[str, Callable[[int], None]], ...],
        tick: tuple[tuple[str, Callable[[int], None]], ...],
        upper: Upper | None,
    ) -> None:
        """``turn``, ``tick``: the parts of this node in their order, by name. ``upper``: None without a store."""
        self.broker = base.broker
        self.node_id = base.node_id
        self.events: list[MemberEvent] = []
        """Events of members, for the log; taken by ``take_events``."""
        self.exchange = base.exchange
        self.swim = base.swim
        self.maps = base.maps
        self.calls = base.calls
        self.forwarding = base.forwarding
        self.routes = base.routes
        self.retained = base.retained
        self.formation = formation
        self.components = components
        self._flushes = [flush for _, flush in turn]
        self._ticks = [look for _, look in tick]
        self._upper = upper
        self._told: dict[bytes, Callable[[], None]] = upper.told if upper is not None else {}
        self._waking: set[int] = upper.waking if upper is not None else set()
        self._link_requests: list[LinkRequest] = []
        self._clusters = base.exchange.clusters
        self._up: dict[int, None] = {}
        self._changes_room = CHANGES_MAX
        """How many changes may still be applied in this turn."""
        self._facts_at = 0
        self._clients_told = -1

    @property
    def cluster_id(self) -> int:
        """The cluster that this node belongs to; 0: none yet."""
        return self.formation.cluster_id

    # --- the network ---

    def datagram(self, body: bytes, address: tuple[str, int], now: int) -> None:
        """A datagram of a sender that knows the cookie."""
        if self.cluster_id:
            self.swim.receive_datagram(body, address, now)
            self._follow_members(now)

    def link_up(self, peer: int, cluster_id: int, now: int) -> None:
        """There is a link to a node, which said that it belongs to this cluster (0: to none)."""
        self._clusters[peer] = cluster_id
        self.formation.peer_up(peer, now)
        self.calls.peer_up(peer, now)
        self._consider(peer, now)

    def link_down(self, peer: int, now: int) -> None:
        """The link is lost."""
        if self._clusters.pop(peer, None) is None:
            return
        self.exchange.forget(peer)
        self.formation.peer_down(peer, now)
        self.calls.peer_down(peer, now)
        self._set_down(peer, now)

    def frame(self, peer: int, frame: bytes, now: int) -> bool:
        """Read a frame of a linked node; FlockError: end the link. False: no part of the frame needs a turn."""
        wants_turn = False
        for channel, body in split_parts(frame):
            wants_turn = wants_turn or channel not in self._waking
            if channel == FORMATION:
                self.formation.receive(peer, body, now)
                self._clusters[peer] = decode_word(body).cluster_id
                self._consider(peer, now)
            elif channel == CALLS:
                self.calls.receive(peer, body, now)
            elif peer not in self._up:
                continue  # of another cluster, or held dead: the peer repeats its state once it is up
            elif channel == MEMBERS:
                self.swim.receive(peer, body, now)
            else:
                component = self.components.get(channel)
                if component is not None:
                    component.receive(peer, body, now)
                if channel == MAPS:
                    self._apply_changes()
        self._follow_members(now)
        return wants_turn

    def writable(self, peer: int, is_writable: bool) -> None:
        """The link's buffer has room, or has not."""
        if peer in self._clusters:
            self.forwarding.set_blocked(peer, not is_writable)
            if self._upper is not None:
                self._upper.writable(peer, is_writable)

    # --- time ---

    def tick(self, now: int) -> None:
        """Time passes."""
        if self.cluster_id:
            self.swim.tick(now)
            self._follow_members(now)
        for tick in self._ticks:
            tick(now)
        self._apply_changes()
        if now >= self._facts_at:
            self._facts_at = now + FACTS_MS
            self._tell_facts()

    def turn(self, now: int) -> Frames:
        """End a loop turn: for each peer with news, the pieces of one frame."""
        self._apply_changes()  # before the acknowledgements of this turn leave
        self._changes_room = CHANGES_MAX
        for flush in self._flushes:
            flush(now)
        return self.exchange.take_frames()

    def has_more(self) -> bool:
        """Whether another turn is needed, whatever else comes."""
        return self.maps.changes_left() > 0

    def take_link_requests(self) -> list[LinkRequest]:
        """Changes of the nodes that this node wants to be linked with."""
        requests = self._link_requests
        self._link_requests = []
        return requests

    def take_events(self) -> list[MemberEvent]:
        """Events of members since the last call."""
        events = self.events
        self.events = []
        return events

    # --- the cluster ---

    def belong(self, cluster_id: int, contacts: list[tuple[str, int]], now: int) -> None:
        """This node is part of a cluster from now on; its id is on disk."""
        self.formation.belong(cluster_id)
        self.swim.adopt_cluster(cluster_id, now)
        self.swim.join(contacts, now)
        self._follow_members(now)
        for peer in list(self._clusters):
            self._set_down(peer, now)
            self._consider(peer, now)

    def leave(self, now: int) -> None:
        """Take leave of all others; wills were published before."""
        self.swim.leave(now)
        self._follow_members(now)

    def member_of(self, node_id: int) -> Member | None:
        """A member that is known."""
        return self.swim.members.get(node_id)

    # --- within ---

    def _consider(self, peer: int, now: int) -> None:
        """See whether a linked peer is up for the components."""
        cluster_id = self._clusters.get(peer, 0)
        known = self.swim.members.get(peer)
        is_gone = known is not None and known.state in (DEAD, LEFT)
        belongs = cluster_id != 0 and cluster_id == self.cluster_id
        if belongs and known is not None and known.state == DEAD:
            self.swim.peer_up(peer, now)  # the node answers after all: let membership find out
        if belongs and not is_gone:
            self._set_up(peer, now)
        else:
            self._set_down(peer, now)

    def _set_up(self, peer: int, now: int) -> None:
        if peer in self._up:
            return
        self._up[peer] = None
        self.swim.peer_up(peer, now)
        for component in self.components.values():
            component.peer_up(peer, now)
        self.routes.peer_up(peer, now)

    def _set_down(self, peer: int, now: int) -> None:
        if peer not in self._up:
            return
        del self._up[peer]
        self.swim.peer_down(peer, now)
        for component in self.components.values():
            component.peer_down(peer, now)
        self.routes.peer_down(peer, now)

    def _follow_members(self, now: int) -> None:
        for event in self.swim.take_events():
            self.events.append(event)
            member = event.member
            peer = member.node_id
            if event.kind in (JOINED, ALIVE_AGAIN, CHANGED):
                self._link_requests.append(LinkRequest(peer, member.host, member.port))
                self.maps.peer_alive(peer, member.boot, now)
                self.routes.peer_alive(peer, member.name, now)
                self._consider(peer, now)
            elif event.kind == SUSPECTED:
                self.routes.peer_suspect(peer, now)
            elif event.kind in (DIED, HAS_LEFT):
                self._set_down(peer, now)
                for component in self.components.values():
                    component.peer_dead(peer, now)
                self._apply(self.maps.take_changes())  # apply its last changes first: none may come after its death
                self.routes.peer_dead(peer, now)
                self._link_requests.append(LinkRequest(peer, "", 0))
        self._apply_changes()

    def _apply_changes(self) -> None:
        """Apply waiting changes of maps, as many as this turn has room for."""
        if self._changes_room > 0:
            self._changes_room -= self._apply(self.maps.take_changes(self._changes_room))

    def _apply(self, changes: list[Change]) -> int:
        for change in changes:
            self.routes.apply(change.owner, change.key, change.value)
            told = self._told.get(change.key)
            if told is not None:
                told()
        return len(changes)

    def _tell_facts(self) -> None:
        clients = self.broker.node.online
        if clients != self._clients_told:
            self._clients_told = clients
            self.maps.set(CLIENTS, clients.to_bytes(4, "little"))
