"""Drives one ``ClusterNode``: links, datagrams and time on one side, the pure node on the other.

```
 links: up, down, frames --.                           .--> one frame per peer
 datagrams ----------------+--> ClusterNode --turn()---+--> datagrams, sealed
 the broker's tick --------'                           '--> links to have, links to end; events for the log
```
A turn ends with the broker's flush, so everything that a loop turn brought goes into one frame per peer. Consensus has
its frames sent in the middle of a turn: then there may be a second one, with what the rest of the turn brought.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Final

from flockmq.drivers.clock import now_ms
from flockmq.drivers.runner import Runner
from flockmq.errors import FlockError
from flockmq.gossip.member import EVENT_NAMES, SUSPECTED
from flockmq.peering.kinds import PING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flockmq.drivers.datagrams import Datagrams
    from flockmq.drivers.links import Links, PeerInfo
    from flockmq.node.events import Event
    from flockmq.peering.node import ClusterNode

PING_MS: Final = 2_000
"""How often the way to each peer is measured."""
FRAME_BYTES: Final = 8 * 1024 * 1024
"""A turn that has more to say to a peer says it in several frames."""
_WALL: Final = struct.Struct("<q")


class Measured:
    """How far away a peer is."""

    __slots__ = ("clock_offset_ms", "rtt_ms")

    def __init__(self, rtt_ms: float, clock_offset_ms: float) -> None:
        self.rtt_ms = rtt_ms
        self.clock_offset_ms = clock_offset_ms


class ClusterRunner:
    """The loop's side of a clustered node. ``start`` it when links and datagrams are there."""

    def __init__(self, node: ClusterNode, on_events: Callable[[list[Event]], None], connections_max: int = 0) -> None:
        """As ``Runner``, which it makes for the node's broker."""
        self.node = node
        self.runner = Runner(node.broker, on_events, connections_max, self)
        self.measured: dict[int, Measured] = {}
        self._links: Links | None = None
        self._datagrams: Datagrams | None = None
        self._ping_at = 0
        node.calls.serve(PING, lambda _body: _WALL.pack(_wall_ms()))

    def start(self, links: Links, datagrams: Datagrams) -> None:
        """Begin."""
        self._links = links
        self._datagrams = datagrams

    def stop(self) -> None:
        """Say no more."""
        self.turn()
        self._tell_events()
        self._links = None
        self._datagrams = None

    # What links and datagrams say.

    def link_up(self, peer: int, info: PeerInfo) -> None:
        """There is a link."""
        self.node.link_up(peer, info.cluster_id, now_ms())
        self.runner.flush_soon()

    def link_down(self, peer: int) -> None:
        """There is none any more."""
        self.measured.pop(peer, None)
        self.node.link_down(peer, now_ms())
        self.runner.flush_soon()

    def frame(self, peer: int, frame: bytes) -> None:
        """A frame has come; FlockError ends the link."""
        wants_turn = True
        try:
            wants_turn = self.node.frame(peer, frame, now_ms())
        except FlockError:
            raise
        except Exception as error:
            self.runner.fault("frame", error, peer=f"{peer:016x}")
            raise FlockError("A frame could not be understood.") from error
        finally:
            if wants_turn:
                self.runner.flush_soon()

    def writable(self, peer: int, is_writable: bool) -> None:
        """The link has room, or not."""
        self.node.writable(peer, is_writable)
        self.runner.flush_soon()

    def datagram(self, sender: int, body: bytes, address: tuple[str, int]) -> None:  # noqa: ARG002  (it is in the body)
        """A datagram of a node that knows the cookie."""
        self.runner.guard("datagram", lambda: self.node.datagram(body, address, now_ms()))
        self.runner.flush_soon()

    # Turns.

    def tick(self, now: int) -> None:
        """Time passes."""
        if self._links is None:
            return
        self.node.tick(now)
        if now >= self._ping_at:
            self._ping_at = now + PING_MS
            self._measure()
        self._tell_events()
        self.runner.flush_soon()

    def turn(self) -> bool:
        """End a loop turn; False when something is left to be said to the others."""
        links, datagrams = self._links, self._datagrams
        if links is None or datagrams is None:
            return True
        node = self.node
        try:
            for peer, pieces in node.turn(now_ms()):
                _send(links, peer, pieces)
            for address, body in node.swim.take_datagrams():
                datagrams.send(address, body)
            for request in node.take_link_requests():
                if request.host:
                    links.set_peer(request.node_id, request.host, request.port)
                else:
                    links.forget_peer(request.node_id)
        except Exception as error:  # a bug must be seen, and must not stop the loop for all
            self.runner.fault("cluster turn", error)
        if node.has_more():
            self.runner.flush_soon()
        if node.broker.node.dirty_peers:
            self.runner.flush_soon()
            return False
        return True

    def ship(self, peer: int, pieces: list[bytes]) -> None:
        """Send a frame before the turn ends. Errors are logged; the caller (consensus) goes on."""
        if self._links is not None:
            try:
                _send(self._links, peer, pieces)
            except Exception as error:
                self.runner.fault("cluster turn", error)

    def _tell_events(self) -> None:
        """What happened, for the log, which is written with each tick."""
        for source in (self._links, self._datagrams):
            if source is not None:
                for noted in source.events.take():
                    self.runner.events.note(noted.kind, noted.fields)
        for event in self.node.take_events():
            member = event.member
            kind = "node_suspected" if event.kind == SUSPECTED else f"node_{EVENT_NAMES[event.kind]}"
            self.runner.events.note(
                kind,
                {"name": member.name, "node_id": f"{member.node_id:016x}", "address": f"{member.host}:{member.port}"},
            )

    def _measure(self) -> None:
        links = self._links
        if links is None:
            return
        for peer in links.connected():
            self._ping(peer)

    def _ping(self, peer: int) -> None:
        began = time.perf_counter()
        wall_ms = _wall_ms()

        def measured(body: bytes | None) -> None:
            if body is None or len(body) != _WALL.size:
                return
            rtt_ms = (time.perf_counter() - began) * 1_000
            theirs: int = _WALL.unpack(body)[0]
            self.measured[peer] = Measured(rtt_ms, theirs - wall_ms - rtt_ms / 2)

        self.node.calls.ask(peer, PING, b"").then(measured)


def _send(links: Links, peer: int, pieces: list[bytes]) -> None:
    """One frame, or several when there is that much to say. Pieces come in pairs: a head and its body."""
    size = sum(map(len, pieces))
    if size <= FRAME_BYTES:
        links.send_parts(peer, pieces)
        return
    start = 0
    size = 0
    for position in range(0, len(pieces), 2):
        part = len(pieces[position]) + len(pieces[position + 1])
        if size and size + part > FRAME_BYTES:
            links.send_parts(peer, pieces[start:position])
            start, size = position, 0
        size += part
    links.send_parts(peer, pieces[start:])


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
