"""A small MQTT client over asyncio streams, for the command line and for tests; MQTT 3.1.1 and 5.0, QoS 0 to 2.

```
 publish() --> socket ... PUBACK / PUBREC, PUBREL, PUBCOMP --> the awaiting call returns the reason code
 subscribe() -> socket ... SUBACK --------------------------> its reason codes
 socket --> reader task --> bounded queue --> messages()   when no caller takes messages, the socket is not read
```
There is no reconnecting and no store: when the connection ends, everything that waits raises MqttError, and what to do
then is for the caller to decide. The codec is the broker's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from flockmq.errors import FlockError, RemoteProtocolError
from flockmq.mqtt import packets as p
from flockmq.mqtt import reasons
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import PINGREQ, encode_ack, encode_disconnect, encode_packet, encode_publish
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.varint import decode_varint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUEUE_MESSAGES_MAX: Final = 1_000
QUEUE_MESSAGES_ASKING_MAX: Final = 100_000
"""Limit while a request waits for its acknowledgement: history may come first, and the caller takes no message yet."""
_REFUSALS_V3: Final = {
    1: "it does not speak this version of MQTT",
    2: "it does not accept the client id",
    3: "it is not available now",
    4: "user name or password are wrong",
    5: "this client is not authorized",
}


class MqttError(FlockError):
    """The broker refused, or the connection ended; ``reason_code`` is what it said, None when it said nothing."""

    def __init__(self, text: str, reason_code: int | None = None) -> None:
        super().__init__(text)
        self.reason_code = reason_code


@dataclass(frozen=True, slots=True)
class Message:
    """A message that arrived. ``properties`` is None in MQTT 3.1.1, and where there are none."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    duplicate: bool
    properties: Properties | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to connect."""

    host: str = "127.0.0.1"
    port: int = 1883
    version: int = 5
    """5, or 4 for MQTT 3.1.1."""
    client_id: str = ""
    """Empty lets the broker choose (then ``clean_start`` must be set in 3.1.1)."""
    clean_start: bool = True
    keep_alive_s: int = 60
    username: str | None = None
    password: bytes | None = None
    will: p.Will | None = None
    properties: Properties | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = 10.0
    """How long connecting may take, until the CONNACK."""

    @property
    def address(self) -> str:
        """For messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MqttClient:
    """One connection, made by ``await MqttClient.connect(options)``; also an async context manager that disconnects."""

    def __init__(self, options: Options, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.options = options
        self.connack = p.Connack(False, 0)
        self.client_id = options.client_id
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[p.Packet]] = {}
        self._released: set[int] = set()  # QoS 2 ids that arrived and wait for their PUBREL
        self._inbox: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._send_quota = asyncio.Semaphore(65_535)
        self._last_id = 0
        self._error: MqttError | None = None
        self._left = False  # it was this side that ended the connection
        self._pings_sent = 0
        self._pings_answered = 0
        self._ping_answered = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def connect(cls, options: Options) -> MqttClient:
        """Connect, and return once the broker accepted; MqttError tells why it did not."""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(options.timeout_s):
                reader, writer = await asyncio.open_connection(options.host, options.port, ssl=options.tls)
                client = cls(options, reader, writer)
                await client._handshake()
        except BaseException as error:
            if writer is not None:
                writer.transport.abort()  # a goodbye of TLS would outlive the caller's event loop
            raise _connect_error(options, error) from None
        client._tasks = [asyncio.create_task(client._read()), asyncio.create_task(client._keep_alive())]
        return client

    async def _handshake(self) -> None:
        options = self.options
        connect = p.Connect(
            options.version,
            options.client_id,
            options.clean_start,
            options.keep_alive_s,
            options.properties,
            options.will,
            options.username,
            options.password,
        )
        self._writer.write(encode_packet(connect, options.version))
        answer = await self._next_packet()
        if not isinstance(answer, p.Connack):
            raise MqttError(f"{options.address} answered CONNECT with {type(answer).__name__}; is that an MQTT broker?")
        if answer.reason:
            raise _refusal(options, answer)
        self.connack = answer
        self.client_id = answer.properties.assigned_client_id or options.client_id
        self._send_quota = asyncio.Semaphore(answer.properties.receive_maximum or 65_535)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.disconnect()

    # --- what callers do ------------------------------------------------------------------------------------------

    async def subscribe(self, *entries: p.SubscribeEntry, properties: Properties | None = None) -> list[int]:
        """Subscribe; the broker's reason code for each filter."""
        return (await self.ask_subscribe(*entries, properties=properties)).reasons

    async def ask_subscribe(self, *entries: p.SubscribeEntry, properties: Properties | None = None) -> p.Suback:
        """Subscribe; the broker's whole answer, with its reason string and user properties."""
        packet_id = self._next_id()
        packet = p.Subscribe(packet_id, list(entries), properties)
        answer = await self._ask(packet_id, encode_packet(packet, self.options.version))
        assert isinstance(answer, p.Suback)
        return answer

    async def unsubscribe(self, *topic_filters: str) -> list[int]:
        """Unsubscribe; the broker's reason code for each filter, none in 3.1.1."""
        packet_id = self._next_id()
        packet = p.Unsubscribe(packet_id, [one.encode() for one in topic_filters])
        answer = await self._ask(packet_id, encode_packet(packet, self.options.version))
        assert isinstance(answer, p.Unsuback)
        return answer.reasons

    async def publish(
        self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> int:
        """Publish, and return the broker's reason code once it has taken charge of the message (QoS 0: at once)."""
        answer = await self.ask_publish(topic, payload, qos=qos, retain=retain, properties=properties)
        return answer.reason if answer is not None else 0

    async def ask_publish(
        self, topic: str, payload: bytes, *, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> p.Ack | None:
        """Publish; the broker's PUBACK or PUBREC, with its reason string and user properties. QoS 0 has none."""
        packet = p.Publish(topic.encode(), payload, qos, retain, properties=properties)
        if qos == 0:
            self._check()
            self._write(encode_publish(packet, self.options.version))
            await self._drain()
            return None
        async with self._send_quota:
            packet.packet_id = self._next_id()
            answer = await self._ask(packet.packet_id, encode_publish(packet, self.options.version))
            assert isinstance(answer, p.Ack)
            if qos == 1 or answer.reason >= 0x80:
                return answer
            released = encode_ack(p.PUBREL, packet.packet_id, 0, self.options.version)
            await self._ask(packet.packet_id, released)
            return answer

    async def ping(self) -> None:
        """Return once the broker has read all that was sent so far; MqttError when it ended the connection over it."""
        self._check()
        number = self._send_ping()
        await self._drain()
        while self._pings_answered < number:
            self._check()
            self._ping_answered.clear()
            await self._ping_answered.wait()

    async def messages(self) -> AsyncIterator[Message]:
        """Messages as they arrive, until ``disconnect``; MqttError when the connection ends in another way."""
        while True:
            while self._inbox:
                message = self._inbox.popleft()
                self._room.set()
                yield message
            if self._left:
                return
            self._check()
            self._arrived.clear()
            await self._arrived.wait()

    async def disconnect(self, reason: int = 0) -> None:
        """Say goodbye and close. Harmless when the connection has ended already."""
        self._left = True
        if self._error is None:
            with contextlib.suppress(OSError, RuntimeError):  # the latter is uvloop's word for a closed transport
                self._writer.write(encode_disconnect(reason, self.options.version))
                await self._writer.drain()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end(MqttError("The connection was closed by this side."))
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # --- the connection ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _next_id(self) -> int:
        self._check()
        for _ in range(65_535):
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self._waiting:
                return self._last_id
        raise MqttError("All 65,535 packet ids wait for the broker's answer; send less at once.")

    async def _ask(self, packet_id: int, data: bytes) -> p.Packet:
        """Send, and wait for the packet that answers this id."""
        self._check()
        answer: asyncio.Future[p.Packet] = asyncio.get_running_loop().create_future()
        self._waiting[packet_id] = answer
        self._room.set()
        try:
            self._write(data)
            await self._drain()
            return await answer
        finally:
            self._waiting.pop(packet_id, None)

    def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
        except RuntimeError as error:  # uvloop's word for a closed transport
            raise self._error or _lost(self.options, error) from None

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise self._error or _lost(self.options, error) from None

    async def _next_packet(self) -> p.Packet:
        head = bytearray(await self._reader.readexactly(2))
        while head[-1] & 0x80 and len(head) < 5:
            head += await self._reader.readexactly(1)
        length, _ = decode_varint(bytes(head), 1, len(head))
        body = await self._reader.readexactly(length) if length else b""
        return decode_packet(self.options.version, head[0], body)

    async def _read(self) -> None:
        try:
            while True:
                await self._received(await self._next_packet())
        except (OSError, asyncio.IncompleteReadError) as error:
            self._end(_lost(self.options, error))
        except RemoteProtocolError as error:
            self._end(MqttError(f"{self.options.address} broke the MQTT protocol: {error}.", error.reason_code))
        except MqttError as error:
            self._end(error)
        self._writer.close()

    async def _received(self, packet: p.Packet) -> None:
        if isinstance(packet, p.Publish):
            await self._received_message(packet)
        elif isinstance(packet, p.Ack) and packet.kind == p.PUBREL:
            self._released.discard(packet.packet_id)
            self._write(encode_ack(p.PUBCOMP, packet.packet_id, 0, self.options.version))
        elif isinstance(packet, (p.Ack, p.Suback, p.Unsuback)):
            waiting = self._waiting.get(packet.packet_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(packet)
        elif isinstance(packet, p.Pingresp):
            self._pings_answered += 1
            self._ping_answered.set()
        elif isinstance(packet, p.Disconnect):
            raise _disconnected(self.options, packet)

    async def _received_message(self, packet: p.Publish) -> None:
        if packet.packet_id not in self._released:
            message = Message(
                packet.topic.decode(), packet.payload, packet.qos, packet.retain, packet.dup, packet.properties
            )
            while len(self._inbox) >= (QUEUE_MESSAGES_ASKING_MAX if self._waiting else QUEUE_MESSAGES_MAX):
                self._room.clear()
                await self._room.wait()
            self._inbox.append(message)
            self._arrived.set()
        if packet.qos == 2:
            self._released.add(packet.packet_id)
            self._write(encode_ack(p.PUBREC, packet.packet_id, 0, self.options.version))
        elif packet.qos == 1:
            self._write(encode_ack(p.PUBACK, packet.packet_id, 0, self.options.version))

    async def _keep_alive(self) -> None:
        granted = self.connack.properties.server_keep_alive_s
        interval_s = self.options.keep_alive_s if granted is None else granted
        last = 0
        while interval_s:
            await asyncio.sleep(interval_s / 2)
            # While no caller takes messages, no PINGRESP is read either.
            if self._pings_answered < last and self._room.is_set():
                self._end(MqttError(f"The broker at {self.options.address} no longer answers; check the network."))
                self._writer.close()
                return
            last = self._send_ping()

    def _send_ping(self) -> int:
        self._write(PINGREQ)
        self._pings_sent += 1
        return self._pings_sent

    def _end(self, error: MqttError) -> None:
        """Tell all waiting calls that the connection is over; the first reason counts."""
        if self._error is not None:
            return
        self._error = error
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._arrived.set()
        self._ping_answered.set()


def _lost(options: Options, error: BaseException) -> MqttError:
    why = f" ({error})" if isinstance(error, OSError) else ""
    return MqttError(f"The broker at {options.address} closed the connection without a reason{why}; see its log.")


def _refusal(options: Options, connack: p.Connack) -> MqttError:
    if options.version == 5:
        why = connack.properties.reason_string or reasons.name(connack.reason)
    else:
        why = _REFUSALS_V3.get(connack.reason, f"return code {connack.reason}")
    return MqttError(f"The broker at {options.address} refused the connection: {why}.", connack.reason)


def _disconnected(options: Options, packet: p.Disconnect) -> MqttError:
    said = packet.properties.reason_string if packet.properties else None
    name = reasons.name(packet.reason)
    why = f"{name} ({said})" if said else name
    return MqttError(f"The broker at {options.address} ended the connection: {why}.", packet.reason)


def _connect_error(options: Options, error: BaseException) -> BaseException:
    """The same error as a sentence, where there is something to do about it."""
    where = options.address
    if isinstance(error, TimeoutError):
        return MqttError(f"{where} did not answer within {options.timeout_s:g} s; check the address and the network.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return MqttError(
            f"The certificate of {where} is not trusted ({error.verify_message}); name its CA with --ca-file."
        )
    if isinstance(error, ssl.SSLError):
        return MqttError(f"{where} does not speak TLS as expected ({error.reason}); is that the TLS port?")
    if isinstance(error, socket.gaierror):
        return MqttError(f"The host {options.host!r} has no address; check its spelling.")
    if isinstance(error, (asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError)):
        doubt = "is that an MQTT port, with or without TLS?"
        if options.tls is not None:
            doubt = "does it want a client certificate (--cert-file) of an authority it knows, or is that no TLS port?"
        return MqttError(f"{where} closed the connection before it answered; {doubt}")
    if isinstance(error, OSError):
        why = os.strerror(error.errno) if error.errno else str(error)
        return MqttError(f"No broker answers at {where} ({why}); is it running?")
    if isinstance(error, RemoteProtocolError):
        return MqttError(f"{where} answered with something else than MQTT ({error}); is that an MQTT port?")
    return error
