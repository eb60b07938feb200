"""TCP between the nodes of a cluster: whole frames to a peer and from it, at most once, in order, or not at all.

```
 node 1                                                     node 2
 send(2, frame) --> connection that 1 opened --> greeting, frames --> on_frame(1, frame)
 on_frame(2, frame) <-- frames, greeting <-- connection that 2 opened <-- send(1, frame)
```
One connection per pair of nodes and direction: whoever opened it writes, the other only reads. A connection that is
lost is opened again after a wait that doubles, or at once when the peer itself calls. Nothing is kept for a peer that
can't be reached or that reads too slowly: a frame is dropped whole, because consensus sends again what still matters,
and old frames in a queue would only delay the new ones.

Nobody proves who they are yet, so links listen on and call loopback addresses only.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, cast

from flockmq.errors import ConfigError, FlockError
from flockmq.node.events import EventList
from flockmq.raft.codec import FRAME_BYTES_MAX
from flockmq.wire.frames import FrameReader, frame_head

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

GREETING: Final = struct.Struct("<4sIQQ")
"""Magic, version, who calls, who is meant."""
MAGIC: Final = b"FLKL"
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Bounds of the links of one node."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    """Longest frame that is read."""
    unsent_bytes_high: int = 2 * 1024 * 1024
    """With so many bytes waiting for a peer ``on_writable`` says no, and yes again at a quarter of it."""
    unsent_bytes_max: int = 32 * 1024 * 1024
    """Most bytes that wait for one peer. A frame is taken whenever nothing waits, however long it is."""
    retry_ms_min: int = 20
    """Wait before a lost connection is opened again; doubles with every attempt that fails."""
    retry_ms_max: int = 1_000
    """Longest such wait."""
    connect_ms: int = 3_000
    """How long a peer may take to accept, and a caller to say who it is."""
    connections_max: int = 256
    """Incoming connections; more are closed at once."""


class RaftLinks:
    """All links of one node. Create and use it inside a running event loop."""

    def __init__(
        self,
        node: int,
        on_frame: Callable[[int, bytes], None],
        on_writable: Callable[[int, bool], None],
        rng: random.Random,
        settings: LinkSettings | None = None,
    ) -> None:
        """``on_writable``: frames to a peer can be sent now, or would wait or be dropped; at first they would."""
        self.node = node
        self.on_frame = on_frame
        self.on_writable = on_writable
        self.settings = settings or LinkSettings()
        self.loop = asyncio.get_running_loop()
        self.rng = rng
        self.events = EventList()
        self.dropped = 0
        """Frames that were not sent."""
        self._outgoing: dict[int, _Outgoing] = {}
        self._incoming: dict[int, _Incoming] = {}
        self._callers: set[_Incoming] = set()
        """All incoming connections, also those that have not said who they are."""
        self._server: asyncio.Server | None = None
        self._reading = True

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Accept peers; returns the port."""
        _only_loopback(host)
        self._server = await self.loop.create_server(lambda: _Incoming(self), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def set_peer(self, node: int, host: str, port: int) -> None:
        """A peer is to be found there; it is called at once, and until ``forget_peer``."""
        _only_loopback(host)
        known = self._outgoing.get(node)
        if known is not None:
            if known.address == (host, port):
                return
            known.close()
        self._outgoing[node] = _Outgoing(self, node, (host, port))

    def forget_peer(self, node: int) -> None:
        """Say no more to a peer and hear no more from it."""
        outgoing = self._outgoing.pop(node, None)
        if outgoing is not None:
            outgoing.close()
        incoming = self._incoming.pop(node, None)
        if incoming is not None:
            incoming.close()

    def send(self, node: int, frame: bytes) -> bool:
        """Send a frame, or drop it; True says that it was handed to the network, not that it arrives."""
        outgoing = self._outgoing.get(node)
        if outgoing is not None and outgoing.send(frame):
            return True
        self.dropped += 1
        return False

    def connected(self) -> list[int]:
        """Peers that frames can be sent to now."""
        return [node for node, outgoing in self._outgoing.items() if outgoing.transport is not None]

    def set_reading(self, reading: bool) -> None:
        """Let peers wait, or go on: whoever takes the frames in has no room for more."""
        if reading is not self._reading:
            self._reading = reading
            for caller in self._callers:
                caller.set_reading(reading)

    def hang_up(self) -> None:
        """End all connections, have no new ones."""
        if self._server is not None:
            self._server.close()
        for node in list(self._outgoing):
            self.forget_peer(node)
        for caller in list(self._callers):
            caller.close()

    async def close(self) -> None:
        """The same, and wait until the port is free."""
        self.hang_up()
        if self._server is not None:
            await self._server.wait_closed()

    # What incoming connections say.

    def arrived(self, caller: _Incoming) -> bool:
        """Count a connection; False when there are too many."""
        if len(self._callers) >= self.settings.connections_max:
            return False
        self._callers.add(caller)
        if not self._reading:
            caller.set_reading(False)
        return True

    def greeted(self, caller: _Incoming, node: int) -> None:
        """A peer has said who it is. A new connection takes the place of an older one: the peer has given that up."""
        older = self._incoming.get(node)
        self._incoming[node] = caller
        if older is not None:
            older.close()
        outgoing = self._outgoing.get(node)
        if outgoing is not None:
            outgoing.call_now()

    def refused(self, peer: int, reason: str) -> None:
        """What a connection said can't be understood; it is closed."""
        self.events.note("link_refused", {"peer": peer, "reason": reason})

    def left(self, caller: _Incoming) -> None:
        """A connection is gone."""
        self._callers.discard(caller)
        if self._incoming.get(caller.peer) is caller:
            del self._incoming[caller.peer]


class _Outgoing(asyncio.Protocol):
    """The way to one peer: opened, greeted, written to, opened again."""

    def __init__(self, links: RaftLinks, peer: int, address: tuple[str, int]) -> None:
        self.address = address
        self.transport: asyncio.Transport | None = None
        self._links = links
        self._peer = peer
        self._wait_ms = links.settings.retry_ms_min
        self._since = 0.0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._calling: asyncio.Task[None] | None = links.loop.create_task(self._call())

    def send(self, frame: bytes) -> bool:
        transport = self.transport
        if transport is None:
            return False
        waiting = transport.get_write_buffer_size()
        if waiting and waiting + len(frame) > self._links.settings.unsent_bytes_max:
            return False
        transport.writelines((frame_head(len(frame)), frame))
        return True

    def call_now(self) -> None:
        """The peer called us, so it is there."""
        self._wait_ms = self._links.settings.retry_ms_min
        if self._timer is not None:
            self._timer.cancel()
            self._begin()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._calling is not None:
            self._calling.cancel()
            self._calling = None
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._closed:
            cast("asyncio.Transport", transport).abort()
            return
        self.transport = cast("asyncio.Transport", transport)
        self._since = self._links.loop.time()
        self.transport.set_write_buffer_limits(high=self._links.settings.unsent_bytes_high)
        self.transport.write(GREETING.pack(MAGIC, VERSION, self._links.node, self._peer))
        self._links.on_writable(self._peer, True)

    def pause_writing(self) -> None:
        self._links.on_writable(self._peer, False)

    def resume_writing(self) -> None:
        if self.transport is not None:
            self._links.on_writable(self._peer, True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (how it was lost changes nothing)
        self.transport = None
        if self._closed:
            return
        self._links.on_writable(self._peer, False)
        settings = self._links.settings
        if (self._links.loop.time() - self._since) * 1_000 > settings.retry_ms_max:
            self._wait_ms = settings.retry_ms_min  # it had worked
        self._retry()

    async def _call(self) -> None:
        try:
            async with asyncio.timeout(self._links.settings.connect_ms / 1_000):
                await self._links.loop.create_connection(lambda: self, *self.address)
        except (OSError, TimeoutError):
            self._calling = None
            self._retry()
        else:
            self._calling = None

    def _begin(self) -> None:
        self._timer = None
        if self._calling is None and self.transport is None and not self._closed:
            self._calling = self._links.loop.create_task(self._call())

    def _retry(self) -> None:
        if self._closed or self._timer is not None or self._calling is not None:
            return
        # Drawn, so that nodes which lost each other at the same moment do not call at the same moment for ever.
        wait_ms = self._links.rng.uniform(self._wait_ms / 2, self._wait_ms)
        self._wait_ms = min(2 * self._wait_ms, self._links.settings.retry_ms_max)
        self._timer = self._links.loop.call_later(wait_ms / 1_000, self._begin)


class _Incoming(asyncio.Protocol):
    """The way from one peer, who says first who it is."""

    def __init__(self, links: RaftLinks) -> None:
        self.peer = 0
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._greeting = b""
        self._reader = FrameReader(links.settings.frame_bytes_max)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = self._links.loop.call_later(self._links.settings.connect_ms / 1_000, self.close)
        if not self._links.arrived(self):
            self.close()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            if not self.peer:
                data = self._greet(data)
            for frame in self._reader.feed(data):
                self._links.on_frame(self.peer, frame)
        except FlockError as error:
            self._links.refused(self.peer, str(error))
            self.close()

    def _greet(self, data: bytes) -> bytes:
        """Take the greeting in; returns what follows it."""
        self._greeting += data
        if len(self._greeting) < GREETING.size:
            return b""
        magic, version, peer, meant = GREETING.unpack_from(self._greeting)
        if magic != MAGIC or version != VERSION:
            raise FlockError("Who called does not speak this version of the link protocol; look at its version.")
        if meant != self._links.node or peer in (0, meant):
            raise FlockError(f"Node {peer} looks for node {meant} here, which is {self._links.node}; fix its address.")
        if self._deadline is not None:
            self._deadline.cancel()
        rest = self._greeting[GREETING.size :]
        self._greeting = b""
        self.peer = peer
        self._links.greeted(self, peer)
        return rest

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (how it was lost changes nothing)
        self._forget()

    def close(self) -> None:
        """Hear no more of this."""
        if self._transport is not None:
            self._transport.abort()
        self._forget()

    def set_reading(self, reading: bool) -> None:
        if self._transport is None:
            return
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        self._links.left(self)


def _only_loopback(host: str) -> None:
    try:
        allowed = ip_address(host).is_loopback
    except ValueError:
        allowed = False
    if not allowed:
        raise ConfigError(
            f"Links between nodes can't use {host}: nodes do not prove who they are yet, so only loopback addresses "
            "(127.0.0.1) are allowed."
        )
