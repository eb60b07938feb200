"""Chapters 4.2, 6 and 7: the byte streams a server offers, over real sockets; WebSocket frames made by hand."""

from __future__ import annotations

import asyncio
import base64
import hashlib

import pytest

from conformance.clauses import clause
from conformance.wire import DISCONNECT, PINGREQ, PINGRESP, connect, hexa
from flockmq.drivers.listeners import Listener
from integration.support.node import running

KEY = base64.b64encode(bytes(range(16)))
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONNACK = hexa("20 02 00 00")
CONNECT = connect(b"c", version=4)
BINARY, TEXT, CONTINUATION = 0x82, 0x81, 0x80


def request(protocols: bytes | None = b"mqtt") -> bytes:
    """The request of a WebSocket client, as RFC 6455 shows it."""
    lines = [
        b"GET /mqtt HTTP/1.1", b"Host: localhost", b"Upgrade: websocket", b"Connection: Upgrade",
        b"Sec-WebSocket-Key: " + KEY, b"Sec-WebSocket-Version: 13",
    ]  # fmt: skip
    if protocols is not None:
        lines.append(b"Sec-WebSocket-Protocol: " + protocols)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def frame(data: bytes, first: int = BINARY) -> bytes:
    """A masked frame of less than 126 bytes."""
    mask = b"\x37\xfa\x21\x3d"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    return bytes((first, 0x80 | len(data))) + mask + masked


class WebSocket:
    """One connection, after the handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.answer = b""

    @classmethod
    async def open(cls, listener: Listener, protocols: bytes | None = b"mqtt") -> WebSocket:
        host, port = listener.addresses[0]
        opened = cls(*await asyncio.open_connection(host, port))
        opened.writer.write(request(protocols))
        opened.answer = await opened.reader.readuntil(b"\r\n\r\n")
        return opened

    async def frame(self) -> tuple[int, bytes]:
        """First byte and payload of the next frame of the server, which is short and never masked."""
        first, length = await self.reader.readexactly(2)
        assert length < 126
        return first, await self.reader.readexactly(length)

    async def payload(self, count: int) -> bytes:
        """The next bytes of MQTT; they come in binary frames only."""
        data = b""
        while len(data) < count:
            first, part = await self.frame()
            assert first & 0x0F in {0x0, 0x2}
            data += part
        return data


@clause("5.0", "MQTT-4.2.0-1")
async def test_mqtt5_4_2_0_1_tcp() -> None:
    """TCP is such a stream: what is sent in pieces arrives whole and in order."""
    await speak_tcp(5)


@clause("3.1.1", "MQTT-7.1.1-1")
async def test_mqtt311_7_1_1_1_tcp() -> None:
    """The same for 3.1.1."""
    await speak_tcp(4)


async def speak_tcp(version: int) -> None:
    """CONNECT, PINGREQ and DISCONNECT, byte by byte."""
    async with running() as node:
        listener = await node.listen()
        reader, writer = await asyncio.open_connection(*listener.addresses[0])
        for byte in connect(b"c", version=version) + PINGREQ:
            writer.write(bytes((byte,)))
            await writer.drain()
        head = await reader.readexactly(2)
        assert head[0] == 0x20
        assert (await reader.readexactly(head[1]))[:2] == b"\0\0"
        assert await reader.readexactly(2) == PINGRESP
        writer.write(DISCONNECT)
        assert await reader.read() == b""
        writer.close()


OFFERS = [b"mqtt", b"mqttv3.1, mqtt", b"mqtt,other"]


@clause("5.0", "MQTT-6.0.0-4")
@pytest.mark.parametrize("offered", OFFERS)
async def test_mqtt5_6_0_0_4_sub_protocol(offered: bytes) -> None:
    """The server selects mqtt, also among others."""
    await select(offered)


@clause("3.1.1", "MQTT-6.0.0-4")
@pytest.mark.parametrize("offered", OFFERS)
async def test_mqtt311_6_0_0_4_sub_protocol(offered: bytes) -> None:
    """The same for 3.1.1: the handshake knows no versions."""
    await select(offered)


async def select(offered: bytes) -> None:
    """The handshake of RFC 6455 with these sub-protocols."""
    async with running() as node:
        listener = await node.listen(kind="ws")
        client = await WebSocket.open(listener, offered)
        lines = client.answer.lower().split(b"\r\n")
        assert client.answer.startswith(b"HTTP/1.1 101 ")
        assert b"sec-websocket-protocol: mqtt" in lines
        accept = base64.b64encode(hashlib.sha1(KEY + MAGIC).digest())
        assert b"Sec-WebSocket-Accept: " + accept in client.answer
        client.writer.close()


@clause("3.1.1", "MQTT-6.0.0-1")
async def test_mqtt311_6_0_0_1_binary_frames() -> None:
    """MQTT goes in binary frames both ways."""
    async with running() as node:
        listener = await node.listen(kind="ws")
        client = await WebSocket.open(listener)
        client.writer.write(frame(CONNECT))
        assert await client.frame() == (BINARY, CONNACK)
        client.writer.close()


@clause("5.0", "MQTT-6.0.0-1")
@clause("3.1.1", "MQTT-6.0.0-1")
@pytest.mark.parametrize("before_connect", [True, False])
async def test_mqtt5_6_0_0_1_text_frames(before_connect: bool) -> None:
    """A text frame closes the connection."""
    async with running() as node:
        listener = await node.listen(kind="ws")
        client = await WebSocket.open(listener)
        if not before_connect:
            client.writer.write(frame(CONNECT))
            await client.payload(4)
        client.writer.write(frame(CONNECT if before_connect else PINGREQ, TEXT))
        rest = await client.reader.read()
        assert CONNACK not in rest
        assert PINGRESP not in rest
        client.writer.close()


@clause("5.0", "MQTT-6.0.0-2")
async def test_mqtt5_6_0_0_2_packets_over_frames() -> None:
    """A packet over many frames, and many packets in one."""
    async with running() as node:
        listener = await node.listen(kind="ws")
        client = await WebSocket.open(listener)
        data = connect(b"c", version=5)
        client.writer.write(frame(data[:1]) + frame(b"") + frame(data[1:20]) + frame(data[20:] + PINGREQ))
        answer = b""
        while not answer.endswith(PINGRESP):
            answer += await client.payload(1)
        assert answer[0] == 0x20
        assert len(answer) == 2 + answer[1] + 2
        client.writer.close()


@clause("3.1.1", "MQTT-6.0.0-2")
async def test_mqtt311_6_0_0_2_frames_are_not_packets() -> None:
    """Half packets, many packets, and fragments of one message: only the bytes count."""
    async with running() as node:
        listener = await node.listen(kind="ws")
        client = await WebSocket.open(listener)
        for byte in CONNECT[:-3]:
            client.writer.write(frame(bytes((byte,))))
        client.writer.write(frame(CONNECT[-3:] + PINGREQ + PINGREQ[:1]))
        client.writer.write(frame(PINGREQ[1:], 0x02))
        client.writer.write(frame(PINGREQ * 3, CONTINUATION & 0x0F))
        client.writer.write(frame(b"", CONTINUATION))
        assert await client.payload(4 + 5 * 2) == CONNACK + PINGRESP * 5
        client.writer.close()
