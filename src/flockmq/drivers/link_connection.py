"""One connection between two nodes: the handshake, then frames both ways.

```
 HELLO is over (``link_gate`` or ``link_calls``) --> Connection: WELCOME, PROOF, ANSWER --> Links.established
                                                         frames <--> Links.send, on_frame
                                                         lost    --> Links.lost
```
The order of the handshake and its proofs are decided in ``wire/hello.py``, whether a peer is wanted in
``link_peers.py``.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Final, Protocol, cast

from flockmq.drivers.link_pulse import ASK, ASKS, SILENT, Pulse
from flockmq.errors import FlockError
from flockmq.wire import hello
from flockmq.wire.frames import PING, PONG, FrameReader, frame_head

if TYPE_CHECKING:
    import ssl

    from flockmq.drivers.links import Links
    from flockmq.security.link_tls import LinkTls

_PONG: Final = frame_head(PONG)
JOIN_BYTES: Final = 16 * 1024
"""Shorter frames are joined with their head: cheaper than two pieces. In TLS, where each is a record, all are."""
CONNECTION_LOST: Final = "The connection was lost."


class Settled(Protocol):
    """Hears how a handshake ended."""

    def __call__(self, connection: Connection, error: hello.HelloError | None) -> None:
        """The link is up, or there is none, and why."""


class Connection(asyncio.Protocol):
    """See the module. Made when HELLO was sent, or came and was right."""

    def __init__(
        self,
        links: Links,
        handshake: hello.Caller | hello.Callee,
        address: str,
        tls: LinkTls | None,
        on_settled: Settled,
    ) -> None:
        """``tls``: whose certificates are used on this connection; None when it is plain."""
        self.address = address
        """Of the other side, for people."""
        self.is_outgoing = isinstance(handshake, hello.Caller)
        self.peer: hello.PeerInfo | None = None
        """Once it is proved."""
        self.transport: asyncio.Transport | None = None
        self.is_up = False
        self.is_encrypted = tls is not None
        self._links = links
        self._handshake = handshake
        self._tls = tls
        self._on_settled: Settled | None = on_settled
        self._on_frame = links.on_frame
        self._peer_id = 0
        self._unsent_bytes_max = links.settings.unsent_bytes_max
        self._reader = FrameReader(links.settings.frame_bytes_max, knows_words=True)
        self.pulse = Pulse()

    # Frames.

    def send(self, frame: bytes) -> bool:
        """Send a frame, or say that there is no room for it."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return False  # a transport can be closed some time before it says so
        waiting = transport.get_write_buffer_size()
        if waiting and waiting + len(frame) > self._unsent_bytes_max:
            return False
        try:
            if self.is_encrypted or len(frame) < JOIN_BYTES:
                transport.write(frame_head(len(frame)) + frame)
            else:
                transport.writelines((frame_head(len(frame)), frame))
        except RuntimeError:  # uvloop's way to say that the socket is gone
            self.abort()
            return False
        return True

    def send_parts(self, parts: list[bytes], size: int) -> bool:
        """The same for a frame in pieces of ``size`` bytes together, which need not be joined for it."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return False  # a transport can be closed some time before it says so
        waiting = transport.get_write_buffer_size()
        if waiting and waiting + size > self._unsent_bytes_max:
            return False
        try:
            if self.is_encrypted or size < JOIN_BYTES:
                transport.write(b"".join((frame_head(size), *parts)))
            else:
                transport.writelines((frame_head(size), *parts))
        except RuntimeError:
            self.abort()
            return False
        return True

    def data_received(self, data: bytes) -> None:
        """Bytes of the other side, cut anywhere."""
        if not self.is_up:
            data = self._shake_hands(data)
            if not data:
                return
        self.pulse.heard = True
        try:
            for frame in self._reader.feed(data):
                self._on_frame(self._peer_id, frame)
                if self.transport is None:
                    return
        except FlockError as error:
            self._links.note_refused(self.address, hello.HelloError(hello.NOT_OURS, str(error), self.peer))
            self.abort()
        except Exception as error:  # a bug in the receiver of a frame must not end other links
            trace = "".join(traceback.format_exception(error)[-8:])
            self._links.events.note("internal_error", {"doing": "frame", "error": repr(error), "traceback": trace})
            self.abort()
        if self._reader.words:
            self._take_words()

    def _take_words(self) -> None:
        words, self._reader.words = self._reader.words, []
        if PING in words:
            self.say(_PONG)

    def unsent_bytes(self) -> int:
        """What waits here for the network."""
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    def set_reading(self, reading: bool) -> None:
        """Let the peer wait, or go on."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            try:
                (transport.resume_reading if reading else transport.pause_reading)()
            except RuntimeError:
                self.abort()

    # Life.

    def beat(self, now: int, keepalive_ms: int, may_ask: bool) -> bool:
        """See whether the peer is there; True when it was asked just now. Not heard of for too long: it is lost."""
        verdict = self.pulse.beat(now, keepalive_ms, self._links.settings.silence_ms, may_ask)
        if verdict == SILENT:
            seconds = (now - self.pulse.quiet_since) // 1_000
            fields = {"peer": f"{self._peer_id:016x}", "address": self.address, "quiet_s": seconds}
            self._links.events.note("link_silent", fields)
            self.abort()
        elif verdict == ASKS:
            self.say(ASK)
        return verdict == ASKS

    def say(self, word: bytes) -> None:
        """Send a word of the link itself: if the connection is dead, it shows."""
        if self.transport is not None and not self.transport.is_closing():
            try:
                self.transport.write(word)
            except RuntimeError:
                self.abort()

    def close(self) -> None:
        """Say what waits to be said, then end."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End now."""
        transport = self.transport
        if transport is not None:
            self.transport = None
            transport.abort()
            self._gone(CONNECTION_LOST)

    def give_way(self) -> None:
        """Another connection to the same peer is the link."""
        self._fail(hello.HelloError(hello.DUPLICATE, "Another connection to this node was first.", self.peer))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP is there, and TLS."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=self._links.settings.unsent_bytes_high)
        try:
            binding = self._binding()
        except hello.HelloError as error:
            self._fail(error)
            return
        if isinstance(self._handshake, hello.Caller):
            self._handshake.bind(binding)
        else:
            self.transport.write(self._handshake.welcome(binding))

    def eof_received(self) -> None:
        """The other side says no more: whatever was still to be said to it is of no use to it."""
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone, or the network."""
        self.transport = None
        self._gone(str(exc) if exc else CONNECTION_LOST)

    def pause_writing(self) -> None:
        """The peer takes less than it is sent."""
        if self.is_up:
            self._links.on_writable(self._peer_id, False)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self.is_up and self.transport is not None:
            self._links.on_writable(self._peer_id, True)

    def _gone(self, reason: str) -> None:
        if self.is_up:
            self.is_up = False
            self._links.lost(self)
        elif self.is_outgoing:
            self._settle(hello.HelloError(hello.SILENCE, _silence(self, reason), self.peer))
        else:
            self._settle(hello.HelloError(hello.SILENCE, "A caller left before it had proved itself.", self.peer))

    # The handshake.

    def _binding(self) -> bytes:
        """What stands for the certificates in the proofs."""
        if self._tls is None:
            return hello.NO_TLS
        assert self.transport is not None
        connection = cast("ssl.SSLObject", self.transport.get_extra_info("ssl_object"))
        certificate = connection.getpeercert(binary_form=True)
        assert certificate is not None, "both sides must show one"
        claimed = self._handshake.peer  # of a caller: by its HELLO
        if claimed is not None and not self._tls.is_of(connection, claimed.node_id):
            raise hello.HelloError(hello.TLS, "A caller shows the certificate of another node; look at the network.")
        if self.is_outgoing:
            return hello.binding_of(self._tls.certificate, certificate)
        return hello.binding_of(certificate, self._tls.certificate)

    def _shake_hands(self, data: bytes) -> bytes:
        """Go on with the handshake; returns what follows it."""
        if self.transport is None or self._on_settled is None:
            return b""
        try:
            stage = self._handshake.feed(data)
            if stage == hello.PROVED:
                self._other_is_proved()
        except hello.HelloError as error:
            self._fail(error)
            return b""
        if self._handshake.stage == hello.DONE:
            return self._begin()
        return b""

    def _other_is_proved(self) -> None:
        handshake, transport = self._handshake, self.transport
        assert transport is not None
        self.peer = peer = handshake.peer
        assert peer is not None
        if isinstance(handshake, hello.Caller):
            if self._tls is not None:
                connection = cast("ssl.SSLObject", transport.get_extra_info("ssl_object"))
                if not self._tls.is_of(connection, peer.node_id):
                    raise hello.HelloError(hello.TLS, "The called node shows the certificate of another node.", peer)
            self._links.peers.may_prove(self)
            transport.write(handshake.proof())
            return
        objection = handshake.objection() or self._links.peers.objection(self)
        transport.write(handshake.answer(objection))
        if objection is not None:
            transport.close()
            self._settle(objection)

    def _begin(self) -> bytes:
        assert self.peer is not None
        self._peer_id = self.peer.node_id
        self.is_up = True
        self._settle(None)
        self._links.established(self)
        return self._handshake.rest if isinstance(self._handshake, hello.Caller) else b""

    def _fail(self, error: hello.HelloError) -> None:
        """Not a word to a peer that is not proved."""
        self._settle(error)
        self.abort()

    def _settle(self, error: hello.HelloError | None) -> None:
        settled, self._on_settled = self._on_settled, None
        if error is not None:
            self._links.peers.abandoned(self)
        if settled is not None:
            settled(self, error)


def _silence(connection: Connection, reason: str) -> str:
    if connection.is_encrypted and reason != CONNECTION_LOST:
        return f"TLS with {connection.address} failed ({reason}); compare the cookies and certificates of both nodes."
    return (
        f"{connection.address} ended the connection without a word, as a node does with callers that have another "
        "cookie or go without TLS; compare the cookies and link_tls of both nodes."
    )
