"""MQTT over WebSocket (``ws`` and ``wss``): an HTTP request first, then frames around the same bytes.

```
 connection_made --> upgrade request (own deadline: the broker does not know this connection yet)
                         |-- refused --> HTTP error, goodbye
                         `-- accepted --> broker.open
 frames --> decoder --> broker.receive             flush --> one binary frame per loop turn
              `--> pong; close --> broker.closed, close frame, goodbye
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.drivers.clock import now_ms
from flockmq.drivers.tcp import Arrival, MqttProtocol
from flockmq.wire.upgrade import Refusal, UpgradeParser
from flockmq.wire.websocket import FRAME_BYTES_MAX, NORMAL, FrameDecoder, close_frame, frame_header

if TYPE_CHECKING:
    import asyncio

    from flockmq.drivers.listeners import Listener
    from flockmq.session.connection import Connection

FRAME_BYTES_LEAST: Final = 16_777_216
"""Frames up to here are taken whatever the packet limit is: they may hold many packets and are never collected."""


class WebSocketProtocol(MqttProtocol):
    """One WebSocket connection; exactly one of parser and decoder is there while it lives."""

    __slots__ = ("_decoder", "_parser")

    def __init__(self, listener: Listener, arrival: Arrival | None = None) -> None:
        super().__init__(listener, arrival)
        self._parser: UpgradeParser | None = None
        self._decoder: FrameDecoder | None = None

    def begin(self, arrival: Arrival) -> None:
        """Wait for the upgrade request."""
        self._arrival = arrival
        self._parser = UpgradeParser(self.listener.path, self.listener.origins)
        self.listener.handshakes.begin(self, now_ms())

    def data_received(self, data: bytes) -> None:
        """Take bytes of the request, or frames."""
        try:
            if self._parser is not None:
                self._upgrade(self._parser, data)
            elif self.connection is not None and self._decoder is not None:
                self._decode(self.connection, self._decoder, data)
        except Exception as error:
            self.fail("receive", error)

    def _upgrade(self, parser: UpgradeParser, data: bytes) -> None:
        arrival = self._arrival
        transport = self.transport
        answer = parser.feed(data)
        if answer is None or arrival is None or transport is None:
            return
        self._parser = None
        transport.write(answer.response)
        if isinstance(answer, Refusal):
            where = {"listener": self.listener.name, "peer": arrival.peer}
            self.listener.runner.events.note("websocket_refused", {**where, "reason": answer.text})
            self.leave()
            return
        self._decoder = FrameDecoder(max(self.listener.limits.packet_bytes_max or FRAME_BYTES_MAX, FRAME_BYTES_LEAST))
        self.open(arrival)
        if answer.rest:
            self.data_received(answer.rest)

    def _decode(self, connection: Connection, decoder: FrameDecoder, data: bytes) -> None:
        payload = decoder.feed(data)
        if payload:
            self.receive(connection, payload)
        if decoder.close_code:
            self._end(connection, decoder)
        elif self.connection is connection and self.transport is not None and not connection.blocked:
            reply = decoder.take_reply()
            if reply:
                self.transport.write(reply)

    def _end(self, connection: Connection, decoder: FrameDecoder) -> None:
        """The peer closed, or broke the rules: what it sent before that still counts."""
        if decoder.error:
            where = {"listener": self.listener.name, "peer": connection.peer}
            self.listener.runner.events.note("websocket_error", {**where, "reason": decoder.error})
        self.flush(connection)
        self.close_for_broker()
        self.leave()

    def resume_writing(self) -> None:
        """Send the pong that had to wait, then go on."""
        super().resume_writing()
        decoder = self._decoder
        if decoder is not None and self.connection is not None and self.transport is not None:
            reply = decoder.take_reply()
            if reply:
                self.transport.write(reply)

    def write(self, transport: asyncio.Transport, chunks: list[bytes]) -> None:
        """Write the bytes of one loop turn as one frame."""
        super().write(transport, [frame_header(sum(map(len, chunks))), *chunks])

    def leave(self) -> None:
        """Say goodbye in WebSocket's words first."""
        decoder = self._decoder
        if decoder is not None and self.transport is not None and not self._leaving:
            self.transport.write(decoder.take_reply() if decoder.close_code else close_frame(NORMAL))
        super().leave()

    def deadline_passed(self) -> None:
        """End a handshake or a goodbye that takes too long; the deadline of a finished handshake means nothing."""
        if self._parser is not None or self._leaving:
            super().deadline_passed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self._parser = None
        super().connection_lost(exc)
