"""Messages between real nodes: shared groups, retained messages, every QoS both ways."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cluster.clients import Clients, next_message
from flockmq.client.mqtt import MqttClient
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.testing.nodes import NodeCluster

COUNT = 300


class Jobs:
    """What each member got, and whether that is all."""

    def __init__(self, members: int) -> None:
        self.got: list[list[bytes]] = [[] for _ in range(members)]
        self.all = asyncio.Event()

    async def collect(self, number: int, client: MqttClient) -> None:
        async for message in client.messages():
            self.got[number].append(message.payload)
            if sum(map(len, self.got)) == COUNT:
                self.all.set()


async def test_a_shared_group_gets_each_message_once_wherever_its_members_are(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        jobs = Jobs(3)
        collecting = []
        for number, node in enumerate(cluster.nodes):
            member = await clients.connect(node, f"member{number}")
            await member.subscribe(SubscribeEntry(b"$share/workers/jobs/#", 1))
            collecting.append(asyncio.create_task(jobs.collect(number, member)))
        publisher = await clients.connect(cluster.nodes[0], "publisher")
        for number in range(COUNT):
            await publisher.publish(f"jobs/{number}", b"%d" % number, qos=1)
        await asyncio.wait_for(jobs.all.wait(), 30)
        for task in collecting:
            task.cancel()
        everything = [int(payload) for one in jobs.got for payload in one]
        assert sorted(everything) == list(range(COUNT))
        assert all(len(one) > COUNT / 10 for one in jobs.got)


async def test_every_qos_reaches_every_node_in_order(tmp_path: Path, clients: Clients) -> None:
    with NodeCluster(tmp_path, 3) as cluster:
        subscribers = [await clients.connect(node, f"subscriber{n}") for n, node in enumerate(cluster.nodes)]
        for subscriber in subscribers:
            await subscriber.subscribe(SubscribeEntry(b"news/+", 2))
        for qos in (0, 1, 2):
            publisher = await clients.connect(cluster.nodes[qos], f"publisher{qos}")
            for number in range(50):
                await publisher.publish(f"news/{qos}", b"%d" % number, qos=qos)
        for subscriber in subscribers:
            found: dict[str, list[bytes]] = {}
            for _ in range(150):
                message = await next_message(subscriber)
                assert message.qos == int(message.topic[-1])
                found.setdefault(message.topic, []).append(message.payload)
            assert found == {f"news/{qos}": [b"%d" % number for number in range(50)] for qos in (0, 1, 2)}
