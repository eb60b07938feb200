"""Links between the nodes of a cluster: whole frames to a peer and from it, at most once, in order, or not at all.

```
                 listen --> link_gate: HELLO --.
 set_peer, call --> link_calls: HELLO, again --+--> link_connection: proofs --> established: on_up, on_writable
                                                                                frames <--> send, on_frame
                                                                                lost: on_writable, on_down, call again
```
One connection per pair of nodes carries both directions (``link_peers.py`` says which). Both sides prove the cookie
before a frame is read (``wire/hello.py``); off loopback the connection runs in TLS 1.3 (``security/link_tls.py``).

Nothing is kept for a peer that can't be reached or reads too slowly: a frame is dropped whole, and its sender sends
again what still matters when ``on_up`` says that there is a new link.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from flockmq.drivers.clock import now_ms
from flockmq.drivers.link_calls import PeerCalls, dial
from flockmq.drivers.link_gate import Gate
from flockmq.drivers.link_peers import LinkPeers
from flockmq.drivers.link_settings import LinkIdentity, LinkSettings
from flockmq.drivers.listeners import Bind, ListenerSettings, open_sockets
from flockmq.drivers.refusals import Refusals
from flockmq.errors import ConfigError
from flockmq.node.events import EventList
from flockmq.security.cookie import derive_key
from flockmq.security.link_tls import LinkTls, LinkTlsSettings
from flockmq.wire import hello
from flockmq.wire.hello import HelloError, PeerInfo

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from flockmq.drivers.link_connection import Connection

__all__ = ["HelloError", "LinkIdentity", "LinkSettings", "LinkStatus", "Links", "PeerInfo"]

ALL_ADDRESSES: Final = ("", "*")


def _welcome(caller: PeerInfo) -> str:  # noqa: ARG001
    """Every name will do."""
    return ""


class LinkStatus(NamedTuple):
    """One link, for people."""

    peer: PeerInfo
    address: str
    is_outgoing: bool
    is_encrypted: bool
    unsent_bytes: int


class Links:
    """All links of one node. Create and use it inside a running event loop."""

    def __init__(
        self,
        identity: LinkIdentity,
        on_up: Callable[[int, PeerInfo], None],
        on_down: Callable[[int], None],
        on_frame: Callable[[int, bytes], None],
        on_writable: Callable[[int, bool], None],
        rng: random.Random,
        settings: LinkSettings | None = None,
        tls: LinkTls | None = None,
        objects: Callable[[PeerInfo], str] = _welcome,
    ) -> None:
        """``on_frame`` may raise FlockError: the link is ended. ``on_writable``: there is room for more, or not.

        A link that comes up: ``on_up``, ``on_writable(True)``; one that is lost: ``on_writable(False)``, ``on_down``.
        ``objects``: why a caller that has proved itself can't be had because of its name; empty when it can.
        """
        if not identity.node_id:
            raise ConfigError("A node's id can't be 0; delete the file node_id in its data folder to have a new one.")
        if len(identity.name.encode()) > hello.NAME_BYTES_MAX or len(identity.version) > hello.VERSION_BYTES_MAX:
            raise ConfigError(f"The node's name has more than {hello.NAME_BYTES_MAX} bytes; give it a shorter one.")
        self.me = PeerInfo(identity.node_id, identity.boot, identity.cluster_id, identity.name, identity.version)
        self.key = derive_key(identity.cookie, "proofs of links")
        self.tls = tls or LinkTls(LinkTlsSettings(), identity.cookie, identity.node_id)
        """Replace it when certificates have changed: connections from then on use the new one."""
        self.on_up = on_up
        self.on_down = on_down
        self.on_frame = on_frame
        self.on_writable = on_writable
        self.rng = rng
        self.settings = settings or LinkSettings()
        self.loop = asyncio.get_running_loop()
        self.events = EventList()
        self.refusals = Refusals(self.events, "link_refused")
        self.dropped = 0
        """Frames that were not sent."""
        self.peers = LinkPeers(self.me, self.settings.links_max, objects)
        self._gate = Gate(self)
        self._reading = True
        self._all_gone: asyncio.Future[None] | None = None
        self._calling: set[asyncio.Task[PeerInfo]] = set()
        self._beat_at = now_ms()
        self._beat: asyncio.TimerHandle | None = self.loop.call_later(self.settings.beat_ms / 1_000, self._on_beat)

    # For the users of links.

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Accept peers at a name or an address, or everywhere (``""``); returns the port. FlockError tells why not."""
        binds: tuple[Bind, ...] = (Bind(host, port),)
        if host in ALL_ADDRESSES:
            binds = (Bind("0.0.0.0", port), Bind("::", port, optional=True))  # noqa: S104  (asked for)
        sockets = await open_sockets(ListenerSettings(name="cluster", binds=binds))
        self._gate.open(sockets)
        return int(sockets[0].getsockname()[1])

    def stop_listening(self) -> None:
        """Give the port back, and drop callers that have not proved themselves."""
        self._gate.close()

    def set_peer(self, node_id: int, host: str, port: int) -> None:
        """A peer is to be found there; it is called whenever there is no link, until ``forget_peer``."""
        if node_id == self.me.node_id or self.peers.is_closing:
            return
        peer = self.peers.of(node_id)
        calls = peer.calls
        if calls is not None:
            if (calls.host, calls.port) == (host, port):
                return
            calls.close()
        peer.calls = PeerCalls(self, node_id, host, port)
        if node_id not in self.peers.up:
            peer.calls.begin()

    def forget_peer(self, node_id: int) -> None:
        """Call a peer no more, and end the link to it; should it call, it is heard."""
        peer = self.peers.known.get(node_id)
        if peer is not None and peer.calls is not None:
            peer.calls.close()
            peer.calls = None
        link = self.peers.up.get(node_id)
        if link is not None:
            link.abort()
        self.peers.tidy(node_id)

    async def call(self, host: str, port: int) -> PeerInfo:
        """Call the node there, and have a link to it; HelloError tells why there is none (``kind``, ``peer``)."""
        if self.peers.is_closing:
            raise HelloError(hello.CLOSING, "This node is being stopped.")
        task = self.loop.create_task(self._call(host, port))
        self._calling.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.peers.is_closing:
                raise HelloError(hello.CLOSING, "This node is being stopped.") from None
            raise
        finally:
            task.cancel()
            self._calling.discard(task)

    def send(self, peer_id: int, frame: bytes) -> bool:
        """Send a frame, or drop it; True says that it was handed to the network, not that it arrives."""
        link = self.peers.up.get(peer_id)
        if link is not None and len(frame) <= self.settings.frame_bytes_max and link.send(frame):
            return True
        self.dropped += 1
        return False

    def send_parts(self, peer_id: int, parts: list[bytes]) -> bool:
        """Send one frame that lies in pieces, which need not be joined; else the same."""
        link = self.peers.up.get(peer_id)
        size = sum(map(len, parts))
        if link is not None and size <= self.settings.frame_bytes_max and link.send_parts(parts, size):
            return True
        self.dropped += 1
        return False

    def connected(self) -> list[int]:
        """Peers with a link."""
        return list(self.peers.up)

    def info(self, peer_id: int) -> PeerInfo | None:
        """The name, version and address of a peer with a link."""
        link = self.peers.up.get(peer_id)
        return link.peer if link is not None else None

    def unsent_bytes(self, peer_id: int) -> int:
        """Bytes that wait here for a peer."""
        link = self.peers.up.get(peer_id)
        return link.unsent_bytes() if link is not None else 0

    @property
    def unproven(self) -> int:
        """Callers that have not proved themselves."""
        return len(self._gate.strangers) + len(self._gate.proving)

    def status(self) -> list[LinkStatus]:
        """All links."""
        return [
            LinkStatus(link.peer, link.address, link.is_outgoing, link.is_encrypted, link.unsent_bytes())
            for link in self.peers.up.values()
            if link.peer is not None
        ]

    def set_cluster_id(self, cluster_id: int) -> None:
        """This node is in a cluster now; links that are up stay."""
        self.me.cluster_id = cluster_id

    def set_reading(self, reading: bool) -> None:
        """Let peers wait, or go on: the receiver of frames has no room for more."""
        if reading is not self._reading:
            self._reading = reading
            for link in list(self.peers.up.values()):
                link.set_reading(reading)

    def hang_up(self) -> None:
        """End all connections now, have no new ones."""
        self._stop()
        for link in list(self.peers.up.values()):
            link.abort()
        self.peers.known.clear()

    async def close(self) -> None:
        """Accept and call no more, let what was sent leave, end all connections."""
        self._stop()
        for link in list(self.peers.up.values()):
            link.set_reading(True)
            link.close()
        if self.peers.up:
            self._all_gone = self.loop.create_future()
            await asyncio.wait([self._all_gone], timeout=self.settings.close_ms / 1_000)
        self.hang_up()

    # What calls, arrivals and connections say.

    def established(self, connection: Connection) -> None:
        """Both sides are proved and agree: this is the link now."""
        info = connection.peer
        assert info is not None
        node_id = info.node_id
        peer = self.peers.of(node_id)
        other, peer.proving = peer.proving, None
        if other is not None and other is not connection:
            other.give_way()
        older = self.peers.up.pop(node_id, None)
        if older is not None:
            self._down(node_id)
            older.abort()
        self.peers.up[node_id] = connection
        if peer.calls is not None:
            peer.calls.up()
        if not self._reading:
            connection.set_reading(False)
        for waiting in peer.waiting:
            if not waiting.done():
                waiting.set_result(info)
        peer.waiting = []
        self.on_up(node_id, info)
        if self.peers.up.get(node_id) is connection:
            self.on_writable(node_id, True)

    def lost(self, connection: Connection) -> None:
        """A connection that was up is gone."""
        info = connection.peer
        assert info is not None
        if self.peers.up.get(info.node_id) is not connection:
            return  # another has taken its place, and that was told
        del self.peers.up[info.node_id]
        peer = self.peers.known.get(info.node_id)
        if peer is not None and peer.calls is not None:
            peer.calls.lost()
        self._down(info.node_id)
        self.peers.tidy(info.node_id)
        if not self.peers.up and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def note_refused(self, address: str, error: HelloError) -> None:
        """A node that called, or was called, was refused."""
        peer = error.peer.node_id if error.peer is not None else 0
        self.refusals.note(address, hello.KIND_NAMES[error.kind], str(error), peer)

    # Inside.

    async def _call(self, host: str, port: int) -> PeerInfo:
        try:
            connection = await dial(self, host, port, 0)
        except HelloError as error:
            if error.kind != hello.DUPLICATE or error.peer is None:
                raise
            return await self._until_up(error.peer.node_id, error)
        info = connection.peer
        assert info is not None
        return info

    async def _until_up(self, node_id: int, error: HelloError) -> PeerInfo:
        """Another connection to the same node was first; wait until it is up."""
        link = self.peers.up.get(node_id)
        if link is not None and link.peer is not None:
            return link.peer
        waiting: asyncio.Future[PeerInfo] = self.loop.create_future()
        self.peers.of(node_id).waiting.append(waiting)
        try:
            async with asyncio.timeout(self.settings.connect_ms / 1_000):
                return await waiting
        except TimeoutError:
            raise error from None
        finally:
            peer = self.peers.known.get(node_id)
            if peer is not None and waiting in peer.waiting:
                peer.waiting.remove(waiting)
                self.peers.tidy(node_id)

    def _down(self, node_id: int) -> None:
        self.on_writable(node_id, False)
        self.on_down(node_id)

    def _stop(self) -> None:
        self.peers.is_closing = True
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        self._gate.close()
        for task in self._calling:
            task.cancel()
        for peer in list(self.peers.known.values()):
            if peer.calls is not None:
                peer.calls.close()
                peer.calls = None
            if peer.proving is not None:
                peer.proving.abort()

    def _on_beat(self) -> None:
        self._beat = self.loop.call_later(self.settings.beat_ms / 1_000, self._on_beat)
        now = now_ms()
        late = now - self._beat_at > 3 * self.settings.beat_ms
        self._beat_at = now
        settings = self.settings
        keepalive_ms = max(settings.keepalive_ms, len(self.peers.up) * 1_000 // settings.keepalives_per_s_max)
        asked = 0
        for link in list(self.peers.up.values()):
            if late:
                link.pulse.forgive()
            elif link.beat(now, keepalive_ms, asked < settings.keepalives_per_s_max):
                asked += 1
