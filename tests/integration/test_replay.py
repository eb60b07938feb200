"""Subscribers of durable topics on three real nodes: live everywhere, and history from any of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from flockmq.client.mqtt import MqttClient, Options
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.testing.nodes import NodeCluster

COUNT = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with NodeCluster(tmp_path_factory.mktemp("nodes"), 3) as nodes:
        nodes.wait_settled()
        yield nodes


async def publish(port: int, topic: str, count: int, first: int = 0) -> None:
    async with await MqttClient.connect(Options(port=port)) as client:
        for number in range(first, first + count):
            assert await client.publish(f"{topic}/{number % 5}", b"%d" % number, qos=1) < 0x80


async def take(client: MqttClient, count: int) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    async for message in client.messages():
        found.append((message.topic, int(message.payload)))
        if len(found) == count:
            break
    return found


def by_topic(found: list[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in found:
        topics.setdefault(topic, []).append(number)
    return topics


def expected(topic: str, count: int) -> dict[str, list[int]]:
    return {f"{topic}/{rest}": list(range(rest, count, 5)) for rest in range(5)}


async def test_subscribers_on_all_nodes_get_everything_in_order(cluster: NodeCluster) -> None:
    await asyncio.to_thread(cluster.create_topic, "live", shards=3)
    clients = [await MqttClient.connect(Options(port=node.mqtt_port)) for node in cluster.nodes]
    for client in clients:
        assert await client.subscribe(SubscribeEntry(b"live/#", 1)) == [1]
    await publish(cluster.nodes[1].mqtt_port, "live", COUNT)
    for client in clients:
        async with asyncio.timeout(20):
            assert by_topic(await take(client, COUNT)) == expected("live", COUNT)
        await client.disconnect()


def replay(port: int, *arguments: str) -> list[str]:
    """What ``flockmq sub`` prints."""
    command = [sys.executable, "-m", "flockmq", "sub", f"--port={port}", "--qos=1", "--timeout=20", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


async def test_history_from_any_node_by_the_command(cluster: NodeCluster) -> None:
    await asyncio.to_thread(cluster.create_topic, "past", shards=3)
    await publish(cluster.nodes[0].mqtt_port, "past", COUNT)
    for node, version in zip(cluster.nodes, ("5", "3.1.1", "5"), strict=True):
        lines = await asyncio.to_thread(
            replay, node.mqtt_port, "past/#", "--from=earliest", f"--mqtt={version}", f"--count={COUNT}"
        )
        found = [(line.split()[0], int(line.split()[1])) for line in lines]
        assert by_topic(found) == expected("past", COUNT)


async def test_history_goes_over_into_what_is_new(cluster: NodeCluster) -> None:
    await asyncio.to_thread(cluster.create_topic, "both")
    await publish(cluster.nodes[0].mqtt_port, "both", COUNT)
    client = await MqttClient.connect(Options(port=cluster.nodes[2].mqtt_port, version=4))
    publishing = asyncio.create_task(publish(cluster.nodes[1].mqtt_port, "both", COUNT, COUNT))
    assert await client.subscribe(SubscribeEntry(b"$replay/offset:40/both/#", 1)) == [1]
    async with asyncio.timeout(30):
        assert [number for _, number in await take(client, 2 * COUNT - 40)] == list(range(40, 2 * COUNT))
    await publishing
    await client.disconnect()


def test_what_can_not_be_replayed_is_told(cluster: NodeCluster) -> None:
    port = cluster.nodes[0].mqtt_port
    command = [sys.executable, "-m", "flockmq", "sub", f"--port={port}", "nowhere/#", "--from=earliest"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "No durable topic" in done.stderr


async def test_a_session_finds_what_it_missed_on_another_node(cluster: NodeCluster) -> None:
    await asyncio.to_thread(cluster.create_topic, "away", shards=2)
    properties = Properties()
    properties.session_expiry_s = 600
    first = Options(port=cluster.nodes[0].mqtt_port, client_id="traveller", properties=properties)
    client = await MqttClient.connect(first)
    assert await client.subscribe(SubscribeEntry(b"away/#", 1)) == [1]
    await client.disconnect()
    await publish(cluster.nodes[1].mqtt_port, "away", COUNT)
    second = replace(first, port=cluster.nodes[2].mqtt_port, clean_start=False)
    client = await MqttClient.connect(second)
    assert client.connack.session_present
    await publish(cluster.nodes[1].mqtt_port, "away", COUNT, COUNT)
    async with asyncio.timeout(30):
        assert by_topic(await take(client, 2 * COUNT)) == expected("away", 2 * COUNT)
    await client.disconnect()
