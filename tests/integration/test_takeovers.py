"""Real nodes: a client id that wanders between them has one owner, loses nothing, and its will outlives its node."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Self

import pytest

from flockmq.mqtt.decode import decode_packet
from flockmq.mqtt.encode import encode_packet
from flockmq.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Will,
)
from flockmq.mqtt.properties import Properties
from flockmq.testing.nodes import HOST, NodeCluster, NodeProcess

ANSWER_S_MAX = 10
WILL_S_MAX = 30
QUIET_S = 2
KINDS = {1: PUBACK, 2: PUBREC}


class Client:
    """A connection whose packets are looked at one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.connack = Connack(False, 0)

    def send(self, packet: Packet) -> None:
        self.writer.write(encode_packet(packet, 5))

    async def read(self) -> Packet:
        first = (await self.reader.readexactly(1))[0]
        length = 0
        shift = 0
        while True:
            byte = (await self.reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return decode_packet(5, first, await self.reader.readexactly(length))

    async def subscribe(self, topic_filter: bytes, qos: int) -> None:
        self.send(Subscribe(1, [SubscribeEntry(topic_filter, qos)]))
        assert isinstance(await self.read(), Suback)


class Crowd:
    """Connections that are closed together."""

    def __init__(self) -> None:
        self._clients: list[Client] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for client in self._clients:
            client.writer.close()
        for client in self._clients:
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()

    async def connect(self, node: NodeProcess, client_id: str, clean: bool = False, will: Will | None = None) -> Client:
        client = Client(*await asyncio.open_connection(HOST, node.mqtt_port))
        self._clients.append(client)
        properties = Properties()
        properties.session_expiry_s = 0 if clean else 3_600
        client.send(Connect(5, client_id, clean, 0, properties, will))
        answer = await asyncio.wait_for(client.read(), ANSWER_S_MAX)
        assert isinstance(answer, Connack)
        client.connack = answer
        return client


class Wanderer:
    """What a client remembers over all its connections."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.farewells: list[int] = []
        self._held: set[int] = set()
        self._heard = asyncio.Event()

    async def wait_for(self, wanted: set[bytes]) -> None:
        """Until all of these have come."""
        while set(self.payloads) != wanted:
            self._heard.clear()
            await asyncio.wait_for(self._heard.wait(), ANSWER_S_MAX)

    async def listen(self, client: Client) -> None:
        """Take messages until the connection ends, as a client should that keeps its session."""
        try:
            while True:
                packet = await client.read()
                if isinstance(packet, Publish):
                    self.take(client, packet)
                elif isinstance(packet, Ack) and packet.kind == PUBREL:
                    self._held.discard(packet.packet_id)
                    client.send(Ack(PUBCOMP, packet.packet_id))
                elif isinstance(packet, Disconnect):
                    self.farewells.append(packet.reason)
        except (asyncio.IncompleteReadError, ConnectionError):
            client.writer.close()

    def take(self, client: Client, message: Publish) -> None:
        if message.qos == 1 or message.packet_id not in self._held:
            self.payloads.append(message.payload)
            self._heard.set()
        if message.qos == 2:
            self._held.add(message.packet_id)
        client.send(Ack(KINDS[message.qos], message.packet_id))


async def publish(client: Client, number: int, qos: int) -> None:
    packet_id = number % 65_535 + 1
    client.send(Publish(b"t", b"%d" % number, qos, False, False, packet_id))
    await client.read()
    if qos == 2:
        client.send(Ack(PUBREL, packet_id))
        await client.read()


async def wander(cluster: NodeCluster, rounds: int, qos: int) -> None:
    """Take one client id over again and again while messages are published everywhere."""
    rng = random.Random(qos)
    wanderer = Wanderer()
    async with Crowd() as crowd, asyncio.TaskGroup() as tasks:
        first = await crowd.connect(cluster.nodes[0], "wanderer")
        await first.subscribe(b"t", qos)
        listening = [tasks.create_task(wanderer.listen(first))]
        publishers = [await crowd.connect(node, f"publisher-{node.name}", True) for node in cluster.nodes]
        sent = 0
        for _ in range(rounds):
            for _ in range(rng.randrange(3)):
                sent += 1
                await publish(rng.choice(publishers), sent, qos)
            taking_over = tasks.create_task(crowd.connect(rng.choice(cluster.nodes), "wanderer"))
            while not taking_over.done():
                sent += 1
                await publish(rng.choice(publishers), sent, qos)
            client = await taking_over
            assert client.connack.reason == 0
            assert client.connack.session_present
            listening.append(tasks.create_task(wanderer.listen(client)))
        await wanderer.wait_for({b"%d" % number for number in range(1, sent + 1)})
        if qos == 2:
            assert len(wanderer.payloads) == sent
        assert wanderer.farewells == [0x8E] * rounds
        for task in listening:
            task.cancel()


def owners(cluster: NodeCluster, client_id: str) -> list[str]:
    return [
        node.name
        for node in cluster.running()
        if any(
            session.client_id == client_id
            for session in node.admin().sessions(client_id_prefix=client_id, node=node.name)
        )
    ]


@pytest.mark.timeout(300)
def test_a_thousand_takeovers_between_five_nodes(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 5) as cluster:
        asyncio.run(wander(cluster, 1_000, 1))
        cluster.wait(lambda: len(owners(cluster, "wanderer")) <= 1, "one owner, or the log alone")
        sessions = cluster.nodes[0].admin().sessions(client_id_prefix="wanderer")
        assert [session.client_id for session in sessions] == ["wanderer"]
        assert len(cluster.running()) == 5


@pytest.mark.timeout(120)
def test_takeovers_at_qos_2(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        asyncio.run(wander(cluster, 100, 2))


@pytest.mark.timeout(120)
def test_a_killed_node_leaves_its_wills(tmp_path: Path) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        asyncio.run(wills(cluster))


async def wills(cluster: NodeCluster) -> None:
    async with Crowd() as crowd:
        watcher = await crowd.connect(cluster.nodes[1], "watcher")
        await watcher.subscribe(b"will/#", 0)
        for number in range(5):
            await crowd.connect(cluster.nodes[0], f"sensor-{number}", will=Will(b"will/%d" % number, b"gone"))
        cluster.nodes[0].kill()
        topics: list[bytes] = []
        for _ in range(5):
            packet = await asyncio.wait_for(watcher.read(), WILL_S_MAX)
            assert isinstance(packet, Publish)
            topics.append(packet.topic)
        assert sorted(topics) == [b"will/%d" % number for number in range(5)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watcher.read(), QUIET_S)
