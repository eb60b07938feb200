"""Publishers and subscribers that never give up: who is cut off goes to another node and sends again, with DUP.

```
 Publisher: connect --> window of QoS 1 messages, numbered per key --> PUBACK: a promise
               ^            (first of all what was not acknowledged, in its order, DUP)   |
               `---- connection broke, or nothing came for SILENCE_S: another node <------'
```
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from faults.durable.memory import Memory, payload_of
from flockmq.errors import FlockError
from flockmq.mqtt import packets as p
from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.varint import frame_length

WINDOW = 16
KEYS = 3
SILENCE_S = 2.0
"""Who hears nothing for so long, though something is under way, goes elsewhere: clients have timeouts."""
CONNECT_S_MAX = 2.0
PAUSE_S = 0.05
READ_BYTES = 1 << 16
TOPIC = "orders"

Dial = Callable[[int], socket.socket]
"""A connected socket to a node, by its number; OSError when nobody is there. Called in the loop's own thread."""


class Link:
    """One MQTT 5 connection: packets in, packets out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""

    @classmethod
    async def open(cls, dial: Dial, node: int, client_id: str) -> Link:
        """Connect and be welcome; OSError, EOFError or TimeoutError when not."""
        async with asyncio.timeout(CONNECT_S_MAX):
            link = cls(*await asyncio.open_connection(sock=dial(node)))
            try:
                link.send(p.Connect(5, client_id, True, 0, Properties()))
                connack = (await link.receive())[0]
            except BaseException:
                link.close()
                raise
            if not isinstance(connack, p.Connack) or connack.reason:
                link.close()
                raise EOFError(f"not welcome: {connack}")
            return link

    def send(self, packet: p.Packet) -> None:
        self._writer.write(encode_packet(packet, 5))

    async def receive(self) -> list[p.Packet]:
        """What came; EOFError at the end."""
        found: list[p.Packet] = []
        while not found:
            came = await self._reader.read(READ_BYTES)
            if not came:
                raise EOFError
            data, at = self._rest + came, 0
            while at < len(data):
                head, length = frame_length(data, at, len(data))
                if not length or at + length > len(data):
                    break
                found.append(decode_packet(5, data[at], data[at + head : at + length]))
                at += length
            self._rest = data[at:]
        return found

    def close(self) -> None:
        self._writer.close()


class Publisher:
    """Publishes for as long as its task runs."""

    def __init__(self, name: str, dial: Dial, nodes: int, memory: Memory, rate: float) -> None:
        self.name = name
        self.closed = 0
        """Connections that ended."""
        self.stopping = False
        self._dial = dial
        self._nodes = nodes
        self._memory = memory
        self._rate = rate
        self._rng = random.Random(name)
        self._numbers = [0] * KEYS
        self._open: deque[tuple[int, bytes, bytes]] = deque()
        """Packet id, topic and payload of what was not acknowledged, in the order of sending."""
        self._packet_id = 0

    @property
    def is_idle(self) -> bool:
        """Whether all that it sent was answered."""
        return not self._open

    async def run(self) -> None:
        node = self._rng.randrange(self._nodes)
        while not (self.stopping and self.is_idle):
            try:
                link = await Link.open(self._dial, node, self.name)
            except (OSError, EOFError, TimeoutError, FlockError):
                node = (node + 1) % self._nodes
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                await self._publish(link)
            except (OSError, EOFError, TimeoutError, FlockError):
                self.closed += 1
                node = (node + 1) % self._nodes
            finally:
                link.close()

    async def _publish(self, link: Link) -> None:
        for packet_id, topic, payload in self._open:
            self._memory.attempts[payload] = self._memory.attempts.get(payload, 1) + 1
            link.send(p.Publish(topic, payload, 1, False, True, packet_id))
        started, sent = time.monotonic(), 0
        receiving: asyncio.Task[list[p.Packet]] | None = None
        heard = time.monotonic()
        try:
            while not (self.stopping and self.is_idle):
                due = int((time.monotonic() - started) * self._rate) + 1
                while len(self._open) < WINDOW and sent < due and not self.stopping:
                    self._send_next(link)
                    sent += 1
                receiving = receiving or asyncio.create_task(link.receive())
                await asyncio.wait([receiving], timeout=1 / self._rate if len(self._open) < WINDOW else SILENCE_S)
                if receiving.done():
                    packets, receiving, heard = receiving.result(), None, time.monotonic()
                    self._answered(packets)
                elif self._open and time.monotonic() - heard > SILENCE_S:
                    raise TimeoutError
                elif not self._open:
                    heard = time.monotonic()
        finally:
            if receiving is not None:
                receiving.cancel()
                with suppress(asyncio.CancelledError, OSError, EOFError, FlockError):
                    await receiving

    def _send_next(self, link: Link) -> None:
        key = self._rng.randrange(KEYS)
        self._numbers[key] += 1
        topic = f"{TOPIC}/{self.name}/k{key}".encode()
        payload = payload_of(self.name, key, self._numbers[key])
        self._packet_id = self._packet_id % 65_535 + 1
        self._memory.sent[payload] = self._memory.shard_of(topic)
        self._open.append((self._packet_id, topic, payload))
        link.send(p.Publish(topic, payload, 1, False, False, self._packet_id))

    def _answered(self, packets: list[p.Packet]) -> None:
        for packet in packets:
            if isinstance(packet, p.Disconnect):
                raise EOFError(f"sent away: {packet}")  # noqa: TRY004
            if isinstance(packet, p.Ack) and packet.kind == p.PUBACK:
                assert self._open, f"{self.name}: a PUBACK for nothing: {packet}"
                packet_id, _, payload = self._open.popleft()
                assert packet_id == packet.packet_id, f"{self.name}: PUBACK {packet.packet_id} before {packet_id}"
                self._memory.told(payload, packet.reason)


class Subscriber:
    """Takes down what it gets, for every connection apart: while one lasts, nothing may be missing or come twice."""

    def __init__(self, name: str, topic_filter: str, dial: Dial, nodes: int, memory: Memory) -> None:
        self.name = name
        self.received = 0
        self._filter = topic_filter.encode()
        self._dial = dial
        self._nodes = nodes
        self._memory = memory
        self._rng = random.Random(name)

    async def run(self) -> None:
        node = self._rng.randrange(self._nodes)
        while True:
            try:
                link = await Link.open(self._dial, node, self.name)
            except (OSError, EOFError, TimeoutError, FlockError):
                node = (node + 1) % self._nodes
                await asyncio.sleep(PAUSE_S)
                continue
            seen: dict[int, list[bytes]] = {}
            self._memory.seen.append(seen)
            try:
                link.send(p.Subscribe(1, [p.SubscribeEntry(self._filter, 1)]))
                while True:
                    async with asyncio.timeout(10 * SILENCE_S):
                        packets = await link.receive()
                    self._take(link, packets, seen)
            except (OSError, EOFError, TimeoutError, FlockError):
                node = (node + 1) % self._nodes
            finally:
                link.close()

    def _take(self, link: Link, packets: Sequence[p.Packet], seen: dict[int, list[bytes]]) -> None:
        for packet in packets:
            if isinstance(packet, p.Publish):
                self.received += 1
                seen.setdefault(self._memory.shard_of(packet.topic), []).append(packet.payload)
                link.send(p.Ack(p.PUBACK, packet.packet_id))
