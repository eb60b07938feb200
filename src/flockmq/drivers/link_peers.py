"""Other nodes that something is going on with, and which of several connections to one of them becomes its link.

```
 called: may_prove(connection) --> proving: our proof is out --> up, or abandoned
 calls:  objection(connection) --> why the caller can't be had; None: its connection is the link
```
When two nodes call each other at once, the one with the smaller id decides which connection stays: it refuses the
other's call from the moment that its own proof is out, and the other accepts every call of it. So both keep the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.drivers.link_pulse import ASK
from flockmq.wire import hello
from flockmq.wire.hello import HelloError, PeerInfo

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from flockmq.drivers.link_calls import PeerCalls
    from flockmq.drivers.link_connection import Connection


class Peer:
    """What is going on with one other node; forgotten when that is nothing."""

    def __init__(self) -> None:
        self.calls: PeerCalls | None = None
        self.proving: Connection | None = None
        """A call of ours whose proof is out."""
        self.waiting: list[asyncio.Future[PeerInfo]] = []


class LinkPeers:
    """One per node. ``objects``: why a caller can't be had because of its name; empty when it can."""

    def __init__(self, me: PeerInfo, links_max: int, objects: Callable[[PeerInfo], str]) -> None:
        self.up: dict[int, Connection] = {}
        """The link to each peer that has one."""
        self.known: dict[int, Peer] = {}
        self.is_closing = False
        """This node is being stopped: no new links."""
        self._me = me
        self._links_max = links_max
        self._objects = objects

    def of(self, node_id: int) -> Peer:
        """A peer; a new one if nothing was going on with it."""
        peer = self.known.get(node_id)
        if peer is None:
            peer = self.known[node_id] = Peer()
        return peer

    def tidy(self, node_id: int) -> None:
        """Forget a peer if nothing goes on with it any more."""
        peer = self.known.get(node_id)
        if peer is not None and peer.calls is None and peer.proving is None and not peer.waiting:
            del self.known[node_id]

    def may_prove(self, connection: Connection) -> None:
        """A node that was called has proved itself; HelloError: we do not want this connection after all."""
        info = connection.peer
        assert info is not None
        if self.is_closing:
            raise HelloError(hello.CLOSING, "This node is being stopped.", info)
        link = self.up.get(info.node_id)
        if link is not None and link.peer is not None and link.peer.boot >= info.boot:
            raise HelloError(hello.DUPLICATE, "There is a link to this node already.", info)
        peer = self.of(info.node_id)
        if peer.proving is not None and peer.proving is not connection:
            raise HelloError(hello.DUPLICATE, "Another call to this node is further on.", info)
        peer.proving = connection

    def abandoned(self, connection: Connection) -> None:
        """A call has come to nothing."""
        info = connection.peer
        peer = self.known.get(info.node_id) if info is not None else None
        if peer is not None and info is not None and peer.proving is connection:
            peer.proving = None
            self.tidy(info.node_id)

    def objection(self, connection: Connection) -> HelloError | None:
        """A caller has proved itself; why it can't be had all the same."""
        info = connection.peer
        assert info is not None
        if self.is_closing:
            return HelloError(hello.CLOSING, "This node is being stopped.", info)
        why = self._objects(info)
        if why:
            return HelloError(hello.NAME, why, info)
        link = self.up.get(info.node_id)
        peer = self.known.get(info.node_id)
        decides = not hello.yields_to(self._me.node_id, info.node_id)
        if link is None and len(self.up) >= self._links_max:
            return HelloError(hello.TOO_MANY, f"There are {len(self.up):,} links already, the most there may be.", info)
        if link is not None and link.peer is not None:
            if link.peer.boot > info.boot:
                text = f"A later start of node {info.node_id:016x} has a link; stop one of the two."
                return HelloError(hello.OLDER, text, info)
            if decides and link.is_outgoing and link.peer.boot == info.boot:
                link.say(ASK)  # if the peer has given it up, that shows now, and its next call is heard
                return HelloError(hello.DUPLICATE, "There is a link between these nodes already.", info)
        proving = peer.proving.peer if peer is not None and peer.proving is not None else None
        if decides and proving is not None and proving.boot >= info.boot:
            return HelloError(hello.DUPLICATE, "These nodes call each other; the other call is further on.", info)
        return None
