"""A broker with real sockets inside a test, and the little of a client that listener tests need.

``await until(condition)`` is how these tests wait: for a condition, never for a time.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from flockmq.drivers.clock import now_ms
from flockmq.drivers.listeners import Bind, Listener, ListenerSettings
from flockmq.drivers.runner import Runner
from flockmq.node.broker import Broker
from flockmq.node.events import Event
from flockmq.node.ports import Gate, OpenGate
from flockmq.node.settings import BrokerSettings
from flockmq.wire.upgrade import check_client_response, client_request
from flockmq.wire.websocket import FrameDecoder, encode_client_frame

Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPBACK = (Bind("127.0.0.1", 0),)
KEY = b"\x01\x02\x03\x04"
CONNACK = b"\x20\x02\x00\x00"


class Node:
    """A broker, its runner, and the events that came out of it."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.broker = Broker(BrokerSettings(sys_interval_ms=0), gate or OpenGate(), random.Random(1), now_ms())
        self.events: list[Event] = []
        self.runner = Runner(self.broker, self.events.extend)

    async def listen(self, **settings: Any) -> Listener:
        """Start a listener on loopback; give only what matters to the test."""
        made = ListenerSettings(**{"name": "test", "binds": LOOPBACK, **settings})
        listener = Listener(made, self.runner)
        await listener.start()
        return listener

    async def event(self, kind: str) -> Event:
        """Wait for an event of this kind."""
        await until(lambda: any(event.kind == kind for event in self.events))
        return next(event for event in self.events if event.kind == kind)


@asynccontextmanager
async def running(gate: Gate | None = None) -> AsyncIterator[Node]:
    node = Node(gate)
    node.runner.start()
    try:
        yield node
    finally:
        await node.runner.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Come back when the condition holds; the test's time limit is the end of waiting."""
    while not condition():  # noqa: ASYNC110  (conditions of other people's objects have no event)
        await asyncio.sleep(0.005)


def connect_packet(client_id: str, version: int = 4) -> bytes:
    body = b"\0\x04MQTT" + bytes((version, 2, 0, 0)) + (b"\0" if version == 5 else b"")
    body += len(client_id).to_bytes(2, "big") + client_id.encode()
    return bytes((0x10, len(body))) + body


def publish_packet(topic: bytes, payload: bytes) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic + payload
    length, head = len(body), b"\x30"
    while length > 127:
        head += bytes((length & 127 | 128,))
        length >>= 7
    return head + bytes((length,)) + body


def subscribe_packet(topic_filter: bytes) -> bytes:
    body = b"\0\x01" + len(topic_filter).to_bytes(2, "big") + topic_filter + b"\0"
    return bytes((0x82, len(body))) + body


class Client:
    """A raw client: bytes as they are on the wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, listener: Listener, tls: ssl.SSLContext | None = None, before: bytes = b"") -> Client:
        """Connect to a listener's first address; ``before`` is sent ahead of everything, also of TLS."""
        host, port = listener.addresses[0]
        if not before:
            return cls(*await asyncio.open_connection(host, port, ssl=tls))
        loop = asyncio.get_running_loop()
        plain = socket.create_connection((host, port))
        plain.sendall(before)
        plain.setblocking(False)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        name = "localhost" if tls is not None else None
        transport, _ = await loop.create_connection(lambda: protocol, sock=plain, ssl=tls, server_hostname=name)
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self, expected: bytes) -> None:
        """The next bytes are exactly these."""
        assert await self.read(len(expected)) == expected

    async def read(self, count: int) -> bytes:
        """Return the next bytes of MQTT."""
        return await self.reader.readexactly(count)

    async def connect(self, client_id: str = "c", version: int = 4) -> None:
        """Log in and be accepted."""
        self.send(connect_packet(client_id, version))
        if version == 4:
            await self.receive(CONNACK)
        else:
            head = await self.read(2)
            assert head[0] == 0x20
            assert (await self.read(head[1]))[1] == 0

    async def ping(self) -> None:
        """The broker answers, so it has read all that was sent before."""
        self.send(b"\xc0\x00")
        await self.receive(b"\xd0\x00")

    def stop_reading(self) -> None:
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def start_reading(self) -> None:
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    async def closed(self) -> bytes:
        """Wait for the other side's end; the bytes that came before it."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """End the connection as a crashed machine does."""
        transport = self.writer.transport
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        transport.abort()


class WebSocketClient(Client):
    """The same, inside frames; the payloads of all frames are one stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.decoder = FrameDecoder(from_client=False)
        self._payload = b""

    async def upgrade(self, path: str = "/mqtt", follows: bytes = b"") -> None:
        self.send_raw(client_request("localhost", path, bytes(16)) + follows)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        assert check_client_response(answer, bytes(16)) == b""

    def send_raw(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, data: bytes, first: int = 0x82) -> None:
        self.writer.write(encode_client_frame(data, KEY, first))

    async def read(self, count: int) -> bytes:
        while len(self._payload) < count:
            data = await self.reader.read(65_536)
            assert data, f"closed after {self._payload!r}"
            self._payload += self.decoder.feed(data)
        found, self._payload = self._payload[:count], self._payload[count:]
        return found

    async def closed(self) -> bytes:
        return self._payload + self.decoder.feed(await super().closed())
